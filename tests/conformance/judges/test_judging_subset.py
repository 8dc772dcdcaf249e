"""Judges of the endpoint subset: both sides of each line."""

from __future__ import annotations

import pytest
from scripted import BODY, SUBSET_NAMESPACE, Script, echo, headers_answer, immediate, pod

from conformance.verdict import Verdict

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
POOL = {"a": A, "b": B, "c": C}
STRANGER = "10.9.9.9:8000"


def picked(pick, *, pool=POOL, method="POST", **exchange):
    script = Script(pool=pool)
    return _picked(script, pick, method=method, **exchange)


def _picked(script, pick, *, method="POST", **exchange):
    one = script.exchange(method=method, **exchange)
    if method == "GET":
        one.request(None).answers(headers_answer(pick)).drained()
    else:
        one.request(BODY).answers(headers_answer(pick), *echo(BODY)).drained()
    return script


def refused(code, *, pool=POOL, method="POST", **exchange):
    script = Script(pool=pool)
    script.exchange(method=method, **exchange).request(None if method == "GET" else BODY).answers(
        immediate(code)
    ).drained()
    return script


class TestPicks:
    def test_inside(self, ask):
        verdicts = ask(picked(B, subset=[B]))
        assert verdicts.blamed == set()
        assert verdicts["EPP-SUB-01"] is Verdict.PASS

    def test_a_subset_that_is_the_pool_tells_nothing(self, ask):
        assert ask(picked(B, subset=[A, B, C]))["EPP-SUB-01"] is None

    def test_outside(self, ask):
        finding = ask(picked(A, subset=[B])).finding("EPP-SUB-01")
        assert finding.verdict is Verdict.FAIL
        assert A in finding.actual
        assert B in finding.actual

    @pytest.mark.parametrize(
        ("subset", "shown"),
        [([""], "['']"), ([STRANGER, ""], f"[{STRANGER}, '']"), ([" ", "a,b"], "[' ', 'a,b']"), ([], "[]")],
    )
    def test_items_that_are_no_endpoints_are_shown_in_quotes(self, ask, subset, shown):
        found = ask(picked(A, subset=subset)).findings
        assert any(one.actual == f"{A} is not in the list (subset hint {shown})" for one in found)

    def test_only_the_first_inside(self, ask):
        assert ask(picked(f"{B},{C}", subset=[B])).blamed == {"EPP-SUB-01"}

    def test_outside_the_list_and_the_pool_is_one_finding(self, ask):
        assert ask(picked(STRANGER, subset=[B])).blamed == {"EPP-SUB-01"}

    def test_0_2_0_has_no_subset(self, ask):
        assert ask(picked(A, subset=[B]), "0.2.0").blamed == set()
        assert ask(refused(503, subset=[B]), "0.2.0").blamed == set()

    @pytest.mark.parametrize(("hint", "failed"), [([], set()), (["10.9.9.9:1"], set()), ([A], {"ENV-16"})])
    def test_a_grpc_error_in_0_2_0_for_who_keeps_to_hints(self, ask, hint, failed):
        """It is an error like any other where the hint leaves nothing, and there only."""
        script = Script(pool={"a": A})
        script.exchange(subset=hint).request(BODY).closed(14)
        assert ask(script, "0.2.0").failed == failed

    def test_the_list_is_judged_without_a_pool_too(self, ask):
        assert ask(picked(A, pool=None, subset=[B])).blamed == {"EPP-SUB-01"}
        assert ask(picked(B, pool=None, subset=[B])).blamed == set()

    def test_without_a_body(self, ask):
        assert ask(picked(A, method="GET", subset=[B])).blamed == {"EPP-SUB-08"}
        assert ask(picked(B, method="GET", subset=[B]))["EPP-SUB-08"] is Verdict.PASS

    def test_hint_on_the_headers_alone(self, ask):
        verdicts = ask(picked(A, subset=[B], hint_on="headers"))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-SUB-09"})
        assert ask(picked(B, subset=[B], hint_on="headers"))["EPP-SUB-09"] is Verdict.PASS

    def test_hint_on_the_body_alone_is_not_judged(self, ask):
        assert ask(picked(A, subset=[B], hint_on="body")).blamed == set()

    def test_ipv6(self, ask):
        pool = {"a": "[fd00::1]:8000", "b": "[fd00::2]:8000"}
        assert ask(picked("[fd00::1]:8000", pool=pool, subset=["[fd00::2]:8000"])).blamed == {"EPP-SUB-07"}
        assert ask(refused(503, pool=pool, subset=["[fd00::2]:8000"])).blamed == {"EPP-SUB-07"}
        assert ask(picked("[fd00::2]:8000", pool=pool, subset=["[fd00::2]:8000"]))["EPP-SUB-07"] is Verdict.PASS

    def test_ports_of_one_pod(self, ask):
        pool = {"a": ("10.0.0.1:8000", "10.0.0.1:8001"), "b": ("10.0.0.2:8000", "10.0.0.2:8001")}
        assert ask(picked("10.0.0.1:8000", pool=pool, subset=["10.0.0.1:8001"])).blamed == {"EPP-SUB-06"}
        assert ask(picked("10.0.0.1:8001", pool=pool, subset=["10.0.0.1:8001"]))["EPP-SUB-06"] is Verdict.PASS
        assert ask(picked("10.0.0.2:8001", pool=pool, subset=["10.0.0.1:8001"])).blamed == {"EPP-SUB-01"}
        found = ask(picked("10.0.0.1:8000", pool={"a": pool["a"]}, subset=["10.0.0.1:8001"]))
        assert found.blamed == {"EPP-SUB-01"}  # where the port is all that differs, nothing says that it was ignored

    def test_known_among_unknown(self, ask):
        assert ask(picked(B, subset=[STRANGER, B]))["EPP-SUB-05"] is Verdict.PASS
        assert ask(refused(503, subset=[STRANGER, B])).blamed == {"EPP-SUB-05"}
        assert ask(picked(STRANGER, subset=[STRANGER, B])).blamed == {"EPP-SUB-05"}

    def test_a_list_member_that_stopped_being_ready(self, ask):
        script = Script(pool=POOL).pool(pod("a", A, ready=False), pod("b", B))
        assert ask(_picked(script, A, subset=[A, B])).blamed == {"EPP-DEST-06"}


class TestNothingEligible:
    def test_503(self, ask):
        verdicts = ask(refused(503, subset=[STRANGER]))
        assert verdicts.blamed == set()
        assert verdicts["EPP-SUB-02"] is verdicts["EPP-ERR-04"] is Verdict.PASS

    @pytest.mark.parametrize("code", [500, 429, 404, 200])
    def test_another_code(self, ask, code):
        assert ask(refused(code, subset=[STRANGER])).blamed == {"EPP-SUB-02"}

    def test_an_endpoint(self, ask):
        assert ask(picked(A, subset=[STRANGER])).blamed == {"EPP-SUB-02"}
        assert ask(picked(STRANGER, subset=[STRANGER])).blamed == {"EPP-SUB-02"}

    def test_nothing_at_all(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[STRANGER]).request(BODY).answers(headers_answer(), *echo(BODY)).drained()
        assert ask(script).blamed == {"EPP-SUB-02"}

    def test_a_503_although_one_is_eligible_has_a_cause_of_its_own(self, ask):
        found = ask(refused(503, subset=[B]))
        assert found.blamed == {"EPP-SUB-02"}
        assert "cache" in found.finding("EPP-SUB-02").hint  # the requirement's common cause is of picks that are wrong
        assert not ask(picked(A, subset=[STRANGER])).finding("EPP-SUB-02").hint

    def test_the_wrong_port(self, ask):
        assert ask(picked(A, subset=["10.0.0.1:9"])).blamed == {"EPP-SUB-06"}
        assert ask(refused(503, subset=["10.0.0.1:9"]))["EPP-SUB-06"] is Verdict.PASS

    def test_the_wrong_port_where_everything_falls_back_to_the_pool(self, ask):
        script = Script(pool=POOL)
        for pick in (A, B):
            script.exchange(subset=["10.0.0.1:9"]).request(BODY).answers(headers_answer(pick), *echo(BODY)).drained()
        assert ask(script).blamed == {"EPP-SUB-02"}

    def test_empty(self, ask):
        assert ask(refused(503, subset=[]))["EPP-SUB-03"] is Verdict.PASS
        assert ask(picked(A, subset=[])).blamed == {"EPP-SUB-03"}
        assert ask(refused(429, subset=[])).blamed == {"EPP-SUB-03"}

    def test_a_pod_that_is_not_ready(self, ask):
        script = Script().pool(pod("a", A, ready=False), pod("b", B))
        assert ask(_picked(script, B, subset=[A])).blamed == {"EPP-SUB-02"}

    def test_an_empty_pool_comes_first(self, ask):
        assert ask(refused(500, pool={}, subset=[A])).blamed == {"EPP-ERR-02"}

    def test_a_malformed_request_may_get_400_as_well(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[STRANGER]).request(b"nonsense").answers(immediate(400)).drained()
        assert ask(script).blamed == set()

    def test_the_error_as_a_grpc_status(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[STRANGER]).request(BODY).closed(13, "no pods")
        assert ask(script).blamed == {"EPP-ERR-04"}

    def test_silence(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[STRANGER]).request(BODY).hang("answer to request_headers")
        assert ask(script).blamed == {"EPP-SUB-02"}


class TestNotSet:
    @pytest.mark.parametrize(
        "metadata",
        [{}, {"envoy.lb": {}}, {SUBSET_NAMESPACE: {}}, {SUBSET_NAMESPACE: {"other": [A]}},
         {"envoy.filters": {"x-gateway-destination-endpoint-subset": [STRANGER]}}],
    )  # fmt: skip
    def test_the_whole_pool(self, ask, metadata):
        verdicts = ask(picked(A, metadata=metadata))
        assert verdicts.blamed == set()
        assert verdicts["EPP-SUB-04"] is Verdict.PASS

    def test_the_namespace_without_the_key_is_no_empty_list(self, ask):
        assert ask(refused(503, metadata={SUBSET_NAMESPACE: {}})).blamed == {"EPP-SUB-04"}

    def test_a_hint_that_is_remembered(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[STRANGER]).request(BODY).answers(immediate(503)).drained()
        script.exchange().request(BODY).answers(immediate(503)).drained()
        assert ask(script).blamed == {"EPP-SUB-04"}


WRONG_TYPES = [f"{A},{B}", 8000, True, None, {"a": A}, [A, 1], [[A]], [None]]


class TestWrongTypes:
    @pytest.mark.parametrize("hint", WRONG_TYPES)
    def test_an_error_of_any_code_is_right(self, ask, hint):
        for code in (503, 400, 500):
            verdicts = ask(refused(code, subset=hint))
            assert verdicts.blamed == set()
            assert verdicts["EPP-SUB-10"] is Verdict.PASS

    @pytest.mark.parametrize("hint", WRONG_TYPES)
    def test_the_whole_pool_is_a_warning(self, ask, hint):
        verdicts = ask(picked(C, subset=hint))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-SUB-10"})

    def test_text_read_as_a_comma_list(self, ask):
        assert ask(picked(B, subset=f"{A}, {B}"))["EPP-SUB-10"] is Verdict.PASS

    def test_outside_the_pool_is_the_pools_rule(self, ask):
        assert ask(picked(STRANGER, subset=8000)).blamed == {"EPP-DEST-06"}

    @pytest.mark.parametrize("end", ["hang", "status", "closed", "lost"])
    def test_a_stream_without_an_answer_always_fails(self, ask, end):
        script = Script(pool=POOL)
        one = script.exchange(subset=8000).request(BODY)
        match end:
            case "hang":
                one.hang("answer to request_headers")
            case "status":
                one.closed(13)
            case "closed":
                one.closed()
            case "lost":
                one.lost()
        assert ask(script, stimulus="off-contract").failed == {"EPP-SUB-10"}

    @pytest.mark.parametrize(("subset", "particular"), [(8000, "EPP-SUB-10"), (["10.0.0.2"], "EPP-SUB-11")])
    def test_death_is_put_down_to_the_hint_and_counts(self, ask, subset, particular):
        """The rules of odd hints only warn, and that of the process counts."""
        script = Script(pool=POOL)
        odd = script.exchange(subset=subset).request(BODY).lost()
        script.exchange().request(BODY).lost()
        script.crashed()
        verdicts = ask(script, stimulus="off-contract")
        assert verdicts.failed == {particular, "ENV-27"}
        assert verdicts.finding("ENV-27").exchange == odd.name


class TestOddItems:
    @pytest.mark.parametrize("item", [f" {B} ", "10.0.0.2", f"{B}", f"{B},{B}"])
    def test_a_lenient_reading_is_right_and_so_is_503(self, ask, item):
        assert ask(picked(B, subset=[item, item])).blamed == set()
        if item != B:
            assert ask(refused(503, subset=[item])).blamed == set()

    @pytest.mark.parametrize(
        ("script", "trimmed"), [(picked(B, subset=[f" {B} "]), "yes"), (refused(503, subset=[f" {B} "]), "no")]
    )
    def test_whether_blanks_are_trimmed_is_recorded(self, ask, script, trimmed):
        verdicts = ask(script, stimulus="off-contract", requirements=("EPP-SUB-11",))
        assert verdicts["EPP-SUB-11"] is Verdict.PASS
        records = [finding for finding in verdicts.findings if finding.requirement == "EPP-SUB-11" and finding.actual]
        assert [f"trimmed: {trimmed}" in record.actual for record in records] == [True]

    @pytest.mark.parametrize("hint", [[B], [B, f" {B} "], ["10.0.0.2"], [" 10.0.0.2 "]])
    def test_other_items_tell_nothing_about_blanks(self, ask, hint):
        assert not any("trimmed" in finding.actual for finding in ask(picked(B, subset=hint)).findings)

    def test_a_pick_that_no_reading_allows(self, ask):
        assert ask(picked(A, subset=[f" {B} "])).blamed == {"EPP-SUB-01"}

    def test_an_unusual_spelling_of_ipv6(self, ask):
        pool = {"a": "[fd00::1]:8000", "b": "[fd00::2]:8000"}
        assert ask(picked("[fd00::2]:8000", pool=pool, subset=["[FD00:0::2]:8000"])).blamed == set()
        assert ask(refused(503, pool=pool, subset=["[FD00:0::2]:8000"])).blamed == set()

    def test_a_thousand_items(self, ask):
        hint = [f"10.8.{n // 250}.{n % 250}:80" for n in range(1000)] + [B]
        assert ask(picked(B, subset=hint))["EPP-SUB-11"] is Verdict.PASS
        script = Script(pool=POOL)
        script.exchange(subset=hint).request(BODY).closed(13)
        assert ask(script, stimulus="off-contract").failed == {"EPP-SUB-11"}

    def test_an_error_for_a_malformed_item(self, ask):
        script = Script(pool=POOL)
        script.exchange(subset=[B, "nonsense"]).request(BODY).closed(3)
        assert ask(script, stimulus="off-contract").failed == {"EPP-SUB-11"}


class TestLenientReaders:
    """What a lenient reader finds in an item that is no endpoint is in the list, and an error is right as well."""

    SIX = "[2001:db8::1]:8000"

    @pytest.mark.parametrize(
        ("item", "meant"),
        [
            ("10.0.0.2:08000", B),
            ("http://10.0.0.2:8000/", B),
            ("2001:db8::1:8000", SIX),
            ("[2001:DB8::1%eth0]:8000", SIX),
        ],
    )
    def test_what_it_finds(self, ask, item, meant):
        pool = {"a": A, "b": meant}
        assert ask(picked(meant, pool=pool, subset=[item])).blamed == set()
        assert ask(picked(A, pool=pool, subset=[item])).failed
        assert ask(refused(503, pool=pool, subset=[item])).blamed == set()

    @pytest.mark.parametrize("item", ["10.0.0.2:08001", "10.0.0.2:", "10.0.0.2:+8000", "10.0.0.2:1" + "0" * 5000])
    def test_what_it_does_not(self, ask, item):
        assert ask(picked(B, subset=[item])).failed


class TestMixedUpStreams:
    def test_controls_that_are_right_show_that_streams_mix(self, ask):
        script = Script(pool=POOL)
        for own in (A, B, C):
            _picked(script, own, subset=[own])
        first = script.exchange(subset=[A]).request(BODY)
        second = script.exchange(subset=[B]).request(BODY)
        first.answers(headers_answer(B), *echo(BODY)).drained()
        second.answers(headers_answer(B), *echo(BODY)).drained()
        assert ask(script).blamed == {"ENV-21"}

    def test_without_controls_it_is_a_subset_that_is_ignored(self, ask):
        script = Script(pool=POOL)
        first = script.exchange(subset=[A]).request(BODY)
        second = script.exchange(subset=[B]).request(BODY)
        first.answers(headers_answer(B), *echo(BODY)).drained()
        second.answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == {"EPP-SUB-01"}

    def test_requests_with_a_body_say_nothing_of_those_without(self, ask):
        script = Script(pool=POOL)
        for own in (A, B, C):
            _picked(script, own, subset=[own])
        first = script.exchange(method="GET", subset=[A]).request(None)
        second = script.exchange(method="GET", subset=[B]).request(None)
        for one in (first, second):
            one.answers(headers_answer(B)).drained()
        assert ask(script).blamed == {"EPP-SUB-08"}

    def test_one_request_id_for_two(self, ask):
        script = Script(pool=POOL)
        for own in (A, B, C):
            _picked(script, own, subset=[own], headers=((b"x-request-id", own.encode()),))
        for own in (A, B):
            _picked(script, A, subset=[own], headers=((b"x-request-id", b"same"),))
        assert ask(script).blamed == {"ENV-21"}

    def test_interleaved_and_right(self, ask):
        script = Script(pool=POOL)
        open_ones = [script.exchange(subset=[own]).request(BODY) for own in (A, B, C)]
        for own, one in zip((A, B, C), open_ones, strict=True):
            one.answers(headers_answer(own), *echo(BODY)).drained()
        assert ask(script)["ENV-21"] is Verdict.PASS


def test_polls_of_a_settling_pool_are_no_earlier_requests(ask):
    script = Script(pool=POOL)
    script.exchange(note={"settling": True}, subset=[A]).request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
    script.exchange().request(BODY).answers(immediate(503)).drained()
    assert ask(script).blamed == {"EPP-ERR-02"}
