"""Judges of whole episodes (health, streaming), and how rulings become findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted import BODY, Script, echo, headers_answer, immediate

import conformance
from conformance.evidence.episode import Expectation, HarnessTrouble, Unmet
from conformance.judges import JUDGES, places
from conformance.verdict import Verdict
from ext_proc.record import Author, Malformed

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = {"a": A, "b": B}
PROXY = Author.DATA_PLANE
EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"


def good(script, **exchange):
    script.exchange(**exchange).request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
    return script


class TestHealth:
    def test_right(self, ask):
        script = Script().probe("liveness", "SERVING", synced=False).probe("readiness", "NOT_SERVING", synced=False)
        script.probe(EXT_PROC, "NOT_SERVING", synced=False).probe("readiness", "SERVING", synced=True)
        script.probe(EXT_PROC, "SERVING", synced=True).probe("", "SERVING").probe("nonsense", None, status=5)
        verdicts = ask(good(script), "next")
        assert verdicts.blamed == set()
        assert all(verdicts[f"EPP-HLTH-0{number}"] is Verdict.PASS for number in (1, 2, 3, 4))
        assert verdicts["EPP-HLTH-05"] is Verdict.NOT_APPLICABLE

    def test_before_next_nothing_is_judged(self, ask):
        assert ask(Script().probe("liveness", None, status=12)).findings == ()

    def test_no_health_service_is_one_finding(self, ask):
        script = Script().probe("liveness", None, status=12).probe("readiness", None, status=12)
        assert ask(script, "next").blamed == {"EPP-HLTH-01"}

    @pytest.mark.parametrize("service", ["", "no.such.Service"])
    def test_a_name_of_no_service_says_nothing_of_health_checks(self, ask, service):
        verdicts = ask(Script().probe(service, None, status=12), "next")
        assert verdicts.blamed == set()
        assert verdicts["EPP-HLTH-01"] is not Verdict.PASS

    def test_liveness(self, ask):
        script = Script().probe("readiness", "NOT_SERVING", synced=False)
        assert ask(script.probe("liveness", "NOT_SERVING", synced=False), "next").blamed == {"EPP-HLTH-02"}
        script = Script().probe("readiness", "SERVING", synced=True)
        assert ask(script.probe("liveness", None, status=5), "next").blamed == {"EPP-HLTH-02"}

    @pytest.mark.parametrize(("synced", "message"), [(True, "NOT_SERVING"), (False, "SERVING"), (True, None)])
    def test_readiness(self, ask, synced, message):
        script = (
            Script().probe("liveness", "SERVING").probe("readiness", message, synced=synced, status=0 if message else 5)
        )
        found = ask(script, "next")
        assert found.blamed == {"EPP-HLTH-03"}
        assert bool(found.finding("EPP-HLTH-03").hint) == (not synced)  # the common cause is that of the other breach

    def test_readiness_of_an_unknown_pool_is_not_judged(self, ask):
        assert ask(Script().probe("readiness", "NOT_SERVING"), "next").blamed == set()

    def test_the_services_own_name_follows_readiness(self, ask):
        script = Script().probe("readiness", "NOT_SERVING", synced=False).probe(EXT_PROC, "SERVING", synced=False)
        assert ask(script, "next").blamed == {"EPP-HLTH-04"}
        script = Script().probe("readiness", "SERVING", synced=False).probe(EXT_PROC, "SERVING", synced=False)
        assert ask(script, "next").blamed == {"EPP-HLTH-03"}
        assert ask(Script().probe(EXT_PROC, "NOT_SERVING", synced=True), "next").blamed == {"EPP-HLTH-04"}

    def test_ready_and_yet_unavailable(self, ask):
        script = Script(pool=POOL).probe("readiness", "SERVING", synced=True)
        script.exchange().request(BODY).closed(14)
        assert ask(script, "next").failed == {"EPP-HLTH-06"}

    def test_expected_statuses(self, ask):
        script = Script().probe("", "SERVICE_UNKNOWN")
        for health, blamed in ((("not-found", "service-unknown"), set()), (("serving",), {"EPP-HLTH-02"})):
            expectations = {"probe-1": Expectation(health=health, requirement="EPP-HLTH-02")}
            assert ask(script, "next", expectations=expectations).blamed == blamed

    def test_an_expectation_is_about_the_service_that_is_asked(self, ask):
        script = Script().probe(EXT_PROC, "SERVING")
        expectations = {"probe-1": Expectation(health=("NOT_SERVING",))}
        named = ("EPP-HLTH-02", "EPP-HLTH-04")
        assert ask(script, "next", requirements=named, expectations=expectations).failed == {"EPP-HLTH-04"}


class TestStreaming:
    def script(self, echo_outcome, content_type="text/event-stream; charset=utf-8", value_field="raw_value"):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY))
        one.response_headers(content_type=content_type, value_field=value_field)
        one.answers(headers_answer(side="response"))
        events = [b"data: %d\n\n" % number for number in range(3)]
        for event in events:
            one.chunk(event, side="response")
            if echo_outcome == "met":
                one.answers(*echo(event, side="response", end=False))
            one.waited("echo of response body through byte 9", echo_outcome, 1.0)
        one.chunk(b"", side="response", end=True)
        rest = b"" if echo_outcome == "met" else b"".join(events)
        one.answers(*echo(rest, side="response")).drained()
        return script

    def test_events_that_come_back(self, ask):
        assert ask(self.script("met"), "next")["EPP-STRM-02"] is Verdict.PASS

    def test_events_that_are_held_back(self, ask):
        assert ask(self.script("expired"), "next").blamed == {"EPP-STRM-02"}
        assert ask(self.script("expired"), "1.0.0").blamed == set()

    def test_other_responses_may_be_held_back(self, ask):
        assert ask(self.script("expired", "application/json"), "next").blamed == set()

    def test_a_content_type_in_the_old_field(self, ask):
        verdicts = ask(self.script("expired", value_field="value"), "next")
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-STRM-02"})


class TestWhatIsNoMessage:
    """The data plane says what is none: the EPP may end the stream, and no more than that."""

    @staticmethod
    def garbled(frames=False):
        one = Script(pool=POOL).exchange().request_headers()
        if frames:
            return one.emit(
                Malformed(exchange=one.name, stream=one.stream, author=PROXY, raw=b"?", reason="on purpose")
            )
        return one.raw(b"\x12\xff\x01\x0a", PROXY)

    @pytest.mark.parametrize("frames", [False, True])
    @pytest.mark.parametrize("end", [("closed", 13), ("closed", 0), ("reset", Author.EPP), ("lost",)])
    def test_ending_the_stream_is_right(self, ask, frames, end):
        how, *arguments = end
        one = self.garbled(frames)
        getattr(one, how)(*arguments)
        assert ask(one.script).blamed == set()

    @pytest.mark.parametrize("stimulus", ["contract", "off-contract"])
    def test_a_stream_that_stays_is_a_hang(self, ask, stimulus):
        one = self.garbled().hang("answer to request_headers")
        assert ask(one.script, stimulus=stimulus, requirements=("ENV-27",)).failed == {"ENV-27"}

    def test_a_process_that_ends_is_dead(self, ask):
        one = self.garbled().lost()
        assert ask(one.script.crashed(), stimulus="off-contract", requirements=("ENV-27",)).failed == {"ENV-27"}

    def test_answering_all_the_same_is_right(self, ask):
        one = self.garbled().body(BODY, end=True).answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(one.script, requirements=("ENV-27",))["ENV-27"] is Verdict.PASS

    def test_without_it_the_end_is_an_answer_missing(self, ask):
        one = Script(pool=POOL).exchange().request(BODY).closed(13)
        assert ask(one.script).blamed == {"ENV-16"}


class TestWeighing:
    def test_requirements_of_other_versions_are_left_out(self, ask):
        verdicts = ask(good(Script(pool=POOL)), "0.2.0")
        assert not {finding.requirement for finding in verdicts.findings} & {"EPP-DEST-06", "EPP-SUB-04", "EPP-SRVD-01"}

    def test_passes_are_given_once(self, ask):
        script = Script(pool=POOL)
        for _ in range(5):
            good(script)
        findings = ask(script).findings
        assert len(findings) == len({finding.requirement for finding in findings})

    def test_a_violation_leaves_no_pass_beside_it(self, ask):
        script = good(Script(pool=POOL))
        script.exchange().request(BODY).answers(headers_answer(header=A, metadata=None), *echo(BODY)).drained()
        found = [finding for finding in ask(script).findings if finding.requirement == "EPP-DEST-02"]
        assert [finding.verdict for finding in found] == [Verdict.FAIL]
        assert found[0].exchange == "x2"
        assert found[0].seq is not None
        assert found[0].expected

    def test_off_contract_judges_survival_and_membership_only(self, ask):
        script = Script(pool=POOL)
        script.exchange().request(BODY).answers(headers_answer(header=A, metadata=None), *echo(BODY)[:0]).drained()
        assert ask(script, stimulus="off-contract").blamed <= {"ENV-16"}
        script = Script(pool=POOL)
        script.exchange().request(BODY).answers(headers_answer("10.9.9.9:1"), *echo(BODY)).drained()
        assert ask(script, stimulus="off-contract").blamed == {"EPP-DEST-06"}

    def test_off_contract_says_of_what_holds_only_what_the_scenario_is_about(self, ask):
        verdicts = ask(good(Script(pool=POOL)), stimulus="off-contract", requirements=("ENV-27",))
        assert [finding.requirement for finding in verdicts.findings] == ["ENV-27"]

    def test_what_a_violation_kept_from_being_reached(self, ask):
        script = Script(pool=POOL)
        script.exchange().request(BODY).answers(headers_answer(header=None, metadata=A), *echo(BODY)).drained()
        verdicts = ask(script, requirements=("EPP-DEST-05", "EPP-DEST-02"))
        assert verdicts["EPP-DEST-05"] is Verdict.NOT_APPLICABLE
        assert "EPP-DEST-01" in verdicts.finding("EPP-DEST-05").actual

    def test_silence(self, ask):
        script = good(Script(pool=POOL))
        unreached = ask(script, requirements=("EPP-SUB-03",)).finding("EPP-SUB-03")
        assert unreached.verdict is Verdict.INCONCLUSIVE
        assert f"endpoint {A}" in unreached.actual
        both = ask(script, requirements=("EPP-SUB-03", "EPP-DEST-01"))
        assert (both["EPP-SUB-03"], both["EPP-DEST-01"]) == (None, Verdict.PASS)
        assert ask(script, requirements=("EPP-ERR-03",))["EPP-ERR-03"] is Verdict.NOT_APPLICABLE
        assert ask(script, stimulus="off-contract", requirements=("EPP-SUB-10",))["EPP-SUB-10"] is Verdict.PASS

    def test_a_harness_error_is_never_blamed_on_the_target(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY).hang("answer to request_headers")
        script.emit(HarnessTrouble(exchange=one.name, what="our loop lagged by 4 s"))
        verdicts = ask(script, requirements=("EPP-DEST-01",))
        assert verdicts.failed == set()
        assert verdicts["EPP-DEST-01"] is Verdict.ERROR

    def test_a_harness_error_in_one_exchange_leaves_the_others(self, ask):
        script = Script(pool=POOL)
        script.emit(HarnessTrouble(exchange="x1", what="no"))
        script.exchange().request(BODY).lost()
        script.exchange().request(BODY).answers(headers_answer(header=A, metadata=None), *echo(BODY)).drained()
        assert ask(script).failed == {"EPP-DEST-02"}

    @pytest.mark.parametrize("verdict", ["inconclusive", "skipped"])
    def test_a_precondition_that_was_not_met(self, ask, verdict):
        script = good(Script(pool=POOL)).emit(Unmet(what="the pool did not settle", verdict=verdict))
        assert ask(script, requirements=("EPP-DEST-10",))["EPP-DEST-10"] is Verdict(verdict)

    def test_polls_while_settling_are_judged_for_hygiene_only(self, ask):
        script = Script(pool=POOL)
        one = script.exchange(note={"settling": True}).request(BODY)
        one.answers(headers_answer("10.9.9.9:1"), *echo(BODY)).drained()
        assert ask(script).blamed == set()
        script.exchange(note={"settling": True}).request(BODY).answers(immediate(503), immediate(503)).drained()
        assert ask(script).blamed == {"ENV-15"}

    def test_observability_mode_asks_for_nothing(self, ask):
        script = Script(pool=POOL)
        one = script.exchange(mode="STREAMED")
        one.say(request_headers=None, observability_mode=True).closed()
        verdicts = ask(script)
        assert verdicts.blamed == set()
        assert verdicts["ENV-20"] is Verdict.NOT_APPLICABLE

    def test_every_judge_speaks_about_known_requirements(self, catalogue):
        for judge in JUDGES.values():
            for requirement in judge.requirements:
                assert requirement in catalogue, f"{judge.name} speaks about {requirement}"

    @pytest.mark.parametrize("role", ["epp", "data-plane"])
    def test_every_testable_requirement_has_a_judge_of_its_role(self, catalogue, role):
        spoken_of = {name for judge in JUDGES.values() if judge.role == role for name in judge.requirements}
        assert {one.id for one in catalogue if one.role == role and one.testable} <= spoken_of
        assert all(catalogue.get(name).role == role for name in spoken_of)


def test_every_requirement_that_is_judged_says_where(catalogue):
    root = Path(conformance.__file__).parents[1]
    judged = {requirement for one in JUDGES.values() for requirement in one.requirements}
    for requirement in judged:
        found = places(requirement)
        assert found, requirement
        for place in found:
            path, _, line = place.rpartition(":")
            assert (root / path).read_text().splitlines()[int(line) - 1].strip(), place


def test_a_rule_that_attribution_asks_for_is_found_at_its_own_lines():
    assert any(place.startswith("conformance/judges/epp/subset.py:") for place in places("EPP-SUB-06"))
    assert any(place.startswith("conformance/reading/ordering.py:") for place in places("ENV-03"))
    assert places("EPP-NONE-01") == ()
