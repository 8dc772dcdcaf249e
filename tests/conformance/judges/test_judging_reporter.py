"""What is reported with a response: right where it looks wrong, and wrong where it looks right."""

from __future__ import annotations

import pytest
from scripted import BODY, Script, echo, headers_answer, streamed, trailers_answer, with_metadata

from conformance.evidence.episode import Claims, Expectation
from conformance.verdict import Verdict
from ext_proc.protocol import DESTINATION

A, OTHER = "10.0.0.1:8000", "10.0.0.2:8000"
SPACE = "envoy.lb"
EVENT = b'data: {"usage": {}}\n\n'


def reports(answer, value, key="x-total", space=SPACE):
    return with_metadata(answer, {space: {key: value}})


def episode(*answers, trailers=False, headers=None):
    """A stream with a response in two pieces, the last of them empty or trailers, and these answers to the pieces."""
    script = Script(pool={"a": A, "b": OTHER})
    one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A)
    one.response_headers(served=A, content_type="text/event-stream")
    one.answers(headers or headers_answer(side="response"))
    one.chunk(EVENT, side="response").answers(answers[0])
    if trailers:
        one.trailers(side="response")
    else:
        one.chunk(b"", side="response", end=True)
    one.answers(*answers[1:]).drained()
    return script


@pytest.fixture
def judged(ask):
    def judged(script, *accepted, requirement="RAR-EVAL-06", name="total", reporter=True):
        expectation = Expectation(report={name: accepted}, requirement=requirement)
        return ask(script, claims=Claims(reporter=reporter), expectations={"x1": expectation})

    return judged


def piece(end=False):
    return streamed(b"" if end else EVENT, side="response", end=end)


class TestTheValueThatStays:
    """Metadata of an answer stays until a later one overwrites it, so that an early value counts where none follows."""

    def test_a_value_on_an_early_answer_is_reported(self, judged):
        found = judged(episode(reports(piece(), 8), piece(end=True)), None)
        assert found["RAR-EVAL-06"] is Verdict.WARN
        assert "x-total: 8" in found.finding("RAR-EVAL-06").actual

    def test_so_is_one_on_the_answer_to_the_headers(self, judged):
        headers = reports(headers_answer(side="response"), 8)
        assert judged(episode(piece(), piece(end=True), headers=headers), None)["RAR-EVAL-06"] is Verdict.WARN

    def test_text_on_an_early_answer_is_no_number(self, judged):
        assert judged(episode(reports(piece(), "8"), piece(end=True)), None)["RAR-OUT-02"] is Verdict.WARN

    def test_a_right_value_that_may_be_left_out_is_right_on_any_answer(self, judged):
        found = judged(episode(reports(piece(), 8), piece(end=True)), 8, None)
        assert found["RAR-EVAL-06"] is Verdict.PASS
        assert found["RAR-OUT-01"] is None, "whether the end has it was not seen"

    def test_a_later_value_overwrites_it(self, judged):
        found = judged(episode(reports(piece(), 3), reports(piece(end=True), 8)), 8, requirement="RAR-OUT-01")
        assert not found.blamed
        assert found["RAR-OUT-01"] is Verdict.PASS

    def test_a_value_that_must_come_must_come_at_the_end(self, judged):
        found = judged(episode(reports(piece(), 8), piece(end=True)), 8)
        assert found.warned == {"RAR-OUT-01"}

    def test_nothing_is_nothing(self, judged):
        assert judged(episode(piece(), piece(end=True)), None)["RAR-EVAL-06"] is Verdict.PASS

    @pytest.mark.parametrize("place", [("x-total", "elsewhere"), ("x-other", SPACE)])
    def test_other_keys_and_namespaces_are_other_things(self, judged, place):
        script = episode(reports(piece(), 8, *place), piece(end=True))
        assert judged(script, None)["RAR-EVAL-06"] is Verdict.PASS


class TestTrailers:
    def test_the_last_body_answer_may_have_it(self, judged):
        script = episode(reports(piece(), 8), trailers_answer(side="response"), trailers=True)
        found = judged(script, 8, requirement="RAR-OUT-06")
        assert not found.blamed
        assert found["RAR-OUT-06"] is Verdict.PASS

    def test_the_trailers_answer_may_have_it(self, judged):
        script = episode(piece(), reports(trailers_answer(side="response"), 8), trailers=True)
        assert judged(script, 8, requirement="RAR-OUT-06")["RAR-OUT-06"] is Verdict.PASS

    def test_of_both_the_later_counts(self, judged):
        script = episode(reports(piece(), 8), reports(trailers_answer(side="response"), 9), trailers=True)
        assert judged(script, 8, requirement="RAR-OUT-06")["RAR-OUT-06"] is Verdict.WARN


class TestLeaving:
    """An EPP may close the stream once the request is on its way. One that claims the reporter can't report then."""

    def left(self, *, status=0):
        script = Script(pool={"a": A})
        script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A).closed(status)
        return script

    def test_what_must_be_reported_is_not(self, judged):
        found = judged(self.left(), 8, requirement="RAR-OUT-01")
        assert found.warned == {"RAR-OUT-01"}
        assert "closed the stream" in found.finding("RAR-OUT-01").actual

    def test_what_need_not_be_is_no_matter(self, judged):
        assert not judged(self.left(), 8, None).blamed

    def test_without_the_claim_leaving_is_right(self, judged):
        assert not judged(self.left(), 8, requirement="RAR-OUT-01", reporter=None).blamed

    def test_a_client_that_went_away_is_no_fault_of_the_epp(self, judged):
        script = Script(pool={"a": A})
        script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A).aborted("response")
        assert not judged(script, 8, requirement="RAR-OUT-01").blamed


class TestTheDestination:
    @pytest.mark.parametrize(("given", "verdict"), [(A, Verdict.PASS), (OTHER, Verdict.WARN)])
    def test_it_may_be_repeated_and_not_changed(self, judged, given, verdict):
        last = with_metadata(piece(end=True), {SPACE: {DESTINATION: given, "x-total": 8}})
        assert judged(episode(piece(), last), 8, requirement="RAR-OUT-01")["RAR-OUT-05"] is verdict
