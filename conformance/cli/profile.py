"""`epp-conformance profile`: make, check and list profiles of targets."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import completion, options
from conformance.cli.commands import Commands
from conformance.targets.flags import RoleName, TargetFlags

if TYPE_CHECKING:
    from conformance.targets.gateway import AnyProfile

profile = typer.Typer(
    cls=Commands, no_args_is_help=True, rich_markup_mode=None, help="Make, check and list profiles of targets."
)


PROFILES = completion.offering(completion.profiles)


class DiscoveryKind(StrEnum):
    """How a target learns its pool."""

    KUBERNETES = "kubernetes"
    FILE = "file"
    FIXED = "fixed"


class TlsKind(StrEnum):
    """How a target is spoken to."""

    PLAINTEXT = "plaintext"
    UNVERIFIED = "unverified"
    VERIFIED = "verified"


@profile.command()
@options.spelt_out
def init(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("epp-profile.yaml"),
    name: Annotated[str | None, typer.Option("--name", help="What the target is called.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="How it is started, with placeholders such as {port}.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT|unix:/PATH", help="Where it runs already, instead of a command."),
    ] = None,
    discovery: Annotated[DiscoveryKind | None, typer.Option("--discovery", help="How it learns its pool.")] = None,
    endpoint: Annotated[
        list[str] | None, typer.Option("--endpoint", metavar="IP:PORT", help="For --discovery fixed. Repeatable.")
    ] = None,
    endpoints_file: Annotated[
        str | None, typer.Option("--endpoints-file", metavar="PATH", help="For --discovery file and --address.")
    ] = None,
    tls: Annotated[TlsKind | None, typer.Option("--tls", help="How it is spoken to.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A model that it serves.")] = None,
    *,
    whose: Annotated[TargetFlags, options.Taken(only=("role", "gateway", "epp_listen", "server", "engine"))],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented profile. Asks for what no flag says, if there is a terminal."""
    from conformance.errors import UsageError
    from conformance.targets.gateway import GatewayProfile
    from conformance.targets.model_server import ModelServerProfile
    from conformance.targets.profile import Profile

    if output.exists() and not force:
        raise UsageError(f"{output} is there already", hint="--force writes over it")
    name = name or _ask("Name of the target", "--name", default=Path.cwd().name)
    if whose.role is RoleName.DATA_PLANE or whose.gateway:
        text = _of_a_gateway(name, command, whose.gateway, whose.epp_listen or [], endpoint or [], model or "llama-3")
        _write(output, text, GatewayProfile)
        return
    if whose.role is RoleName.MODEL_SERVER or whose.server:
        _write(output, _of_a_model_server(name, command, whose.server, whose.engine, model), ModelServerProfile)
        return
    if command is None and address is None:
        command = _ask(
            "Command that starts it, with {port} and {endpointsFile} or {kubeconfig} (empty: it runs already)",
            "--command or --address",
            default="",
        )
        if not command:
            address = _ask("Its address, host:port", "--address")
    if command is not None and address is not None and "{" not in address:
        raise UsageError("--command and --address exclude each other", hint="leave one out")
    if discovery is None:
        implied = "file" if "{endpointsFile}" in (command or "") or endpoints_file else "kubernetes"
        discovery = _kind(_ask("How it learns its pool: kubernetes, file or fixed", "--discovery", default=implied))
    if discovery is DiscoveryKind.FIXED and not endpoint:
        endpoint = _ask("The endpoints that it knows, separated by commas", "--endpoint").split(",")
    if tls is None:
        default = "unverified" if discovery is DiscoveryKind.KUBERNETES else "plaintext"
        tls = _tls(_ask("TLS: plaintext, unverified (self-signed) or verified", "--tls", default=default))
    model = model or (_ask("A model that it serves", "--model", default="llama-3") if _interactive() else "llama-3")
    text = _text(name, command, address, discovery, endpoint or [], endpoints_file, tls, model)
    _write(output, text, Profile)


def _of_a_gateway(
    name: str, command: str | None, url: str | None, epp_listen: list[str], endpoints: list[str], model: str
) -> str:
    from conformance.cli.gateway_text import gateway_text
    from conformance.errors import UsageError
    from conformance.targets.launch import command_start

    if command is None and url is None:
        holders = "{port}, {epp} and {endpoints}"
        asked = f"Command that starts it, with {holders} (empty: it runs already)"
        command = _ask(asked, "--command or --gateway", default="")
        url = None if command else _ask("Its URL, http://host:port", "--gateway")
    if command and url:
        raise UsageError("--command and --gateway exclude each other", hint="leave one out")
    if url is not None:
        epp_listen = epp_listen or [_ask("Where it expects its EPP, ip:port", "--epp-listen")]
        endpoints = endpoints or _ask("The endpoints of its pool, separated by commas", "--endpoint").split(",")
    words = command_start(command).command or () if command else ()
    return gateway_text(name, words, url, epp_listen, [one.strip() for one in endpoints if one.strip()], model)


def _of_a_model_server(
    name: str, command: str | None, server: str | None, engine: str | None, model: str | None
) -> str:
    from conformance.cli.server_text import server_text
    from conformance.errors import UsageError
    from conformance.targets.launch import command_start

    if command and server:
        raise UsageError("--command and --server exclude each other", hint="leave one out")
    if command is None and server is None:
        asked = "Command that starts it, with {port} (empty: it runs already)"
        command = _ask(asked, "--command or --server", default="")
        server = None if command else _ask("Its URL, http://host:port", "--server")
    scheme, _, rest = (server or "").partition(":")
    words = command_start(line).command or () if (line := command or (rest if scheme == "cmd" else "")) else ()
    return server_text(name, words, rest if scheme == "image" else "", server, engine or "vllm", model)


def _write(output: Path, text: str, model: type[AnyProfile]) -> None:
    """Write a profile that is valid."""
    from conformance.cli.files import write_file
    from conformance.strict_yaml import load_located
    from conformance.targets.resolve import placed

    placed(*load_located(text, model, name=str(output)), output.parent)
    write_file(output, text)
    typer.echo(f"wrote {output}; try it: epp-conformance profile check {shlex.quote(str(output))}")


@profile.command()
@options.spelt_out
def check(
    name: Annotated[
        str | None,
        typer.Argument(metavar="FILE|NAME", help="The profile; or flags name a target.", autocompletion=PROFILES),
    ] = None,
    *,
    target: Annotated[TargetFlags, options.Taken(without=("profile", "data_plane"))],
    protocol_version: Annotated[str | None, typer.Option("--protocol-version", metavar="VERSION")] = None,
) -> None:
    """Start the target, wait until it is ready, send one request, and explain what failed (exit 4)."""
    from conformance.cli.diagnose import target as diagnose
    from conformance.cli.diagnosis import show_answers
    from conformance.targets.resolve import protocol_versions

    resolved = dataclasses.replace(target, profile=name).resolve()
    versions = protocol_versions(resolved.profile, (protocol_version,) if protocol_version else ())
    if name:
        typer.echo(f"the profile {name} is well-formed", err=True)
    raise typer.Exit(0 if show_answers(diagnose(resolved, versions[-1])) else 4)


@profile.command("list")
def list_() -> None:
    """List the profiles that come with the suite."""
    from conformance.cli.console import print_table
    from conformance.targets.resolve import load_any, shipped

    rows = []
    for name in shipped():
        one = load_any(name)
        owner = one.implementation
        needs = "--binary PATH" if "{binary}" in (one.start.command or ()) else ""
        rows.append([name, one.role, f"{owner.organization}/{owner.project} {owner.version}".strip(), needs])
    print_table(["NAME", "ROLE", "IMPLEMENTATION", "NEEDS"], rows)


@profile.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped profile.", autocompletion=PROFILES)],
) -> None:
    """Print a profile that comes with the suite, to copy from."""
    from conformance.errors import UnknownNameError, UsageError
    from conformance.targets.resolve import shipped

    known = shipped()
    if name not in known and Path(name).exists():
        raise UsageError(
            f"{name} is not the name of a shipped profile: `profile show` prints only those",
            hint=f"what a file says is checked by: epp-conformance profile check {shlex.quote(name)}",
        )
    if name not in known:
        raise UnknownNameError("profile", name, known)
    typer.echo(known[name].read_text(encoding="utf-8"), nl=False)


@profile.command()
def schema(
    role: Annotated[
        RoleName, typer.Option("--role", help="Of endpoint pickers (default), gateways or model servers.")
    ] = RoleName.EPP,
) -> None:
    """Print the JSON Schema of profiles, for editors."""
    from conformance.cli.console import print_json
    from conformance.targets.resolve import json_schema

    print_json(json_schema(role.value))


def _interactive() -> bool:
    return sys.stdin.isatty()


def _ask(question: str, flag: str, default: str | None = None) -> str:
    from conformance.errors import UsageError

    if not _interactive():
        if default:
            return default
        raise UsageError(f"there is no terminal to ask on: {question}", hint=f"give {flag}")
    try:
        answer: str = typer.prompt(question, default=default, show_default=bool(default))
    except typer.Abort as ended:
        if not isinstance(ended.__context__, EOFError):  # Ctrl-C
            raise
        typer.echo(err=True)  # the line of the question is still open
        raise UsageError(f"the input ended at the question: {question}", hint=f"answer it, or give {flag}") from None
    return answer.strip()


def _kind(text: str) -> DiscoveryKind:
    from conformance.errors import UnknownNameError

    try:
        return DiscoveryKind(text)
    except ValueError:
        raise UnknownNameError("way to learn the pool", text, list(DiscoveryKind)) from None


def _tls(text: str) -> TlsKind:
    from conformance.errors import UnknownNameError

    try:
        return TlsKind(text)
    except ValueError:
        raise UnknownNameError("TLS mode", text, list(TlsKind)) from None


def _text(
    name: str,
    command: str | None,
    address: str | None,
    discovery: DiscoveryKind,
    endpoints: list[str],
    endpoints_file: str | None,
    tls: TlsKind,
    model: str,
) -> str:
    """The profile as commented YAML. Values are written as JSON, which YAML reads."""
    from conformance.cli.implementation_text import implementation
    from conformance.targets.launch import command_start

    lines = [
        "# A target of epp-conformance. `epp-conformance profile schema` has every key; keys left out have defaults.",
        f"name: {json.dumps(name)}",
        *implementation(name),
    ]
    if command:
        words = command_start(command).command or ()
        lines += ["start:", "  # placeholders: {port} {healthPort} {metricsPort} {socket} {endpointsFile} {kubeconfig}"]
        lines += ["  # {pool} {namespace} {binary} (--binary) {version} (of the protocol) {workdir}", "  command:"]
        lines += [f"    - {json.dumps(word)}" for word in words]
        if discovery is DiscoveryKind.KUBERNETES and "{kubeconfig}" not in command:
            lines += ['  env: {KUBECONFIG: "{kubeconfig}"}']
    if address is None and "{socket}" in (command or "") and "{port}" not in (command or ""):
        address = "unix:{socket}"
    if address:
        lines += [f"address: {json.dumps(address)}"]
    lines += ["# How it is known to be ready. By default: a stream gets an answer. With a health service:"]
    lines += ['# ready: {rule: health, healthAddress: "127.0.0.1:{healthPort}"}']
    lines += [f"tls: {{mode: {tls}}} # plaintext, unverified (any certificate), verified (with ca: FILE)", "discovery:"]
    match discovery:
        case DiscoveryKind.KUBERNETES:
            lines += ["  kubernetes: # served by the suite, no cluster", "    namespace: default", "    pool: pool"]
            lines += ["    # its API group; inference.networking.x-k8s.io for EPPs that are older than the API's v1"]
            lines += ["    group: inference.networking.k8s.io"]
            lines += ["    objectives: {batch: -1} # InferenceObjectives and their priority; {} if it watches none"]
            lines += ["    models: [] # InferenceModels that it knows: of protocol versions 0.3.0 and 0.4.0 only"]
        case DiscoveryKind.FILE:
            path = endpoints_file or "{workdir}/endpoints"
            lines += ["  file:", f"    path: {json.dumps(path)} # rewritten by the suite, one endpoint a line"]
            lines += ["    reread: 0.25 # seconds: the target reads it at least this often"]
        case DiscoveryKind.FIXED:
            listed = [text.strip() for text in endpoints if text.strip()]
            lines += ["  fixed:", f"    endpoints: {json.dumps(listed)} # model servers are bound there"]
    lines += [
        "  scrapes: true # it reads the pods' /metrics",
        "requests:",
        f"  model: {json.dumps(model)}",
        "  headers: {} # sent with every request; secrets go to secretHeaders",
        "  # sheddable: {headers: {x-gateway-inference-objective: batch}}",
        "bodyModes: [full-duplex] # request body modes that the target is made for",
        "# What it claims; a claim that fails makes the exit code 1. What differs when started for an old version",
        "# (other arguments, for example) is said in start.versions.",
        "protocolVersions: [1.0.0]",
        "claims:",
        "  sheds: null # true: it answers 429 to sheddable requests under load",
        "  fallbackLists: null # true: it names several endpoints",
        "",
    ]
    return "\n".join(lines)
