"""Faults and variants of the reference EPP, and of the gateway, as they list them: nothing of them is imported."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from conformance.errors import HarnessError, UnknownNameError, UsageError
from conformance.scenario.schema import BodyMode, Role

PREFERRED = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A fault or a variant of the reference EPP, or (`role` data-plane) of the gateway. A variant breaks nothing.

    Of an EPP: `modes` are the body modes it is tried in, `without` the claims that do not hold for it. Of a gateway:
    `claims` are what its profile says differently, `pools` how many it has, and `envoy` names the configuration of a
    real Envoy that it is.
    """

    name: str
    why: str
    versions: tuple[str, ...]
    modes: tuple[BodyMode, ...] = ()
    breaks: str | None = None
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: str = "fail"
    without: tuple[str, ...] = ()
    """Claims of the reference EPP that do not hold for it."""
    role: Role = "epp"
    claims: Mapping[str, Any] = field(default_factory=dict)
    pools: int = 1
    envoy: str | None = None
    noted: Mapping[str, str] = field(default_factory=dict)
    """What must be recorded of it, by requirement that only informs: words of the record."""
    overrides: frozenset[str] = frozenset()
    """What of the reference EPP it changes, as `Picker.rank`. Variants that have none in common can be tried as one."""
    members: tuple[Deviation, ...] = ()
    """The variants that are tried as this one."""
    unjudged: str = ""
    """Words of the reason for which some scenarios can't judge it; empty: all can."""

    @property
    def declared(self) -> frozenset[str]:
        """Every requirement that may be accused."""
        return frozenset(self.also_breaks) | ({self.breaks} if self.breaks is not None else set())

    @property
    def flags(self) -> list[str]:
        """What makes the program deviate so."""
        kind = "variant" if self.breaks is None else "fault"
        return [f"--{kind}={one.name}" for one in self.members or (self,)]

    @property
    def version(self) -> str:
        """The version it is tried in."""
        return PREFERRED if PREFERRED in self.versions else self.versions[-1]


PROGRAM: Mapping[Role, str] = {
    "epp": "reference_epp",
    "data-plane": "reference_gateway",
    "model-server": "fake_modelserver",
}
"""What lists its deviations, and plays them, by role."""


def deviations(kind: str, role: Role = "epp") -> tuple[Deviation, ...]:
    """The `faults` or `variants` of the reference EPP or the gateway, asked from its command line.

    Raises `HarnessError`.
    """
    command = [sys.executable, "-m", PROGRAM[role], f"--list-{kind}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if listed.returncode != 0:
        raise HarnessError(f"{PROGRAM[role]} does not list its {kind}: {listed.stderr.strip()[-500:]}")
    return tuple(_READ.get(role, _told)(role, entry) for entry in json.loads(listed.stdout))


def select(known: Sequence[Deviation], names: Iterable[str]) -> tuple[Deviation, ...]:
    """The deviations with these names; none given: all. Raises `UnknownNameError`."""
    wanted = tuple(names)
    for name in wanted:
        if name not in {one.name for one in known}:
            raise UnknownNameError("fault or variant", name, [one.name for one in known])
    return tuple(one for one in known if not wanted or one.name in wanted)


def part(known: Sequence[Deviation], share: str) -> tuple[Deviation, ...]:
    """The part `I/N` of the deviations, by their names; the parts 1/N to N/N are all. Raises `UsageError`."""
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", share)
    number, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= parts:
        raise UsageError(f"{share!r} is no part I/N", hint="for example 1/3, 2/3 or 3/3")
    return tuple(one for one in known if zlib.crc32(one.name.encode()) % parts == number - 1)


def places(known: Sequence[Deviation]) -> Mapping[str, str]:
    """Where each of the deviations is declared, as file:line from the root of the tree; nothing of them is imported."""
    found: dict[str, str] = {}
    for program in sorted({PROGRAM[one.role] for one in known}):
        spec = importlib.util.find_spec(program)
        folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
        names = {f'"{one.name}"': one.name for one in known if PROGRAM[one.role] == program}
        for path in sorted(folder.rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                for name in (names[text] for text in _QUOTED.findall(line) if text in names):
                    found.setdefault(name, f"{path.relative_to(folder.parent).as_posix()}:{number}")
    return found


_QUOTED = re.compile(r'"[^"]+"')


def _told(role: Role, entry: Mapping[str, Any]) -> Deviation:
    rest = {name: value for name, value in entry.items() if name != "version"}
    return Deviation(**rest, versions=(entry["version"],), role=role)


def _of_an_epp(_: Role, entry: Mapping[str, Any]) -> Deviation:
    def texts(name: str) -> tuple[str, ...]:
        value = entry[name]
        assert isinstance(value, list)
        return tuple(str(item) for item in value)

    def pairs(name: str) -> dict[str, str]:
        value = entry.get(name) or {}
        assert isinstance(value, dict)
        return {str(key): str(item) for key, item in value.items()}

    breaks = entry.get("breaks")
    return Deviation(
        name=str(entry["name"]),
        why=str(entry["why"]),
        versions=texts("versions"),
        modes=tuple(mode for mode in get_args(BodyMode) if mode in texts("modes")),
        breaks=None if breaks is None else str(breaks),
        also_breaks=pairs("also_breaks"),
        effect=str(entry.get("effect", "fail")),
        without=texts("without") if "without" in entry else (),
        claims=entry["claims"],
        noted=pairs("noted"),
        overrides=frozenset(texts("overrides")),
    )


_READ: Mapping[Role, Callable[[Role, Mapping[str, Any]], Deviation]] = {"epp": _of_an_epp}
"""How an entry of a list is read, where it is not in the words of `Deviation`."""
