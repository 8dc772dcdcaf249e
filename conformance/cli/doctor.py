"""`epp-conformance doctor`: is this machine, and is this target, ready to be tested?"""

from __future__ import annotations

import typer

from conformance.cli import options


def doctor(
    epp: options.Epp = None,
    profile: options.ProfileName = None,
    binary: options.Binary = None,
    endpoints: options.Endpoints = None,
    endpoints_file: options.EndpointsFile = None,
    body_mode: options.BodyModes = None,
    tls: options.TlsMode = None,
    ca: options.Ca = None,
) -> None:
    """Check the machine, and the target if one is named; say what to fix."""
    from conformance.cli import diagnose
    from conformance.cli.target_flags import Named
    from conformance.run.engine import EngineThread
    from conformance.targets.resolve import protocol_versions

    well = diagnose.show(diagnose.machine())
    if epp is None and profile is None:
        raise typer.Exit(0 if well else 3)
    resolved = Named(
        epp=epp,
        profile=profile,
        binary=binary,
        endpoints=endpoints,
        endpoints_file=endpoints_file,
        body_mode=body_mode,
        tls=tls,
        ca=ca,
    ).resolve()
    with EngineThread() as engine:
        answers = diagnose.target(resolved, protocol_versions(resolved.profile)[-1], engine)
    ready = diagnose.show(answers)
    raise typer.Exit(4 if not ready else 0 if well else 3)
