"""What is counted, and what stands in the way of a result."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.outcome import ScenarioResult, requirement_results, version_outcome
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding, Result, Verdict


def one(verdict: Verdict, *requirements: str) -> ScenarioResult:
    return ScenarioResult(
        version="1.0.0",
        id="x.y",
        scenario="x.y",
        title="",
        section="",
        requirements=requirements,
        mode="full-duplex",
        verdict=verdict,
        findings=tuple(Finding(requirement=name, verdict=verdict) for name in requirements if verdict is Verdict.PASS),
    )


PASSED = one(Verdict.PASS, "EPP-DEST-01")


def test_only_requirements_of_the_version_are_blockers():
    """Streaming responses token by token is a rule of the next version, and a remark in 1.0.0."""
    catalogue = Catalogue.load()
    for version, blockers, result in (("1.0.0", (), Result.CONFORMANT), ("next", ("EPP-STRM-02",), Result.INCOMPLETE)):
        outcome = version_outcome(catalogue, version, [one(Verdict.SKIPPED, "EPP-STRM-02"), PASSED])
        assert outcome.blockers == blockers
        assert outcome.kinds["protocol"] is result


def test_a_kind_without_any_pass_is_incomplete():
    """Requirements that are attested block no result, and prove nothing."""
    outcome = version_outcome(Catalogue.load(), "1.0.0", [PASSED])
    assert outcome.kinds == {"protocol": Result.CONFORMANT, "ext_proc": Result.INCOMPLETE}


@pytest.mark.parametrize(
    ("verdict", "inherited"),
    [
        (Verdict.PASS, Verdict.SKIPPED),
        (Verdict.WARN, Verdict.SKIPPED),
        (Verdict.SKIPPED, Verdict.SKIPPED),
        (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (Verdict.ERROR, Verdict.ERROR),
        (Verdict.NOT_APPLICABLE, Verdict.NOT_APPLICABLE),
    ],
)
def test_a_requirement_without_a_finding_does_not_pass_with_its_scenario(verdict, inherited):
    told = Finding(requirement="ENV-09", verdict=verdict)
    result = dataclasses.replace(one(verdict, "ENV-09", "ENV-06"), findings=(told,), passed=())
    rows = {row.requirement.id: row.verdict for row in requirement_results(Catalogue.load(), "1.0.0", [result])}
    assert (rows["ENV-09"], rows["ENV-06"]) == (verdict, inherited)


def test_requirements_that_do_not_apply_have_a_reason():
    """The reason of scenarios that were left out if none was run, else that the condition did not arise."""
    catalogue = Catalogue.load()
    ran = dataclasses.replace(
        one(Verdict.NOT_APPLICABLE, "ENV-09"),
        findings=(Finding(requirement="ENV-09", verdict=Verdict.NOT_APPLICABLE),),
    )
    left_out = dataclasses.replace(one(Verdict.NOT_APPLICABLE, "ENV-06", "ENV-09"), reason="the profile says so")
    rows = {row.requirement.id: row.note for row in requirement_results(catalogue, "1.0.0", [ran, left_out, left_out])}
    assert (rows["ENV-06"], rows["ENV-09"]) == ("the profile says so", "its condition did not arise")
