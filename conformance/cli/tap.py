"""`epp-conformance tap`: stand between a data plane and an EPP, pass everything on, and judge what is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.cli.interrupt import nothing_to_interrupt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from conformance.evidence.episode import Claims
    from conformance.tap.session import LiveSettings, LiveTap
    from ext_proc.http2.tls import ClientTls, ServerTls

MIB = 1024 * 1024


def tap(
    upstream: Annotated[str, typer.Option("--upstream", metavar="HOST:PORT|unix:/PATH", help="The EPP.")],
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="[HOST]:PORT|unix:/PATH", help="Where data planes connect; :PORT is every interface."
        ),
    ] = "127.0.0.1:9002",
    listen_cert: Annotated[
        Path | None, typer.Option("--listen-cert", metavar="PEM", help="Serve TLS with this certificate.")
    ] = None,
    listen_key: Annotated[Path | None, typer.Option("--listen-key", metavar="PEM", help="Its key.")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--client-ca", metavar="PEM", help="What must have signed the data plane's certificate."),
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option("--tls", metavar="MODE", help="To the EPP: plaintext, unverified (any certificate) or verified."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="PEM", help="What must have signed the EPP's certificate.")
    ] = None,
    server_name: Annotated[
        str | None, typer.Option("--server-name", metavar="NAME", help="SNI, and the name in the EPP's certificate.")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="PEM", help="Our certificate, for an EPP that asks for one.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="PEM", help="Its key.")] = None,
    protocol_version: Annotated[
        str | None, typer.Option("--protocol-version", metavar="VERSION", help="Judge by this version.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="FILE|NAME", help="What the EPP claims: versions, claims.")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="Record every Nth stream.")] = 1,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append transcripts: one exchange a line (NDJSON).")
    ] = None,
    record_failures: Annotated[
        bool, typer.Option("--record-failures", help="Only exchanges in which a rule was broken.")
    ] = False,
    record_limit: Annotated[
        int, typer.Option("--record-limit", min=1, metavar="MIB", help="The file grows to this size at most.")
    ] = 1024,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics here.")
    ] = None,
    keep_bodies: Annotated[
        int,
        typer.Option("--keep-bodies", min=0, metavar="BYTES", help="Keep so much of each body; needed to judge them."),
    ] = 0,
    keep_secrets: Annotated[
        bool, typer.Option("--keep-secrets", help="Keep credentials and queries as they are.")
    ] = False,
    secret_header: Annotated[
        list[str] | None, typer.Option("--secret-header", metavar="NAME", help="A further secret header. Repeatable.")
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", min=0.1, metavar="SECONDS", help="How long the EPP may owe an answer.")
    ] = 10.0,
    drain: Annotated[
        float,
        typer.Option(
            "--drain", min=0, max=86_400, metavar="SECONDS", help="How long open streams may last after Ctrl-C."
        ),
    ] = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print findings, only the summary.")] = False,
    no_color: options.NoColor = False,
) -> None:
    """Relay ext_proc between a data plane and an EPP, unchanged, and judge the conversations as they happen.

    Point the data plane to --listen instead of the EPP. Bodies and credentials are redacted at capture, and rules that
    need them are not applied. Ends with Ctrl-C, once open streams have ended, and at once with a second one. The exit
    code is 1 if a rule was broken.

    epp-conformance tap --listen :9002 --upstream epp:9002 --metrics 9102 --record traffic.ndjson
    """
    import asyncio

    from conformance.cli.console import without_colour
    from conformance.cli.patient_writer import PatientWriter
    from conformance.cli.serving import until_interrupted
    from conformance.printable import without_orders
    from conformance.tap.judging import JudgingSettings, context
    from conformance.tap.redaction import LiveRedaction, secret_names
    from conformance.tap.session import LiveSettings

    if no_color:
        without_colour()
    host, port = (listen, 0) if listen.startswith("unix:") else listening(listen, "--listen")
    version, claims = judged_by(profile, protocol_version)
    settings = LiveSettings(
        host=host,
        port=port,
        upstream=upstream,
        listen_tls=_served(listen_cert, listen_key, client_ca),
        upstream_tls=spoken(tls, ca, server_name, cert, key),
        every=sample,
        redaction=LiveRedaction(headers=secret_names(secret_header or ()), body=keep_bodies, secrets=not keep_secrets),
        metrics=None
        if metrics is None
        else listening(metrics if ":" in metrics else f"127.0.0.1:{metrics}", "--metrics"),
        judging=JudgingSettings(
            context=context(version, claims, deadline=deadline),
            record=None if record is None else record.absolute(),
            record_limit=record_limit * MIB,
            record_failures_only=record_failures,
        ),
    )
    ended: list[LiveTap] = []
    if record is not None:
        _can_be_written(record)
    leaving = asyncio.Event()
    # A reader who does not read must not keep what is relayed waiting, nor the end.
    with PatientWriter(sys.stderr) as remarks:

        def warn(text: str) -> None:
            remarks.line(without_orders(f"tap: {text}"))

        with PatientWriter(sys.stdout) as results:

            def show(text: str) -> None:
                if not quiet:
                    results.line(without_orders(text))

            defect = until_interrupted(_serve(settings, ended, show, warn, leaving, drain), leaving.set)
            nothing_to_interrupt()
            if ended:
                results.line(without_orders(ended[0].summary()))
        for trouble in filter(None, (defect, results.trouble)):
            warn(trouble)
    code = ended[0].exit_code if ended else 0
    raise typer.Exit(3 if defect and code != 1 else code)


async def _serve(
    settings: LiveSettings,
    ended: list[LiveTap],
    show: Callable[[str], None],
    warn: Callable[[str], None],
    leaving: asyncio.Event,
    drain: float,
) -> None:
    from conformance.tap.session import LiveTap

    async with LiveTap(settings, show=show, warn=warn) as live:
        ended.append(live)
        warn(f"relaying {live.address} → {settings.upstream}, judging by version {settings.judging.context.version}")
        if live.metrics_port is not None:
            assert settings.metrics is not None
            warn(f"metrics at http://{settings.metrics[0]}:{live.metrics_port}/metrics")
        await leaving.wait()
        await live.drain(drain)


def _can_be_written(path: Path) -> None:
    """Found out now, and not at the first exchange. Raises `UsageError`."""
    from conformance.errors import UsageError

    if path.is_fifo() or path.is_socket():  # opening it would wait for a reader
        raise UsageError(f"--record {path}: not a regular file", hint="name a file that can be written")
    try:
        path.open("ab").close()
    except OSError as problem:
        raise UsageError(f"--record {path}: {problem.strerror}", hint="name a file that can be written") from None


def listening(text: str, flag: str) -> tuple[str, int]:
    """Host and port of an address to listen on; an empty host is every interface."""
    from conformance.errors import UsageError

    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{flag} {text!r} is no address", hint="write HOST:PORT, or :PORT for every interface")
    try:
        host.encode("idna")
    except UnicodeError:
        raise UsageError(f"{flag} {text!r}: {host!r} is no host name", hint="write HOST:PORT") from None
    return host.removeprefix("[").removesuffix("]"), int(port)


def judged_by(profile: str | None, version: str | None) -> tuple[str, Claims | None]:
    """The version to judge by, and what the EPP claims."""
    from conformance.errors import UnknownNameError
    from conformance.requirements.schema import VERSIONS
    from conformance.targets.resolve import load_profile

    found = None if profile is None else load_profile(profile)
    version = version or (found.protocol_versions[-1] if found is not None else "1.0.0")
    if version not in VERSIONS:
        raise UnknownNameError("protocol version", version, VERSIONS)
    return version, None if found is None else found.claims


def _served(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    from conformance.errors import UsageError
    from conformance.targets.authority import no_authority
    from ext_proc.http2.tls import ServerTls

    if certificate is None:
        if key is not None or client_ca is not None:
            raise UsageError("TLS is served with a certificate", hint="add --listen-cert")
        return None
    _check_identity("--listen-cert", "--listen-key", certificate, key)
    if client_ca is not None and (wrong := no_authority(client_ca)):
        raise UsageError(f"--client-ca: {wrong}")
    return ServerTls(certificate=certificate, key=key or certificate, client_ca=client_ca)


def spoken(
    mode: str | None, ca: Path | None, server_name: str | None, certificate: Path | None = None, key: Path | None = None
) -> ClientTls | None:
    """How TLS is spoken to an EPP; None for plaintext. Without a `mode`, files for TLS mean that it is verified."""
    from conformance.errors import UnknownNameError, UsageError
    from conformance.targets.authority import no_authority
    from ext_proc.http2.tls import ClientTls

    modes = ("plaintext", "unverified", "verified")
    mode = mode or ("plaintext" if ca is None and certificate is None else "verified")
    if mode not in modes:
        raise UnknownNameError("TLS mode", mode, modes)
    if ca is not None and mode != "verified":
        raise UsageError(f"--ca is not used with --tls {mode}", hint="say --tls verified")
    if ca is not None and (wrong := no_authority(ca)):
        raise UsageError(f"--ca: {wrong}")
    if certificate is not None:
        if mode == "plaintext":
            raise UsageError("--cert is not used with --tls plaintext", hint="say --tls verified or unverified")
        _check_identity("--cert", "--key", certificate, key)
    elif key is not None:
        raise UsageError("--key is that of a certificate", hint="add --cert")
    if mode == "plaintext":
        return None
    return ClientTls(
        verify=mode == "verified",
        ca=ca,
        certificate=certificate,
        key=None if certificate is None else key or certificate,
        server_name=server_name,
    )


def _check_identity(flag: str, key_flag: str, certificate: Path, key: Path | None) -> None:
    from conformance.errors import UsageError
    from conformance.targets.authority import no_identity

    if wrong := no_identity(certificate, key or certificate):
        hint = "" if key is not None else f"add {key_flag}, if the key is in a file for itself"
        raise UsageError(f"{flag}: {wrong}", hint=hint)
