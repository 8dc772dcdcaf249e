"""Placeholders of a profile, and what fills them."""

from __future__ import annotations

import dataclasses
import re
import secrets
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.errors import UsageError, did_you_mean
from conformance.targets.ports import free_ports
from conformance.targets.profile import Profile, Start, is_address
from ext_proc.http2.address import UNIX

_PLACEHOLDER = re.compile(r"\{([a-zA-Z]+[0-9]?)\}")
PORTS = ("port", "healthPort", "metricsPort")
NAMES = (
    *PORTS,
    "socket",
    "endpointsFile",
    "reporterConfig",
    "kubeconfig",
    "namespace",
    "pool",
    "binary",
    "version",
    "workdir",
    "python",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a target is started for one protocol version, every placeholder filled in."""

    command: tuple[str, ...]
    """Program and arguments; for an image its arguments alone."""
    image: str | None
    env: Mapping[str, str]
    address: str
    health_address: str | None
    values: Mapping[str, str]


_MISSING = {"binary": "give it with --binary", "endpointsFile": "the profile's discovery is not a file"}


def fill(
    text: str,
    values: Mapping[str, str],
    where: str,
    *,
    names: Sequence[str] = NAMES,
    missing: Mapping[str, str] = _MISSING,
) -> str:
    """`text` with its placeholders replaced. Raises `UsageError` for one that does not exist or has no value here.

    `names` are those that exist, `missing` says what to do about one without a value.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return values[name]
        if name in names:
            hint = missing.get(name, "the profile's discovery is not Kubernetes")
            raise UsageError(f"{where}: nothing fills {{{name}}}", hint=hint)
        raise UsageError(f"{where}: there is no placeholder {{{name}}}", hint=did_you_mean(name, names))

    return _PLACEHOLDER.sub(value, text)


def launch(profile: Profile, version: str, values: Mapping[str, str]) -> Launch:
    """How to start `profile` for `version`; `values` has what the discovery and the command line give."""
    values = {**{name: str(port) for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)}, **values}
    values = {"socket": _free_socket(values.get("workdir")), **values}
    values |= {"version": version, "python": sys.executable}
    start = profile.start
    variant = start.versions.get(version)
    way = variant if variant is not None and (variant.command or variant.image) else start
    args = variant.args if variant is not None and variant.args is not None else start.args
    env = {**start.env, **(variant.env if variant else {})}
    address = fill(profile.address, values, "address")
    if address.startswith(UNIX) and not is_address(address):  # known now, and not when the target fails to bind it
        what = f"the target can't listen on {address}"
        raise UsageError(what, hint="a Unix socket's path has at most 107 bytes: is TMPDIR a short path?")
    return Launch(
        command=tuple(fill(word, values, "start.command") for word in (*(way.command or ()), *args)),
        image=way.image and fill(way.image, values, "start.image"),
        env={name: fill(value, values, f"start.env.{name}") for name, value in env.items()},
        address=address,
        health_address=profile.ready.health_address
        and fill(profile.ready.health_address, values, "ready.healthAddress"),
        values=values,
    )


def in_bridge(profile: Profile, version: str) -> bool:
    """Whether the target runs in a container with its own network."""
    variant = profile.start.versions.get(version)
    way = variant if variant is not None and (variant.command or variant.image) else profile.start
    return way.image is not None and profile.start.network == "bridge"


def _free_socket(folder: str | None) -> str:
    """The path of a Unix socket that is not there yet."""
    return str(Path(folder or tempfile.gettempdir()) / f"{secrets.token_hex(4)}.sock")


def command_start(text: str) -> Start:
    """The `start` of a target given as `cmd:…` on the command line, split as a shell would."""
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError(f"cmd:{text}: {problem}", hint="check the quotes") from problem
    if not words:
        raise UsageError("cmd: needs a command", hint="for example --epp 'cmd:./my-epp --port {port}'")
    return Start(command=tuple(words))
