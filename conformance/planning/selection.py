"""From the flags of a face to the selection of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.errors import UsageError
from conformance.planning.plan import Selection
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from conformance.strict_yaml import read_text
from conformance.targets.flags import SelectionFlags


def selection(what: SelectionFlags) -> Selection:
    """The selection that the flags name; requirements may be given by an alias, levels in small letters."""
    catalogue = Catalogue.load()
    return Selection(
        scenarios=tuple(_patterns(what.scenario or ())),
        exclude=tuple(_patterns(what.exclude or ())),
        requirements=tuple(catalogue.get(name).id for name in what.requirement or ()),
        levels=tuple(name.upper() for name in what.level or ()),
        sections=tuple(section_name(name) for name in what.section or ()),
        smoke=what.smoke,
        slow=what.slow,
    )


def section_name(name: str) -> str:
    """A section of a document or of scenarios as scenario files write it: `Endpoint Subset` is `endpoint-subset`."""
    return "-".join(name.lower().split())


def check_smoke(what: Selection, instances: Sequence[Instance], catalogue: Catalogue) -> None:
    """Raise `UsageError` if the smoke set and what else is selected have no scenario in common."""
    if not what.smoke or any(what.admits(one, catalogue) for one in instances):
        return
    others = dataclasses.replace(what, smoke=False)
    without = list(dict.fromkeys(one.group for one in instances if others.admits(one, catalogue)))
    if without:
        named = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        raise UsageError(
            f"--smoke takes only what is in the smoke set, and none of this is: {named}",
            hint="leave out --smoke; `epp-conformance list --smoke` shows the set",
        )


def _patterns(given: Sequence[str]) -> Iterator[str]:
    """Ids and globs as given; `@FILE` stands for those in a file, one a line, `#` begins a comment."""
    for one in given:
        if not one.startswith("@"):
            yield one
            continue
        lines = read_text(Path(one[1:]), one[1:]).splitlines()
        names = [name for line in lines if (name := line.partition("#")[0].strip())]
        if not names:
            raise UsageError(f"{one}: the file names no scenario", hint="one id or glob a line")
        yield from names
