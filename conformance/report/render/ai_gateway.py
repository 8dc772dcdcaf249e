"""With which configurations of Envoy AI Gateway a target would work, as every form of the report says it."""

from __future__ import annotations

from typing import NamedTuple

from conformance.printable import plural
from conformance.report.document.failures import concerns
from conformance.report.document.model import Report

RARE = 10
"""A failure is rare if it was seen in no more than one of so many scenarios: other paths are served well."""

SOME = "no for some paths"


class Way(NamedTuple):
    """One way of configuring the gateway in words; `against` says which requirements stand against it."""

    what: str
    name: str
    works: str
    why: str
    against: tuple[str, ...]


def ways(report: Report) -> tuple[Way, ...]:
    """What the run has shown of each way, of the headline version; () for what is no endpoint picker."""
    headline = report.headline()
    if headline is None or (found := headline.envoy_ai_gateway) is None:
        return ()
    rare = _rare(report, headline.version)
    told: list[Way] = []
    for what, fits in (("routing", found.routing), ("request body", found.body_modes)):
        for one in fits:
            if one.works == "no" and one.requirements and rare.keys() >= {*one.requirements}:
                against = tuple(rare[name] for name in one.requirements)
                told.append(Way(what, one.way, SOME, f"it breaks {', '.join(against)}", against))
            else:
                told.append(Way(what, one.way, one.works, one.why, one.requirements))
    return tuple(told)


def ways_line(report: Report) -> str:
    """All of it on one line: `yes: override-host · no: original-dst (EPP-DEST-09)`."""
    every, parts = ways(report), []
    for works in ("yes", "no", SOME, "unknown"):
        found = [one for one in every if one.works == works]
        reason = (", " if works == SOME else " ").join(sorted({name for one in found for name in one.against}))
        if found:
            parts.append(f"{works}: {', '.join(one.name for one in found)}" + (f" ({reason})" if reason else ""))
    return " · ".join(parts)


def _rare(report: Report, version: str) -> dict[str, str]:
    """Of requirements that failed in few scenarios, in how many."""
    rows = report.results_of(version)
    failed = (one for one in concerns(report) if one.requirement.version == version)
    found = {one.requirement.id: len(one.occurrences) for one in failed}
    few = {name: count for name, count in found.items() if 0 < count * RARE <= len(rows)}
    return {name: f"{name} in {count} of {plural(len(rows), 'scenario')}" for name, count in few.items()}
