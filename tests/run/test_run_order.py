"""A scenario's verdict does not depend on what ran before it: in the order of the plan, in another, and alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from conformance.events import RunEvent
from conformance.planning.plan import Plan, Selection, make_plan
from conformance.run.session import RunSettings, run
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict

pytestmark = pytest.mark.program

SCENARIOS = (
    "destination.completion",
    "destination.fresh-per-request",
    "errors.recovers",
    "fallback.well-formed",
    "health.empty-pool",
    "pool.no-longer-ready",
    "pool.quiet-removal",
    "pool.removed",
    "subset.bodyless",
    "subset.ipv6",
    "subset.two-of-three",
    "transparency.headers",
)
BROKEN = (Verdict.FAIL, Verdict.WARN)
FAULTS = ("metadata-flat", "previous-destination", "refreshed-after-the-answer", "subset-ignored-for-bodyless")
"""Each fails in some of the scenarios only. Two keep something for the next request, none for the next pool."""


def verdicts(fault: str | None, *scenarios: str) -> dict[str, tuple[Verdict, set[str]]]:
    """By result: its verdict, and what it found broken if it is no pass: polls before it are judged with it."""
    profile = load_profile(REFERENCE).model_copy(update={"body_modes": ("full-duplex",)})
    if fault is not None:
        assert profile.start.command is not None
        start = profile.start.model_copy(update={"command": (*profile.start.command, f"--fault={fault}")})
        profile = profile.model_copy(update={"start": start})
    settings = RunSettings(profile=profile, selection=Selection(scenarios=scenarios), seed=1, jobs=1)
    events: list[RunEvent] = []
    outcome = run(settings, events.append)
    return {
        one.id: (
            one.verdict,
            {found.requirement for found in one.findings if found.verdict is one.verdict and found.verdict in BROKEN},
        )
        for one in outcome.versions[0].results
    }


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_in_every_order_and_alone(fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(fault)
    planned = verdicts(fault, *SCENARIOS)
    assert (fault is None) is all(verdict is Verdict.PASS for verdict, _ in planned.values())
    for name in chance.sample(sorted(planned), 3):
        assert verdicts(fault, name) == {name: planned[name]}

    def shuffled(*arguments: Any) -> Plan:
        plan = make_plan(*arguments)
        batches = [replace(one, work=tuple(chance.sample(one.work, len(one.work)))) for one in plan.batches]
        return replace(plan, batches=tuple(chance.sample(batches, len(batches))))

    monkeypatch.setattr("conformance.run.session.make_plan", shuffled)
    assert verdicts(fault, *SCENARIOS) == planned
