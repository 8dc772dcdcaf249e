"""The page that proposes the profile to upstream: short enough for an issue, its facts from the catalogue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from page import page, table

from conformance.requirements.catalogue import Catalogue, Requirement
from conformance.scenario.loader import Instance

VERSION = "1.0.0"
READINGS = Path(__file__).parent / "explanation" / "readings.md"

INTRODUCTION = """
GIE's folder of conformance reports draws `epp` as a future profile, and GIE#753 asks for a vendor-neutral one that the
same black-box suite tests in all endpoint pickers (EPPs). This is a proposal for it: a list of requirements with ids,
their levels, how open sentences are read, and what is provisional. `epp-conformance` tests all of it without a cluster,
in about half a minute, and has done so on GIE's EPP 1.0 and 1.5.
"""

ASKED = """
1. Take the ids and levels below as the profile `EPP`, or say which should change. An id is never given to another
   thing.
2. Confirm or correct the readings. Where upstream says otherwise, the suite follows.
3. Say whether the second table, the rules of ext_proc, belongs to the profile. An EPP that breaks one of them fails
   behind Envoy, whatever it picks; here *conformant* needs both.
4. Accept reports under `conformance/reports/v<version>/epp/`, in the form of today's rules: `epp-conformance certify
   --pull-request DIR` writes them.
"""


def proposal(catalogue: Catalogue, instances: Sequence[Instance]) -> str:
    """The page."""
    ours = [one for one in catalogue.requirements.values() if one.role == "epp" and VERSION in one.effects]
    core = [one for one in ours if one.kind == "protocol" and not one.id.startswith("RAR")]
    carrier = [one for one in ours if one.kind == "ext_proc"]
    later = [
        one for one in catalogue.requirements.values() if one.role == "epp" and [*one.effects] == ["next"]
    ]  # fmt: skip
    counted = Counter(one.level for one in core)
    provisional = sorted({one.scenario.id for one in instances if one.role == "epp" and one.scenario.provisional})
    levels = ", ".join(f"{number} {level}" for level, number in counted.most_common())
    readings = _readings({one.id for one in core})
    return page(
        "Proposal to upstream: a profile for endpoint pickers",
        INTRODUCTION.strip(),
        "## What is asked of upstream",
        ASKED.strip(),
        f"## The profile: requirements of {VERSION}",
        f"{len(core)} requirements: {levels}. DERIVED follows from a MUST and is not written. The whole text of each, "
        "and how it is observed: `epp-conformance explain ID`.",
        table(("id", "level", "violation", "title"), [_row(one) for one in core]),
        "## Rules of ext_proc",
        table(("id", "violation", "title"), [(f"`{one.id}`", one.effects[VERSION], one.title) for one in carrier]),
        "## Readings to confirm",
        "What the text leaves open, as read here. [Why, for each](../explanation/readings.md).",
        table(("reading", "open", "read as", "used by"), readings),
        "## Provisional, and not in the profile",
        "New scenarios run and do not count for one release. Now: "
        f"{', '.join(f'`{one}`' for one in provisional) or 'none'}.",
        f"What upstream's main has beyond {VERSION} is tested as `next` and belongs to no numbered version: "
        f"{', '.join(f'`{one.id}`' for one in later)}. The request attribute reporter (RAR) has another document.",
    )


def _row(one: Requirement) -> tuple[str, str, str, str]:
    untested = " (can't be tested from outside)" if one.untestable else ""
    return f"`{one.id}`", one.level, one.effects[VERSION], one.title + untested


def _readings(ids: set[str]) -> list[tuple[str, str, str, str]]:
    """Those that a requirement of `ids` depends on."""
    rows = []
    for entry in re.split(r"^## ", READINGS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name = entry.split("\n")[0]
        part = {
            label: " ".join(text.split())
            for label, text in re.findall(r"\*\*(\w[\w ]*):\*\* (.*?)(?=\n\n|\Z)", entry, re.DOTALL)
        }
        used = [one for one in re.findall(r"[A-Z]+-[A-Z]+-\d\d", part.get("Used by", "")) if one in ids]
        if used:
            rows.append((name, part["Open"], part["Reading"], ", ".join(used)))
    return rows
