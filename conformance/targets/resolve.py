"""From what the user names (`--epp`, `--profile` and the flags that override it) to a profile that can be run."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pydantic

from conformance.errors import UnknownNameError, UsageError, did_you_mean, nearest
from conformance.reading.endpoints import distinct
from conformance.requirements.schema import VERSIONS
from conformance.scenario.schema import BodyMode
from conformance.strict_yaml import Document, FileError, Problem, load, parse
from conformance.targets.authority import no_authority
from conformance.targets.gateway import AnyProfile, GatewayProfile
from conformance.targets.launch import command_start
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.paths import no_folder
from conformance.targets.profile import (
    ITS_SOCKET,
    Discovery,
    File,
    Fixed,
    Kubernetes,
    Profile,
    Start,
    Tls,
    is_address,
    no_socket,
)
from ext_proc.http2.address import UNIX, socket_path
from ext_proc.http2.errors import BadAddress

REFERENCE = "reference"
KINDS = ("reference", "HOST:PORT", "unix:/PATH", "cmd:COMMAND", "python:MODULE:FUNCTION", "image:IMAGE")
PROFILES: Mapping[str, type[AnyProfile]] = {
    "epp": Profile,
    "data-plane": GatewayProfile,
    "model-server": ModelServerProfile,
}
"""The kinds of profiles, by their key `role`."""
WHOSE: Mapping[str, str] = {
    "epp": "an endpoint picker",
    "data-plane": "a gateway",
    "model-server": "a model server",
}
"""What a profile of a role describes."""
BODY_MODES: tuple[BodyMode, ...] = ("full-duplex", "buffered", "streamed", "none")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Flags that say something else than the profile. None and empty: the profile stands."""

    binary: str | None = None
    endpoints: tuple[str, ...] = ()
    endpoints_file: Path | None = None
    body_modes: tuple[str, ...] = ()
    tls: str | None = None
    ca: Path | None = None
    follows: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A target that can be run: its profile, and the values of placeholders that the command line gives."""

    profile: Profile
    values: Mapping[str, str]


def resolve(epp: str | None = None, profile: str | None = None, overrides: Overrides | None = None) -> Resolved:
    """The target that `--epp` and `--profile` name; both None: the reference EPP.

    `profile` is a file, or the name of a shipped one. Raises `UsageError`, or `FileError` for a wrong profile.
    """
    overrides = overrides or Overrides()
    base = load_profile(profile) if profile is not None else None
    if epp is None and base is None:
        epp = REFERENCE
    found = _started(base) if epp is None and base is not None else _named(epp or REFERENCE, base, overrides)
    if (discovery := _discovery(overrides, found)) is not None:
        found = found.model_copy(update={"discovery": discovery})
    if overrides.body_modes:
        found = found.model_copy(update={"body_modes": _body_modes(overrides.body_modes)})
    if overrides.tls is not None or overrides.ca is not None:
        found = found.model_copy(update={"tls": _tls(found.tls, overrides)})
    if overrides.binary is not None and "{binary}" not in found.start.model_dump_json():
        raise UsageError(
            "--binary has no place in this target", hint="its command needs {binary}, as shipped profiles do"
        )
    values = {} if overrides.binary is None else {"binary": _program(overrides.binary)}
    return Resolved(profile=found, values=values)


def protocol_versions(profile: AnyProfile, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The versions to judge, oldest first. `wanted` may hold `all`: every version that the target can be started for.

    Nothing wanted: 1.0.0 if the profile claims it, else the newest that it claims. Raises `UnknownNameError`.
    """
    for version in wanted:
        if version != "all" and version not in VERSIONS:
            raise UnknownNameError("protocol version", version, (*VERSIONS, "all"))
    if "all" in wanted:
        return tuple(version for version in VERSIONS if version in (profile.started_for or VERSIONS))
    if not wanted:
        claimed = [version for version in VERSIONS if version in profile.protocol_versions]
        return ("1.0.0",) if "1.0.0" in claimed else (claimed[-1],)
    return tuple(version for version in VERSIONS if version in wanted)


# -- profiles ----------------------------------------------------------------------------------------------------------


def shipped() -> Mapping[str, Traversable]:
    """The profiles that come with the suite, by name."""
    found = (item for item in (files(__package__) / "profiles").iterdir() if item.name.endswith(".yaml"))
    return {item.name.removesuffix(".yaml"): item for item in sorted(found, key=lambda item: item.name)}


def load_profile(name: str) -> Profile:
    """The profile of an endpoint picker, as `load_any` finds it. Raises `UsageError` if it is of another role."""
    profile = load_any(name)
    if not isinstance(profile, Profile):
        raise UsageError(
            f"{name} is the profile of {WHOSE[profile.role]}, not of an endpoint picker",
            hint=f"`run --role {profile.role}`, `certify --role {profile.role}` and `profile check` take it",
        )
    return profile


def load_any(name: str) -> AnyProfile:
    """The shipped profile of that name, or the one in the file `name`, whose relative paths are beside that file.

    Its key `role` says whose it is. Raises `UnknownNameError` if there is neither, `FileError` if it is wrong.
    """
    known = shipped()
    if name in known:
        return _of_its_role(known[name], f"{name} (shipped)")[0]
    path = Path(name)
    if not path.exists() and "/" not in name and not name.endswith((".yaml", ".yml")):
        raise UnknownNameError("profile", name, known, hint=_profile_hint(name, known))
    if path.is_dir():
        raise UsageError(f"{name} is a folder", hint="name the profile's file in it")
    found, document = _of_its_role(path, name)
    return placed(found, document, path.parent)


def placed(found: AnyProfile, document: Document, folder: Path) -> AnyProfile:
    """The profile `found` in `document`, a file in `folder`, with its relative paths beside that file.

    Raises `FileError` for what it names and can't be there: files, folders, an address.
    """
    profile = found.beside(folder)
    if wrong := tuple(_out_of_place(document, profile)):
        raise FileError(wrong)
    return profile


def json_schema(role: str = "epp") -> dict[str, Any]:
    """The JSON Schema of profile files, of endpoint pickers or of gateways."""
    schema = PROFILES[role].model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "EPP conformance profile"}


def _profile_hint(name: str, known: Mapping[str, Traversable]) -> str:
    best = nearest(name, known)
    return f"did you mean {best!r}?" if best else f"a file, or one of: {', '.join(known)}"


def _of_its_role(source: Traversable, name: str) -> tuple[AnyProfile, Document]:
    try:
        document = parse(source, name=name)
    except FileError:
        load(source, Profile, name=name)  # tells what else is wrong with it
        raise
    role = document.data.get("role", "epp") if isinstance(document.data, Mapping) else "epp"
    if not isinstance(role, str) or role not in PROFILES:
        raise FileError([document.problem(("role",), f"{role!r} is no role", did_you_mean(str(role), PROFILES))])
    return document.validate(PROFILES[role]), document


def _out_of_place(document: Document, profile: AnyProfile) -> Iterator[Problem]:
    """What a profile names that can't be there: files, folders, an address. Its paths are absolute by now."""
    workdir = profile.start.workdir
    if workdir is not None and (missing := no_folder(workdir)):
        yield document.problem(("start", "workdir"), missing)
    for place, what, hint in profile.out_of_place():
        yield document.problem(place, what, hint)


# -- what --epp says ---------------------------------------------------------------------------------------------------


def _started(profile: Profile) -> Profile:
    if not profile.started_by_us and "{" in profile.address:
        raise UsageError(
            f"the profile {profile.name or ''} says neither how the target is started nor where it runs".replace(
                "  ", " "
            ),
            hint="add start.command to it, or give --epp HOST:PORT or --epp 'cmd:…'",
        )
    return profile


def _named(epp: str, base: Profile | None, overrides: Overrides) -> Profile:
    if epp == REFERENCE:
        if base is not None:
            raise UsageError("--epp reference has its own profile", hint="leave --epp or --profile out")
        return load_profile(REFERENCE)
    scheme, colon, rest = epp.partition(":")
    if colon and scheme == "cmd":
        start = command_start(rest)
        return _with_start(epp, base, start, overrides, text=rest, address=_own_socket(rest))
    if colon and scheme == "python":
        from conformance.targets.resolve_python import python_start

        start = python_start(rest)
        text = " ".join(start.command or ())
        found = _with_start(epp, base, start, overrides, text=text, address=_own_socket(text))
        named = found.implementation.project or rest.partition(":")[0]
        return found.model_copy(update={"implementation": found.implementation.model_copy(update={"project": named})})
    if colon and scheme == "image":
        if not rest.strip():
            raise UsageError("image: needs the name of an image", hint="for example --epp image:registry/epp@sha256:…")
        return _with_start(epp, base, Start(image=rest.strip()), overrides, text="")
    if epp.startswith(UNIX):
        return _with_start(epp, base, Start(), overrides, text="", address=_socket(epp))
    if is_address(epp):
        return _with_start(epp, base, Start(), overrides, text="", address=epp)
    program = (epp.split() or [""])[0]
    if Path(program).is_file() or (program != epp and shutil.which(program)):
        flags = "" if "{" in epp else " --port {port} --endpoints {endpointsFile}"
        raise UsageError(
            f"--epp {epp!r} is no kind of target", hint=f"a program is started with --epp 'cmd:{epp}{flags}'"
        )
    if not colon and (epp == "localhost" or re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", epp)):
        raise UsageError(f"--epp {epp}: the port is missing", hint=f"for example --epp {epp}:9002")
    if colon and is_address(bare := epp.partition("://")[2].rstrip("/")):
        raise UsageError(f"--epp {epp!r} is no kind of target", hint=f"it speaks gRPC, at an address: --epp {bare}")
    if re.fullmatch(r"[^:/\s]+:[0-9]+", epp):
        raise UsageError(f"--epp {epp}: there is no port {rest}", hint="ports are 1 to 65535")
    best = nearest(scheme, ["reference", "cmd", "image", "python", "unix"])
    did_you_mean = f"did you mean {best!r}? " if best else ""
    raise UsageError(f"--epp {epp!r} is no kind of target", hint=f"{did_you_mean}known: {', '.join(KINDS)}")


def _own_socket(text: str) -> str | None:
    """The address of a command that listens on the socket `{socket}`; None if it has no such word."""
    return "unix:{socket}" if "{socket}" in text and "{port}" not in text else None


def _socket(epp: str) -> str:
    """`unix:/path`, absolute. Raises `UsageError`."""
    try:
        path = Path(socket_path(epp) or "").absolute()
    except BadAddress as problem:
        raise UsageError(f"--epp {epp}: {problem.what}", hint=problem.hint) from None
    if found := no_socket(f"{UNIX}{path}"):
        raise UsageError(f"--epp {epp}: {found}", hint=ITS_SOCKET)
    return f"{UNIX}{path}"


def _with_start(
    epp: str, base: Profile | None, start: Start, overrides: Overrides, *, text: str, address: str | None = None
) -> Profile:
    """`base`, or an empty profile, for a target that is started or reached as `--epp` says."""
    if base is None:
        discovery, env = _discovery(overrides, None) or _implied(text, epp), {}
        if "{kubeconfig}" in text or discovery.kubernetes is not None:
            env = {"KUBECONFIG": "{kubeconfig}"}
        base = Profile(name=epp, discovery=discovery, start=Start(env=env))
    args = base.start.args if start.image and base.start.image else ()  # it is run as the profile's image is
    kept = base.start.model_copy(update={"command": start.command, "image": start.image, "args": args, "versions": {}})
    return base.model_copy(update={"start": kept, **({"address": address} if address else {})})


def _implied(text: str, epp: str) -> Discovery:
    """How a target without a profile learns its pool, from the placeholders of its command."""
    if "{endpointsFile}" in text:
        return Discovery(file=File())
    if any(placeholder in text for placeholder in ("{kubeconfig}", "{pool}", "{namespace}")):
        return Discovery(kubernetes=Kubernetes())
    how = (
        "--endpoints 127.0.0.1:8001,127.0.0.1:8002 (it knows them), --endpoints-file PATH (it reads them there) "
        "or --profile FILE"
    )
    if epp.startswith("cmd:"):
        how = f"{{endpointsFile}} or {{kubeconfig}} in the command, {how}"
    if epp.startswith("image:"):  # without arguments it can't be told a port either
        how = "--profile FILE with `start.image`, its arguments in `start.args`, and `discovery`"
    if epp.startswith("python:"):
        how = f"the function a parameter `endpoints_file` or `kubeconfig`, {how}"
    raise UsageError(f"nothing says how the target {epp} learns its pool", hint=f"give {how}")


def _discovery(overrides: Overrides, profile: Profile | None) -> Discovery | None:
    scrapes = profile.discovery.scrapes if profile is not None else True
    if overrides.endpoints and overrides.endpoints_file is not None:
        raise UsageError("--endpoints and --endpoints-file exclude each other")
    if overrides.endpoints:
        return Discovery(fixed=Fixed(endpoints=endpoints_of("--endpoints", overrides.endpoints)), scrapes=scrapes)
    if overrides.endpoints_file is not None:
        path = overrides.endpoints_file.absolute()
        if path.is_dir() or not path.parent.is_dir():
            what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
            raise UsageError(f"--endpoints-file {path} {what}", hint="name the file that the target watches")
        file = profile.discovery.file if profile is not None else None
        return Discovery(file=(file or File()).model_copy(update={"path": str(path)}), scrapes=scrapes)
    return None


def endpoints_of(flag: str, given: Sequence[str]) -> tuple[str, ...]:
    """The endpoints that a flag names, one or several at a time. Raises `UsageError`."""
    try:
        return distinct(part.strip() for one in given for part in one.split(","))
    except ValueError as problem:
        raise UsageError(f"{flag}: {problem}") from None


def _body_modes(given: Sequence[str]) -> tuple[BodyMode, ...]:
    found: list[BodyMode] = []
    for text in given:
        mode = next((one for one in BODY_MODES if one == text), None)
        if mode is None:
            raise UnknownNameError("body mode", text, BODY_MODES)
        if mode not in found:
            found.append(mode)
    return tuple(found)


def _tls(tls: Tls, overrides: Overrides) -> Tls:
    mode = overrides.tls or ("verified" if overrides.ca is not None else tls.mode)
    if mode not in ("plaintext", "unverified", "verified"):
        raise UnknownNameError("TLS mode", mode, ("plaintext", "unverified", "verified"))
    ca = str(overrides.ca.absolute()) if overrides.ca is not None else tls.ca if mode == "verified" else None
    if overrides.ca is not None and (wrong := no_authority(overrides.ca)):
        raise UsageError(f"--ca: {wrong}")
    try:
        return Tls(mode=mode, ca=ca, cert=tls.cert, key=tls.key, server_name=tls.server_name)
    except pydantic.ValidationError as problem:
        what = str(problem.errors()[0]["msg"]).removeprefix("Value error, ")
        raise UsageError(f"--tls {mode}: {what}", hint="--ca goes with --tls verified") from None


def _program(binary: str) -> str:
    """A path that holds wherever the target is started."""
    return str(Path(binary).absolute()) if "/" in binary or Path(binary).exists() else binary
