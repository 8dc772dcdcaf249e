"""Role data-plane, the destination: which attempts are right, on both sides of the line."""

from __future__ import annotations

import pytest
from scripted import BODY, NAMESPACE, Script, echo, headers_answer, option

from conformance.verdict import Verdict
from ext_proc.messages import HeaderValueOption
from ext_proc.protocol import DESTINATION, FALLBACK

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
STRANGE = "10.9.9.9:8000"
NAME = DESTINATION.encode()
VERSIONS = ["0.2.0", "0.3.0", "0.4.0", "1.0.0", "next"]


class TestOneEndpoint:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_right_gateway_is_not_accused_in_any_version(self, gateway, relayed, script, version):
        relayed()
        verdicts = gateway(script, version)
        assert verdicts.blamed == set()
        assert verdicts["DP-DEST-01"] is verdicts["DP-EXTP-01"] is Verdict.PASS
        assert verdicts["DP-SRVD-01"] is (Verdict.PASS if version in ("1.0.0", "next") else None)

    def test_another_endpoint(self, gateway, relayed, script):
        relayed(A, (B,))
        verdicts = gateway(script)
        assert verdicts.blamed == {"DP-DEST-01"}
        assert B in verdicts.finding("DP-DEST-01").actual

    def test_no_model_server_gets_the_request(self, gateway, relayed, script):
        relayed(A, ())
        assert gateway(script).blamed == {"DP-DEST-01"}

    def test_a_response_that_no_pod_gave(self, gateway, relayed, script):
        one = relayed(A, ())
        one.client(200)
        assert gateway(script).blamed == {"DP-DEST-01"}

    def test_a_request_that_the_gateway_itself_refused(self, gateway, relayed, script):
        relayed(A, (), status=413)
        assert gateway(script).blamed == set()

    def test_a_dead_endpoint(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(A, ())
        assert gateway(script, retries=2).blamed == set()
        relayed(A, (B,))
        assert gateway(script, retries=2).blamed == set()  # the list is used up

    def test_elsewhere_though_the_first_answered(self, gateway, relayed, script):
        relayed(f"{A},{B}", ((A, 404), (C, 200)))
        verdicts = gateway(script, retries=3, retry_statuses=(503,))
        assert verdicts.blamed == {"DP-DEST-02"}
        assert verdicts.finding("DP-DEST-02").expected[0].startswith(f"no further attempt: {A} answered 404")

    @pytest.mark.parametrize("to", [(A, A), (A, B)])
    def test_again_though_the_first_answered(self, gateway, relayed, script, to):
        relayed(A, ((to[0], 200), to[1]))
        verdicts = gateway(script, retries=3, retry_statuses=(503,))
        assert verdicts.blamed == {"DP-DEST-01"}
        assert verdicts.finding("DP-DEST-01").expected[0].startswith(f"no further attempt: {A} answered 200")

    def test_the_same_again_and_then_anywhere(self, gateway, relayed, script):
        relayed(A, (A, A, C))
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()

    def test_its_503_is_passed_on(self, gateway, relayed, script):
        relayed(A, ((A, 503),), status=503)
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()

    def test_sent_on_before_the_epp_answered(self, gateway, script):
        one = script.exchange().request_headers()
        one.upstream(A).answers(headers_answer(A)).response_headers(served=A).client(200).reset()
        assert "DP-DEST-01" in gateway(script).failed

    def test_an_unknown_endpoint_may_be_dialled_or_not(self, gateway, relayed, script):
        relayed(STRANGE, (B,))
        relayed(STRANGE, ())
        assert gateway(script).blamed == set()

    def test_the_same_endpoint_in_another_spelling(self, gateway, relayed):
        six = Script(pool={"a": "[fd00::1]:8000"})
        relayed("[FD00:0::1]:8000", ("[fd00:0:0::1]:8000",), script=six)
        assert gateway(six).blamed == set()

    @pytest.mark.parametrize("broke", [True, False])
    def test_an_epp_that_broke_down_when_it_had_picked(self, gateway, script, broke):
        """Envoy answers 500 then; an EPP that ends the stream with status OK has said what it had to say."""
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY))
        (one.lost() if broke else one.closed(0)).client(500)
        assert gateway(script).blamed == (set() if broke else {"DP-DEST-01"})

    def test_no_destination_no_rule(self, gateway, relayed, script):
        relayed(None, (C,))
        assert gateway(script).blamed == set()


class TestWhereItIsSaid:
    @pytest.mark.parametrize(
        ("follows", "header", "metadata", "to", "wrong"),
        [
            ("header", A, None, A, False),
            ("header", A, None, B, True),
            ("header", None, A, B, False),
            ("metadata", None, A, B, True),
            ("metadata", A, None, B, False),
            ("either", A, None, B, True),
            ("either", None, A, B, True),
            ("either", A, B, C, False),
            ("header", A, B, B, True),
            ("metadata", A, B, B, False),
            (None, A, None, B, False),
            (None, None, A, B, False),
            (None, A, A, B, True),
        ],
    )
    def test_what_the_gateway_reads_counts(self, gateway, relayed, script, follows, header, metadata, to, wrong):
        relayed(answer=headers_answer(header=header, metadata=metadata), to=(to,))
        assert gateway(script, follows=follows).blamed == ({"DP-DEST-01"} if wrong else set())

    def test_metadata_of_another_namespace_is_none(self, gateway, relayed, script):
        relayed(answer=headers_answer(header=None, metadata={"other": {DESTINATION: A}}), to=(B,))
        assert gateway(script).blamed == set()

    def test_an_answer_that_breaks_the_contract_leaves_all_open(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), headers_answer(A))
        one.upstream(B).client(200).reset()
        assert gateway(script).blamed == set()


class TestLists:
    def test_the_first_is_used(self, gateway, relayed, script):
        relayed(f"{B},{A},{C}", (B,))
        assert gateway(script)["DP-DEST-02"] is Verdict.PASS

    @pytest.mark.parametrize("to", [(A,), (C,), ()])
    def test_the_first_is_not_used(self, gateway, relayed, script, to):
        relayed(f"{B},{A}", to)
        assert gateway(script).blamed == {"DP-DEST-02"}

    @pytest.mark.parametrize(("waited", "wrong"), [(0.0, True), (0.2, False)])
    def test_the_next_gets_it_too(self, gateway, script, waited, wrong):
        """At once, or as the first took long: then the request may be hedged."""
        one = script.exchange(body=BODY).request().answers(headers_answer(f"{A},{B}"), *echo(BODY))
        one.upstream(A, body=BODY)
        script.pass_time(waited)
        one.upstream(B, body=BODY).response_headers(served=A).answers(headers_answer(side="response"))
        one.body(b"{}", side="response").answers(*echo(b"{}", side="response")).client(200, b"{}").reset()
        assert gateway(script, retries=1).blamed == ({"DP-DEST-02"} if wrong else set())

    @pytest.mark.parametrize(
        ("delay", "waited", "wrong"),
        [(0.05, 0.0, True), (0.05, 0.047, False), (0.05, 0.06, False), (0.0, 0.0, False), (0.3, 0.06, False)],
    )
    @pytest.mark.parametrize("status", [404, 503])
    def test_the_next_gets_it_before_the_first_refuses_it(self, gateway, script, delay, waited, wrong, status):
        """At once; or it is tried when the first has answered, or hedged as that took long."""
        one = script.exchange(body=BODY).request().answers(headers_answer(f"{A},{B}"), *echo(BODY))
        one.upstream(A, status, body=BODY, delay=delay)
        script.pass_time(waited)
        one.upstream(B, body=BODY).response_headers(served=B).answers(headers_answer(side="response"))
        one.body(b"{}", side="response").answers(*echo(b"{}", side="response")).client(200, b"{}").reset()
        verdicts = gateway(script, retries=1, retry_statuses=(503,))
        assert verdicts.blamed == ({"DP-DEST-02"} if wrong else set())
        if wrong:
            expected = verdicts.finding("DP-DEST-02").expected
            assert list(expected) == [f"no further attempt before {A} has answered"]

    @pytest.mark.parametrize("version", ["0.2.0", "0.3.0"])
    def test_before_lists_nothing_is_asked_of_them(self, gateway, relayed, script, version):
        relayed(f"{B},{A}", (C,))
        assert gateway(script, version).blamed == set()

    def test_the_walk(self, gateway, relayed, script):
        relayed(f"{A},{B},{C}", (A, B, C))
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()

    @pytest.mark.parametrize("to", [(A, C), (A, A, B), (A, C, B)])
    def test_the_walk_out_of_order(self, gateway, relayed, script, to):
        relayed(f"{A},{B},{C}", to)
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == {"DP-DEST-02"}

    def test_a_broken_connection_may_be_tried_again_at_once(self, gateway, relayed, script):
        relayed(f"{A},{B}", ((A, "reset"), (A, "reset"), B))
        assert gateway(script, retries=3).blamed == set()

    def test_given_up_too_early(self, gateway, relayed, script):
        relayed(f"{A},{B}", ((A, 503),), status=503)
        assert gateway(script, retries=1, retry_statuses=(503,)).blamed == {"DP-DEST-02"}
        assert gateway(script, retries=1).blamed == set()  # it does not say that it retries this status
        assert gateway(script, retries=0, retry_statuses=(503,)).blamed == set()

    def test_the_budget_of_retries_is_kept_to(self, gateway, relayed, script):
        relayed(f"{A},{B},{C}", (A, (B, 503)), status=503)
        assert gateway(script, retries=1, retry_statuses=(503,)).blamed == set()
        assert gateway(script, retries=2, retry_statuses=(503,)).blamed == {"DP-DEST-02"}

    def test_dead_first(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(f"{A},{B}", (B,))
        assert gateway(script, retries=1)["DP-DEST-02"] is Verdict.PASS

    def test_dead_first_and_an_error(self, gateway, relayed, script):
        script.conduct(a="refuses", b="refuses")
        relayed(f"{A},{B},{C}", ())
        assert gateway(script, retries=0).blamed == gateway(script, retries=1).blamed == set()
        assert gateway(script, retries=2).blamed == {"DP-DEST-02"}

    def test_dead_first_and_then_another_host(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(f"{A},{B}", (C,))
        assert gateway(script, retries=2).blamed == {"DP-DEST-02"}

    @pytest.mark.parametrize("odd", ["bogus", "", "10.0.0.1", "http://10.0.0.1:8000"])
    def test_an_invalid_item_first(self, gateway, relayed, script, odd):
        relayed(f"{odd},{B},{A}", (B,))
        assert gateway(script).blamed == set()
        relayed(f"{odd},{B},{A}", ())
        relayed(f"{odd},{B},{A}", (A,))
        verdicts = gateway(script)
        assert verdicts.blamed == {"DP-DEST-02"}
        assert len([one for one in verdicts.findings if one.verdict is Verdict.FAIL]) == 2

    def test_blanks_may_count_or_not(self, gateway, relayed, script):
        relayed(f" {A} ,{B}", (A,))
        relayed(f" {A} ,{B}", (B,))
        assert gateway(script).blamed == set()
        relayed(f" {A} ,{B}", (C,))
        assert gateway(script).blamed == {"DP-DEST-02"}

    def test_an_unknown_endpoint_first_may_be_skipped_or_fail(self, gateway, relayed, script):
        relayed(f"{STRANGE},{B}", (B,))
        assert gateway(script).blamed == set()
        relayed(f"{STRANGE},{B}", ())
        assert gateway(script, retries=0).blamed == set()
        assert gateway(script, retries=1).blamed == {"DP-DEST-02"}

    @pytest.mark.parametrize("how", [503, "reset"])
    def test_what_failed_may_be_left_out_where_it_is_listed_again(self, gateway, relayed, script, how):
        relayed(f"{A},{A},{B}", ((A, how), B))
        relayed(f"{A},{A},{B}", ((A, how), (A, how), B))
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()
        relayed(f"{A},{A},{B}", ((A, how), C))
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == {"DP-DEST-02"}

    def test_past_the_end_nothing_is_defined(self, gateway, relayed, script):
        relayed(f"{A},{B}", (A, B, A, B))
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()


class TestFallback:
    def given(self):
        return headers_answer(header=A, metadata={NAMESPACE: {DESTINATION: A, FALLBACK: B}})

    def test_it_serves(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(answer=self.given(), to=(B,))
        assert gateway(script, "0.3.0", retries=1)["DP-DEST-03"] is Verdict.PASS

    def test_it_does_not(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(answer=self.given(), to=(C,))
        relayed(answer=self.given(), to=())
        verdicts = gateway(script, "0.3.0", retries=1)
        assert verdicts.blamed == verdicts.warned == {"DP-DEST-03"}
        assert gateway(script, "1.0.0", retries=1).blamed == set()

    def test_it_serves_although_the_destination_is_there(self, gateway, relayed, script):
        relayed(answer=self.given(), to=(B,))
        assert gateway(script, "0.3.0").blamed == {"DP-DEST-01"}

    def test_a_gateway_that_reads_no_metadata_has_none(self, gateway, relayed, script):
        script.conduct(a="refuses")
        relayed(answer=self.given(), to=())
        assert gateway(script, "0.3.0", retries=1, follows="header").blamed == set()


class TestTheClient:
    def test_it_steers_where_the_epp_gave_another(self, gateway, relayed, script):
        for endpoint in (B, B, B, C, C, C):
            relayed(A, (endpoint,), headers=((b"X-Gateway-Destination-Endpoint", endpoint.encode()),))
        verdicts = gateway(script)
        assert (verdicts.failed, verdicts.warned) == ({"DP-DEST-01"}, {"DP-DEST-04"})

    def test_a_gateway_that_follows_no_pick_may_come_there_by_chance(self, gateway, relayed, script):
        for endpoint in (B, B, B, C, C, C):
            relayed(A, (B,), headers=((NAME, endpoint.encode()),))
        assert gateway(script).blamed == {"DP-DEST-01"}

    def test_the_epp_named_the_same(self, gateway, relayed, script):
        for endpoint in (B, B, B, C, C, C):
            relayed(endpoint, (endpoint,), headers=((NAME, endpoint.encode()),))
        assert gateway(script).blamed == set()

    def test_it_does_not(self, gateway, relayed, script):
        relayed(A, (A,), headers=((NAME, B.encode()), (NAME, C.encode())))
        verdicts = gateway(script)
        assert verdicts.blamed == set()
        assert verdicts["DP-DEST-04"] is Verdict.PASS

    def test_one_that_came_there_may_be_chance(self, gateway, relayed, script):
        relayed(None, (B,), headers=((NAME, B.encode()),))
        assert gateway(script).blamed == set()

    def test_all_of_them_in_turn_may_be_round_robin(self, gateway, relayed, script):
        for endpoint in (A, B, C) * 3:
            relayed(None, (endpoint,), headers=((NAME, endpoint.encode()),))
        assert gateway(script).blamed == set()

    def test_all_the_same_may_be_stickiness(self, gateway, relayed, script):
        for _ in range(9):
            relayed(None, (A,), headers=((NAME, A.encode()),))
        assert gateway(script).blamed == set()

    def test_all_of_them_in_blocks(self, gateway, relayed, script):
        for endpoint in (A, A, B, B, C, C):
            relayed(None, (endpoint,), headers=((NAME, endpoint.encode()),))
        assert gateway(script).blamed == {"DP-DEST-04"}
        relayed(None, (B,), headers=((NAME, A.encode()),))
        assert gateway(script).blamed == set()

    def test_an_endpoint_that_only_the_client_knows(self, gateway, relayed, script):
        relayed(None, (STRANGE,), headers=((NAME, STRANGE.encode()),))
        assert gateway(script).blamed == {"DP-DEST-04"}

    def test_a_header_that_keeps_the_clients_value_is_the_epps_fault(self, gateway, relayed, script):
        keeps = option(DESTINATION, A, append_action=HeaderValueOption.ADD_IF_ABSENT)
        answer = headers_answer(None, options=[keeps], metadata=None)
        relayed(answer=answer, to=(B,), headers=((NAME, B.encode()),))
        assert "DP-DEST-01" not in gateway(script).blamed
