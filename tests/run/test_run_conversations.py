"""Conversations by property: how many are tried, which are fair, and what a failure is shrunk to."""

from __future__ import annotations

import pytest

from conformance.events import ScenarioFinished
from conformance.outcome import ScenarioResult
from conformance.planning.plan import Work
from conformance.planning.results import GENERATED_ID as ID
from conformance.requirements.catalogue import Catalogue
from conformance.run.conversations import Exploration, explore
from conformance.scenario.loader import load
from conformance.scenario.schema import BodyMode, Exchange
from conformance.verdict import Finding, Verdict

pytestmark = pytest.mark.program

MODES: tuple[BodyMode, ...] = ("full-duplex", "buffered")
PODS = ("a", "b", "c")


def judged(work: Work, verdict: Verdict, *, broken: dict[str, int | None] | None = None) -> ScenarioFinished:
    result = ScenarioResult(
        version=work.version,
        id=work.id,
        scenario=work.id,
        title=work.instance.scenario.title,
        section=work.instance.section,
        requirements=work.instance.scenario.requirements,
        mode=work.mode,
        verdict=verdict,
        findings=tuple(
            Finding(requirement=name, verdict=verdict, seq=seq) for name, seq in (broken or {"ENV-16": None}).items()
        ),
        reason="no answer" if verdict is Verdict.FAIL else "",
    )
    return ScenarioFinished(result=result)


def tried(
    breaks=lambda exchange: False,
    *,
    examples: int = 60,
    ends: bool = False,
    known: tuple[str, ...] = (),
    broken: dict[str, int | None] | None = None,
) -> tuple[Exploration, list[tuple[BodyMode, Exchange]]]:
    """What comes of exploring a target that breaks ENV-16, or those in `broken` at the given entries, in exchanges of
    which `breaks` is true, or in the end."""
    seen: list[tuple[BodyMode, Exchange]] = []

    def run(work: Work) -> ScenarioFinished:
        exchange = work.instance.scenario.steps[0].exchange
        assert exchange is not None
        assert work.mode != ""
        seen.append((work.mode, exchange))
        return judged(work, Verdict.FAIL if breaks(exchange) else Verdict.PASS, broken=broken)

    def told_again(work: Work, before: ScenarioFinished) -> ScenarioFinished | None:
        assert before.result.id == work.id
        return judged(work, Verdict.FAIL) if ends else None

    catalogue = Catalogue.load()
    found = explore(run, told_again, catalogue, "1.0.0", MODES, examples=examples, seed=7, pods=PODS, known=known)
    return found, seen


def test_as_many_as_asked_for_and_the_result_says_how_many():
    exploration, seen = tried(examples=30)
    assert len(seen) == exploration.examples == 30
    result = exploration.judged("1.0.0", 7).result
    assert (result.id, result.verdict, result.reason) == (ID, Verdict.PASS, "30 conversations, seed 7")
    assert exploration.scenario_file is None


def test_the_same_seed_gives_the_same_conversations():
    assert tried()[1] == tried()[1]


def test_a_data_plane_that_does_not_say_its_modes_has_but_one():
    _, seen = tried(examples=300)
    unsaid = [mode for mode, exchange in seen if exchange.protocol_config == "absent"]
    assert unsaid
    assert set(unsaid) == {MODES[0]}


def test_a_failure_is_shrunk_and_saved_as_a_scenario(tmp_path):
    exploration, _ = tried(lambda exchange: exchange.method == "GET" and exchange.http == 2, examples=5000)
    result = exploration.judged("1.0.0", 7).result
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("no answer (in the shortest of ")
    assert exploration.scenario_file is not None
    (tmp_path / "found.yaml").write_text(exploration.scenario_file)
    found = [one for one in load(Catalogue.load(), [tmp_path]) if one.section == "generated"]
    assert [one.scenario.requirements for one in found] == [("ENV-16",)]
    assert found[0].scenario.steps[0].exchange == Exchange(method="GET", http=2)


def test_known_failures_are_not_found_again():
    exploration, seen = tried(lambda _: True, examples=9, known=("ENV-16",), ends=True)
    assert (exploration.failure, len(seen)) == (None, 9)


@pytest.mark.parametrize(
    ("broken", "found"),
    [({"ENV-06": 5, "ENV-26": 5}, set()), ({"ENV-06": 5, "ENV-26": 7}, {"ENV-26"}), ({"ENV-26": None}, {"ENV-26"})],
)
def test_a_known_failure_explains_others_at_the_same_entry(broken, found):
    """An EPP that never answers trailers answers none with an unknown field either."""
    exploration, _ = tried(lambda _: True, examples=9, known=("ENV-06",), broken=broken)
    assert {name for one in [exploration.scenario] if one is not None for name in one.requirements} == found


def test_a_target_that_ends_after_the_last_one_fails():
    exploration, seen = tried(examples=9, ends=True)
    assert exploration.judged("1.0.0", 7).result.verdict is Verdict.FAIL
    assert exploration.scenario is not None
    assert exploration.scenario.steps[0].exchange == seen[-1][1]
