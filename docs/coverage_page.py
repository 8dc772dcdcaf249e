"""The page `coverage.md`: which pairs the covering arrays cover, and with what chance a picker passes by luck."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from page import page, table

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.chance import by_scenario
from conformance.scenario.loader import STRENGTH, Instance, rows
from conformance.scenario.schema import Scenario

PAIRS = """
A rule may be broken for one kind of request only: for chat requests that stream, or for bodies that end with trailers.
Most such paths in an endpoint picker depend on one or two properties of the request. So the scenarios below are run for
rows chosen from all combinations of their variables, such that any two values of two variables meet in at least one
row: a covering array of strength 2, as in combinatorial testing. It is made when the scenario file is loaded
(`combine: pairs`, `conformance/scenario/covering.py`): in each step the row that covers most of the pairs that are
left, the first of several. There is no chance in it: the same file gives the same rows.

Every row is run in every version of the protocol, and in the target's first body mode. For its other modes there are
rows of strength 1 (`combine: each`): each value is in one, so it meets every body mode. `explain` lists the rows of a
scenario, `list` those of many; `--scenario` runs some of them:

```sh
epp-conformance explain kinds.endpoint
epp-conformance list --scenario 'kinds.*' --format json
epp-conformance run --scenario 'kinds.endpoint[method=GET,*'
```
"""

LUCK = """
An endpoint picker that ignores a rule may still pick what the rule allows. The chance of that is computed from what a
scenario says: its pool, the subset hints in their order, and how often it asks (`conformance/scenario/chance.py`). Two
pickers stand for all that ignore a rule. One picks at random among the endpoints that it considers without the rule:
the table has its chance to pass all of the scenario, whose instances are taken together. One always names the same
endpoint: none passes all scenarios of a rule, as the pods are asked for in turn. A test holds each chance at 10⁻⁶ or
less, in every version.

*Considered* are, without the rule: for a rule about the subset every ready endpoint of the pool; for EPP-SUB-06 every
port of the addresses in the subset; for EPP-DEST-06 every pod that the endpoint picker ever saw. Whatever else a
scenario expects, an error for example, can only make the chance smaller and is not counted.
"""


def coverage(catalogue: Catalogue, instances: Sequence[Instance]) -> str:
    """The page."""
    epp = [one for one in instances if one.role == "epp" and one.scenario.stimulus == "contract"]
    crossed: dict[str, list[Scenario]] = {}
    for scenario in {one.group: one.scenario for one in epp if one.scenario.combine != "all"}.values():
        key = json.dumps([scenario.combine, scenario.matrix, scenario.without])
        crossed.setdefault(key, []).append(scenario)
    parts = [_crossed(scenarios) for scenarios in crossed.values()]
    return page(
        "Coverage",
        "What the suite does so that a rule that is broken somewhere is seen to be broken: kinds of request crossed "
        "with rules, and nothing left to luck. [Which sentences of which document are tested](requirements.md).",
        "## Kinds of request, crossed with rules",
        PAIRS.strip(),
        *parts,
        "## What luck passes",
        LUCK.strip(),
        _chances(catalogue, epp),
    )


def _crossed(scenarios: Sequence[Scenario]) -> str:
    """Scenarios that have the same matrix."""
    one = scenarios[0]
    chosen, allowed = rows(one.matrix, one.without, one.combine), rows(one.matrix, one.without)
    strength = STRENGTH[one.combine]
    values = [(f"`{name}`", ", ".join(f"`{_value(value)}`" for value in found)) for name, found in one.matrix.items()]
    rules = [
        (f"`{scenario.id}`", f"{scenario.title}.", ", ".join(map(_link, sorted(scenario.requirements))))
        for scenario in scenarios
    ]
    everything = math.prod(len(found) for found in one.matrix.values())
    covered, possible = _meetings(chosen, strength), _meetings(allowed, strength)
    what = "values" if strength == 1 else "pairs of values"
    left = [" and ".join(f"`{name}` {_values(found)}" for name, found in row.items()) for row in one.without]
    return "\n\n".join(
        (
            "### " + " and ".join(f"`{scenario.id}`" for scenario in scenarios),
            table(("scenario", "rule", "requirements"), rules),
            table(("variable", "values"), values),
            "Left out, as no client sends it, or as it says the same again:",
            "\n".join(f"- {text}" for text in left),
            f"Of {everything} combinations {len(allowed)} remain. {len(chosen)} rows cover {len(covered & possible)} "
            f"of the {len(possible)} {what} that they have:",
            table(tuple(one.matrix), [[f"`{_value(row[name])}`" for name in one.matrix] for row in chosen]),
        )
    )


def _meetings(found: Iterable[Mapping[str, Any]], strength: int) -> set[tuple[tuple[str, str], ...]]:
    """The values of any `strength` variables that meet in a row."""
    named = ([(name, _value(value)) for name, value in row.items()] for row in found)
    return {meeting for row in named for meeting in combinations(row, strength)}


def _values(found: Sequence[Any]) -> str:
    return " or ".join(f"`{_value(value)}`" for value in found)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(", ", ": "))


def _chances(catalogue: Catalogue, instances: Sequence[Instance]) -> str:
    titles = {one.id: one.title for one in catalogue}
    found = [
        (_link(one.requirement), f"{titles[one.requirement]}.", f"`{one.scenario}`", str(one.picks), _power(one.chance))
        for one in by_scenario(instances)
    ]
    return table(("requirement", "", "scenario", "picks", "chance"), found)


def _link(requirement: str) -> str:
    return f"[{requirement}](requirements.md)"


def _power(value: float) -> str:
    """`6.3 · 10⁻⁷`; 0 for none."""
    if not value:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits} · 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
