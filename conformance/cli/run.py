"""`epp-conformance run`: the main job."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from conformance.cli import options
from conformance.cli.target_flags import Named


def run(
    epp: options.Epp = None,
    profile: options.ProfileName = None,
    binary: options.Binary = None,
    role: options.Role = None,
    gateway: options.Gateway = None,
    epp_listen: options.EppListen = None,
    endpoints: options.Endpoints = None,
    endpoints_file: options.EndpointsFile = None,
    body_mode: options.BodyModes = None,
    tls: options.TlsMode = None,
    ca: options.Ca = None,
    data_plane: options.DataPlane = "fake",
    protocol_version: options.ProtocolVersions = None,
    scenario: options.Scenarios = None,
    exclude: options.Exclude = None,
    requirement: options.Requirements = None,
    level: options.Levels = None,
    section: options.Sections = None,
    smoke: options.Smoke = False,
    slow: options.Slow = False,
    scenarios: options.ScenarioPaths = None,
    jobs: options.Jobs = None,
    seed: options.Seed = None,
    property_examples: options.PropertyExamples = 0,
    waivers: options.Waivers = None,
    output: options.Output = options.DEFAULT_OUTPUT,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdict: for reporting only.")
    ] = False,
) -> None:
    """Test an endpoint picker, or a gateway, and write a report.

    Without a target, the endpoint picker that comes with the suite. Examples:

    epp-conformance run --epp 'cmd:./my-epp --port {port} --endpoints {endpointsFile}'

    epp-conformance run --profile gie-epp-1.5 --binary ./epp

    epp-conformance run --gateway http://127.0.0.1:8080 --epp-listen 127.0.0.1:9002 --endpoints 127.0.0.1:8000,…
    """
    from conformance.cli.console import without_colour

    if no_color:
        without_colour()
    seed = random.randrange(2**32) if seed is None else seed
    named = Named(
        role=role,
        epp=epp,
        gateway=gateway,
        profile=profile,
        binary=binary,
        epp_listen=epp_listen,
        endpoints=endpoints,
        endpoints_file=endpoints_file,
        body_mode=body_mode,
        tls=tls,
        ca=ca,
        data_plane=data_plane,
        scenarios=scenarios,
    )
    resolved = named.resolve()

    from conformance.cli.run_and_report import conduct
    from conformance.cli.show import show
    from conformance.run.data_plane.plane import chosen
    from conformance.run.session import RunSettings
    from conformance.targets.profile import Profile
    from conformance.targets.resolve import protocol_versions

    plane = chosen(data_plane)
    settings = RunSettings(
        profile=plane.driven(resolved.profile) if isinstance(resolved.profile, Profile) else resolved.profile,
        data_plane=plane,
        versions=protocol_versions(resolved.profile, protocol_version or ()),
        selection=options.selection(scenario, exclude, requirement, level, section, smoke=smoke, slow=slow),
        seed=seed,
        scenario_paths=tuple(scenarios or ()),
        jobs=jobs,
        values=resolved.values,
        command=named.command_line(),
        property_examples=property_examples,
    )
    title = f"target {named.title}, seed {seed}"
    done = conduct(settings, output, title=title, waivers=waivers, quiet=quiet)
    show(done)
    raise typer.Exit(0 if exit_zero else done.code)
