"""What the shell is offered: ids, profiles, sections, modes. Called by the shell's completion, never by a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args


def scenarios() -> Iterator[str]:
    """Ids of scenarios."""
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load

    return (one.group for one in load(Catalogue.load()))


def requirements() -> Iterable[str]:
    """Ids of requirements."""
    from conformance.requirements.catalogue import Catalogue

    return Catalogue.load().requirements


def sections() -> Iterator[str]:
    """Sections of scenarios."""
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load

    return (one.section for one in load(Catalogue.load()))


def levels() -> Iterator[str]:
    """Levels of requirements."""
    from conformance.requirements.catalogue import Catalogue

    return (one.level for one in Catalogue.load())


def profiles() -> Iterable[str]:
    """Profiles that come with the suite."""
    from conformance.targets.resolve import shipped

    return shipped()


def body_modes() -> Iterable[str]:
    """Body modes."""
    from conformance.targets.resolve import BODY_MODES

    return BODY_MODES


def versions() -> Iterable[str]:
    """Protocol versions."""
    from conformance.requirements.schema import VERSIONS

    return (*VERSIONS, "all")


def data_planes() -> Iterator[str]:
    """What can carry requests to a target."""
    from real_envoy.variants import VARIANTS

    yield from ("fake", "envoy")
    yield from (f"envoy:{name}" for name in VARIANTS)


def deviations() -> Iterator[str]:
    """Faults and variants of the selftest."""
    from conformance.scenario.schema import Role
    from conformance.selftest.deviation import deviations as listed

    return (one.name for role in get_args(Role) for kind in ("faults", "variants") for one in listed(kind, role))


OFFERED: dict[str, Callable[[], Iterable[str]]] = {
    "scenario": scenarios,
    "exclude": scenarios,
    "requirement": requirements,
    "level": levels,
    "section": sections,
    "profile": profiles,
    "body_mode": body_modes,
    "protocol_version": versions,
    "data_plane": data_planes,
    "epp": lambda: ("reference", "cmd:", "python:", "unix:", "image:"),
    "tls": lambda: ("plaintext", "unverified", "verified", "self-signed"),
}
"""What the flags of a target and of a selection are offered, by their names."""


def offering(*sources: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion for typer: what `sources` have that begins with what is typed."""

    def complete(incomplete: str) -> list[str]:
        found = dict.fromkeys(name for source in sources for name in source())
        return [name for name in found if name.startswith(incomplete)]

    return complete
