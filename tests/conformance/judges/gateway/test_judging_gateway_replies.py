"""Role data-plane: ImmediateResponses, the served endpoint, two pools, an EPP out of order, and expectations."""

from __future__ import annotations

import pytest
from scripted import BODY, Script, body_answer, echo, headers_answer, immediate, option

from conformance.evidence.episode import BackendFact, Expectation
from conformance.verdict import Verdict
from ext_proc.messages import HeaderMutation
from ext_proc.record import Author, ClientResponse

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
POOLS = (BackendFact(epp="first", endpoints=(A, B)), BackendFact(epp="second", endpoints=(C,)))


class TestImmediate:
    def answered(self, script, *, code=429, body=b"busy", headers=(), got=429, came=b"busy", with_=(), **opened):
        options = [option(name, value) for name, value in headers]
        answer = immediate(code, body=body, headers=HeaderMutation(set_headers=options))
        return script.exchange(**opened).request().answers(answer).client(got, came, tuple(with_)).reset()

    def test_relayed(self, gateway, script):
        with_ = ((b"Retry-After", b"1"), (b"x-several", b"b"), (b"x-several", b"a"), (b"x-own", b"1"))
        self.answered(script, headers=(("retry-after", "1"), ("x-several", "a")), with_=with_)
        verdicts = gateway(script)
        assert verdicts.blamed == set()
        assert verdicts["DP-ERR-01"] is Verdict.PASS

    @pytest.mark.parametrize(
        "changed",
        [
            {"got": 500},
            {"code": 503, "got": 500},
            {"came": b""},
            {"came": b"busy!"},
            {"headers": (("retry-after", "1"),)},
            {"headers": (("retry-after", "1"),), "with_": ((b"retry-after", b"2"),)},
            {"headers": (("x-why", "a"), ("x-why", "b")), "with_": ((b"x-why", b"a"),)},
        ],
    )
    def test_not_relayed(self, gateway, script, changed):
        self.answered(script, **changed)
        assert gateway(script).blamed == {"DP-ERR-01"}

    @pytest.mark.parametrize(("action", "wrong"), [("OVERWRITE_IF_EXISTS_OR_ADD", True), (None, False)])
    def test_a_type_beside_another(self, gateway, script, action, wrong):
        """An entry of `set_headers` without an action adds to what is there."""
        typed = option("content-type", "application/json", append_action=action)
        answer = immediate(429, body=b"busy", headers=HeaderMutation(set_headers=[typed]))
        got = ((b"content-type", b"text/plain"), (b"content-type", b"application/json"))
        script.exchange().request().answers(answer).client(429, b"busy", got).reset()
        assert gateway(script).blamed == ({"DP-ERR-01"} if wrong else set())

    @pytest.mark.parametrize(
        "allowed",
        [
            {"body": b"", "came": b"too many"},
            {"method": "HEAD", "came": b""},
            {"code": 204, "got": 204, "came": b""},
            {"headers": (("content-length", "7"), (":status", "200"), ("x-envoy-x", "1"), ("host", "h"))},
            {"headers": (("x-padded", " 1 "),), "with_": ((b"x-padded", b"1"),)},
            {"headers": (("content-type", "text/plain"),), "with_": ((b"content-type", b"text/plain; charset=utf-8"),)},
            {"headers": (("x-why", "a"), ("X-Why", "b")), "with_": ((b"x-why", b"b"),)},
            {"headers": (("x-why", "b"),), "with_": ((b"x-why", b"a, b"),)},
            {"code": 0, "got": 200},
            {"code": 999, "got": 500},
            {"headers": ((b"content-type", "a"),), "got": 200, "came": b"", "opened": "grpc"},
        ],
    )
    def test_what_belongs_to_the_data_plane(self, gateway, script, allowed):
        if allowed.pop("opened", None):
            allowed |= {"with_": ((b"grpc-status", b"8"),), "headers": ()}
            opened = {**allowed}
            one = script.exchange(headers=((b"content-type", b"application/grpc"),)).request()
            one.answers(immediate(429)).client(opened["got"], b"", opened["with_"]).reset()
        else:
            self.answered(script, **allowed)
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize(
        ("got", "slow", "wrong"),
        [
            ((403, b"no"), 0.0, False),
            ((200, b"{}"), 0.0, True),
            ((403, b"{}"), 0.0, True),
            ((500, b"no"), 0.0, True),
            ((200, b"{}"), 0.2, False),
        ],
    )
    @pytest.mark.parametrize("told", [True, False])
    def test_in_the_place_of_a_response(self, gateway, script, got, slow, wrong, told):
        """`told`: its body was told at once, as in full duplex."""
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, body=BODY, answer=b"{}").response_headers(served=A)
        if told:
            one.body(b"{}", side="response")
        script.pass_time(slow)
        one.answers(immediate(403, body=b"no")).client(*got).reset()
        assert gateway(script).blamed == ({"DP-ERR-01"} if wrong else set())

    @pytest.mark.parametrize(
        ("got", "slow", "wrong"),
        [
            ((429, b"busy"), 0.0, False),
            ((429, b""), 0.0, True),
            ((429, b"too many"), 0.0, True),
            ((503, b"busy"), 0.0, True),
            ((503, b"no EPP"), 0.2, False),
        ],
    )
    @pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "STREAMED"])
    def test_after_a_pick(self, gateway, script, got, slow, wrong, mode):
        one = script.exchange(body=BODY, mode=mode).request_headers().answers(headers_answer(A))
        one.body(BODY)
        script.pass_time(slow)
        one.answers(*([body_answer()] if mode == "STREAMED" else []), immediate(429, body=b"busy"))
        one.client(*got).reset()
        verdicts = gateway(script)
        assert verdicts.blamed == ({"DP-ERR-01"} if wrong else set())
        assert slow or verdicts["DP-ERR-01"] is (Verdict.FAIL if wrong else Verdict.PASS)

    @pytest.mark.parametrize("whole", [True, False])
    def test_after_a_pick_and_its_attempt(self, gateway, script, whole):
        """`whole`: by its length, the model server has the request before the EPP refuses its end."""
        one = script.exchange(body=BODY).request_headers().answers(headers_answer(A)).body(BODY)
        one.upstream(A, body=BODY) if whole else None
        one.answers(immediate(429, body=b"busy"))
        one if whole else one.upstream(A, body=BODY)
        one.client(200, b"{}").reset()
        assert ("DP-ERR-01" in gateway(script).blamed) is not whole

    def test_no_response(self, gateway, script):
        script.exchange().request().answers(immediate(503)).reset()
        assert gateway(script).blamed == {"DP-ERR-01"}

    @pytest.mark.parametrize(("headers", "cut"), [(((b"content-length", b"9"),), True), ((), False)])
    def test_cut(self, gateway, script, headers, cut):
        one = script.exchange().request().answers(immediate(503, body=b"none"))
        one.emit(ClientResponse(exchange=one.name, status=503, headers=headers, body=b"none", complete=False)).reset()
        assert gateway(script).blamed == ({"DP-ERR-01"} if cut else set())

    def test_a_model_server_is_called(self, gateway, script):
        script.exchange().request().answers(immediate(503)).upstream(A).client(503).reset()
        assert gateway(script).blamed == {"DP-ERR-01"}

    def test_before_the_epp_answered(self, gateway, script):
        script.exchange().request().upstream(A).answers(immediate(503)).client(503).reset()
        assert gateway(script).blamed == {"DP-ERR-01"}

    @pytest.mark.parametrize("down", [True, False])
    def test_a_model_server_is_called_before_the_epp_is_asked(self, gateway, script, down):
        """With another EPP down, that may have been the request without it."""
        script.epps(other=not down)
        one = script.exchange(stream=False).upstream(A).asks("first").request().answers(immediate(503))
        one.client(503).reset()
        assert gateway(script).failed == (set() if down else {"DP-ERR-01"})

    def test_a_client_that_has_its_response_before_the_epp_refuses(self, gateway, script):
        script.exchange().request().upstream(A).client(200).answers(immediate(503)).reset()
        assert gateway(script).blamed == {"DP-ERR-01"}

    def test_too_late(self, gateway, script):
        script.exchange().request().client(504).answers(immediate(429)).reset()
        assert gateway(script).blamed == set()

    def test_another_pool_may_answer(self, gateway, script):
        one = script.exchange(epp="first").request().answers(immediate(503)).reset()
        one.asks("second").request().answers(headers_answer(C), *echo(BODY)).upstream(C, body=BODY)
        one.response_headers(served=C).body(b"{}", side="response").client(200).reset()
        assert gateway(script, "next", backends=POOLS).blamed == set()


class TestServed:
    def test_after_a_retry(self, gateway, relayed, script):
        relayed(f"{A},{B}", (A, B))
        assert gateway(script, retries=1, retry_statuses=(503,))["DP-SRVD-01"] is Verdict.PASS
        relayed(f"{A},{B}", (A, B), served=A)
        verdicts = gateway(script, retries=1, retry_statuses=(503,))
        assert verdicts.blamed == {"DP-SRVD-01"}
        assert "failed" in verdicts.finding("DP-SRVD-01").hint

    @pytest.mark.parametrize("served", [..., B, [A], 8000, "10.0.0.1", f" {A}", "", {"a": A}])
    def test_wrong(self, gateway, relayed, script, served):
        relayed(served=served)
        assert gateway(script).blamed == {"DP-SRVD-01"}
        assert gateway(script, "0.4.0").blamed == set()

    def test_an_error_of_the_model_server_is_a_response_too(self, gateway, relayed, script):
        relayed(A, ((A, 500),), status=500, served=...)
        assert gateway(script).blamed == {"DP-SRVD-01"}

    def test_a_local_reply_has_no_endpoint(self, gateway, script):
        script.conduct(a="resets")
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A, outcome="reset")
        one.response_headers(status=503).body(b"", side="response").client(503).reset()
        assert gateway(script).blamed == set()

    def test_an_error_after_a_dead_endpoint_may_be_the_gateways_own(self, gateway, script):
        script.conduct(b="refuses")
        one = script.exchange().request().answers(headers_answer(f"{A},{B}"), *echo(BODY)).upstream(A, 503, body=BODY)
        one.response_headers(status=503).body(b"none", side="response").client(503, b"none").reset()
        assert gateway(script, retries=3, retry_statuses=(503,)).blamed == set()
        assert gateway(script).blamed == {"DP-SRVD-01"}

    def test_an_error_with_another_body_is_the_gateways_own(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 503, body=BODY, answer=b"busy")
        one.response_headers(status=503).body(b"none", side="response").client(503, b"none").reset()
        assert gateway(script).blamed == set()

    def test_a_4xx_that_the_epp_let_go_is_not(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 404, body=BODY, answer=b"no such").response_headers(status=404, served=A)
        one.answers(headers_answer(side="response")).body(b"no such", side="response")
        one.answers(*echo(b"no such", side="response")).client(404, b"none").reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    @pytest.mark.parametrize("method", ["POST", "HEAD"])
    @pytest.mark.parametrize("came", [200, 405])
    @pytest.mark.parametrize("second", [(None, b"2"), (None, b"1"), (503, b"busy")])
    @pytest.mark.parametrize("served", [A, B])
    def test_of_two_attempts_at_a_time_the_one_that_the_client_heard(
        self, gateway, script, method, came, second, served
    ):
        """Requests that are hedged after a time: the last attempt need not be the one that answers."""
        status, answer = second[0] or came, second[1]
        one = script.exchange(body=BODY, method=method).request().answers(headers_answer(f"{A},{B},{C}"), *echo(BODY))
        script.pass_time(0.2)
        one.upstream(A, came, body=BODY, answer=b"1").upstream(B, status, body=BODY, answer=answer)
        one.response_headers(status=came, served=served, end=method == "HEAD").answers(headers_answer(side="response"))
        if method == "HEAD":
            one.client(came).reset()
        else:
            one.body(b"1", side="response").answers(*echo(b"1", side="response")).client(came, b"1").reset()
        alike = status == came and (method == "HEAD" or answer == b"1")
        right = served == A or alike
        verdicts = gateway(script, retries=2, retry_statuses=(503,))
        assert verdicts.blamed == (set() if right else {"DP-SRVD-01"})

    def test_an_epp_that_left_is_told_nothing(self, gateway, script):
        script.exchange().request().answers(headers_answer(A), *echo(BODY)).closed().upstream(A).client(200)
        assert gateway(script).blamed == set()

    def test_an_epp_that_ended_after_the_data_plane_was_there_to_be_told(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A).client(200)
        one.drained()
        assert gateway(script).blamed == {"DP-SRVD-01"}

    def test_another_on_the_body(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A).response_headers(served=A)
        one._served = B
        one.body(b"{}", side="response").client(200).reset()
        assert gateway(script).blamed == {"DP-SRVD-01"}

    @pytest.mark.parametrize(("served", "verdict"), [(A, Verdict.WARN), (B, Verdict.FAIL), (..., Verdict.FAIL)])
    def test_on_the_body_it_is_late(self, gateway, script, served, verdict):
        """The text does not say on which message it is."""
        one = script.exchange(metadata={}).request().answers(headers_answer(A), *echo(BODY)).upstream(A)
        one.response_headers()
        one._served = served
        one.body(b"{}", side="response").client(200).reset()
        assert gateway(script)["DP-SRVD-01"] is verdict

    @pytest.mark.parametrize(("served", "wrong"), [(A, False), (..., False), ([A], True), ("x", True)])
    def test_the_tap_sees_its_shape(self, ask, served, wrong):
        script = Script()
        one = script.exchange(opened=False).request().answers(headers_answer(A), *echo(BODY))
        one.response_headers(served=served).body(b"{}", side="response").reset()
        assert ask(script, role="data-plane").blamed == ({"DP-SRVD-01"} if wrong else set())


class TestTwoPools:
    """The first pool (a, b) fails; the second is c."""

    def moved(self, script, to=C, *, picks=C, asks=True, told=True, first=f"{A},{B}", tried=(A, B), told_first=False):
        one = script.exchange(epp="first").request().answers(headers_answer(first), *echo(BODY))
        for endpoint in tried:
            one.upstream(endpoint, 503, body=BODY)
        if told_first:
            one.response_headers(served=to).body(b"{}", side="response")
        one.reset()
        if asks:
            one.asks("second").request().answers(headers_answer(picks), *echo(BODY))
        one.upstream(to, body=BODY)
        if asks:
            one.response_headers(served=to if told else ...).body(b"{}", side="response").reset()
        one.client(200)

    def judged(self, gateway, script, version="next"):
        return gateway(script, version, backends=POOLS, retries=3, retry_statuses=(503,))

    def test_right(self, gateway, script):
        self.moved(script)
        verdicts = self.judged(gateway, script)
        assert verdicts.blamed == set()
        assert {verdicts[f"DP-SCOPE-0{number}"] for number in (1, 2, 3)} == {Verdict.PASS}

    @pytest.mark.parametrize(("tiers", "wrong"), [("gold", False), ("free", True)])
    @pytest.mark.parametrize(("path", "astray"), [(b"/v1/completions", False), (b"/two", True)])
    def test_each_pool_may_have_its_own_path_and_headers(self, gateway, script, tiers, wrong, path, astray):
        """A route changes requests for each of its backends before the EPP is asked; the second is sent them as they
        came."""
        came, gold = ((b"x-tier", b"free"),), ((b"x-tier", b"gold"),)
        one = script.exchange(epp="first", headers=came)
        one._headers = gold
        one.request().answers(headers_answer(f"{A},{B}"), *echo(BODY))
        one.upstream(A, 503, body=BODY, headers=((b":path", b"/v1/completions"), *gold))
        one.upstream(B, 503, body=BODY, headers=((b":path", path), (b"x-tier", tiers.encode()))).reset()
        one._headers = came
        one.asks("second").request().answers(headers_answer(C), *echo(BODY))
        one.upstream(C, body=BODY, headers=((b":path", b"/two"), *came))
        one.response_headers(served=C).body(b"{}", side="response").reset().client(200)
        assert ("DP-EXTP-01" in self.judged(gateway, script).blamed) is (wrong or astray)

    def test_at_once_to_the_other_pool_is_its_choice(self, gateway, script):
        self.moved(script, tried=(A,))
        self.moved(script, tried=())
        assert self.judged(gateway, script).blamed == set()

    def test_an_endpoint_of_the_other_pool_may_be_passed_by(self, gateway, script):
        self.moved(script, first=f"{C},{A},{B}")
        assert self.judged(gateway, script).blamed == set()

    def test_the_same_pool_out_of_order(self, gateway, script):
        self.moved(script, tried=(A, A))
        assert self.judged(gateway, script).blamed == {"DP-SCOPE-01"}
        assert self.judged(gateway, script, "1.0.0").blamed == {"DP-DEST-02"}

    def test_the_same_pool_out_of_order_after_a_dead_one(self, gateway, script):
        script.conduct(a="refuses")
        self.moved(script, first=f"{A},{B}", tried=(), asks=False, to=C, picks=C)
        assert "DP-DEST-02" not in self.judged(gateway, script).blamed

    def test_the_other_pools_epp_is_not_asked(self, gateway, script):
        self.moved(script, asks=False)
        assert self.judged(gateway, script).blamed == {"DP-SCOPE-02"}

    def test_back_to_the_pool_before(self, gateway, script):
        self.moved(script, to=B, tried=(A,))
        assert self.judged(gateway, script).blamed == {"DP-SCOPE-02"}

    def test_back_with_its_epp_asked_again(self, gateway, script):
        one = script.exchange(epp="first").request().answers(headers_answer(A), *echo(BODY)).upstream(A, 503).reset()
        one.asks("second").request().answers(headers_answer(C), *echo(BODY)).upstream(C, 503).reset()
        one.asks("first").request().answers(headers_answer(B), *echo(BODY)).upstream(B, body=BODY)
        one.response_headers(served=B).body(b"{}", side="response").client(200).reset()
        assert self.judged(gateway, script).blamed == set()

    def test_both_asked_at_first(self, gateway, script):
        one = script.exchange(epp="first").request().answers(headers_answer(A), *echo(BODY))
        one.asks("second").request().answers(headers_answer(C), *echo(BODY))
        one.upstream(A, body=BODY)
        one.stream = f"{one.name}-stream"
        one.response_headers(served=A).body(b"{}", side="response").client(200)
        assert "DP-SCOPE-02" not in self.judged(gateway, script).blamed

    def test_the_wrong_epp_learns_who_served(self, gateway, script):
        self.moved(script, told=False, told_first=True)
        assert self.judged(gateway, script).blamed == {"DP-SCOPE-03"}

    def test_no_epp_learns_it(self, gateway, script):
        self.moved(script, told=False)
        assert self.judged(gateway, script).blamed == {"DP-SRVD-01"}


class TestFailureMode:
    def down(self, script, *, attempts=(), got=500):
        script.epps(first=False)
        one = script.exchange(stream=False)
        for endpoint in attempts:
            one.upstream(endpoint)
        one.client(got)

    def failing(self, script, how, *, attempts=(), got=500):
        one = script.exchange().request()
        match how:
            case "error":
                one.closed(14)
            case "close":
                one.closed(0)
            case "lost":
                one.lost()
            case "reset":
                one.reset(Author.EPP)
            case _:
                one.reset()
        for endpoint in attempts:
            one.upstream(endpoint)
        one.client(got)

    def test_closed(self, gateway, script):
        self.down(script)
        assert gateway(script)["DP-FAIL-01"] is Verdict.PASS
        assert gateway(script, failure_mode="open").blamed == {"DP-FAIL-01"}

    def test_open(self, gateway, script):
        self.down(script, attempts=(A,), got=200)
        assert gateway(script, failure_mode="open")["DP-FAIL-01"] is Verdict.PASS
        verdicts = gateway(script)
        assert verdicts.blamed == verdicts.warned == {"DP-FAIL-01"}

    @pytest.mark.parametrize("down", [True, False])
    @pytest.mark.parametrize(
        ("sent", "got", "whole"),
        [
            (BODY, b"answer", True),
            (BODY.replace(b"m", b"n"), b"other", True),
            (b"", b"answer", False),
            (BODY[:9], b"answer", False),
            (BODY, b"ans", False),
            (BODY, b"", False),
        ],
    )
    def test_open_with_all_of_the_request(self, gateway, script, down, sent, got, whole):
        script.epps(first=not down)
        one = script.exchange(body=BODY, stream=not down)
        if not down:
            one.request().reset(Author.EPP)
        one.upstream(A, body=sent, answer=b"answer").client(200 if got else None, got)
        assert gateway(script, failure_mode="open").blamed == (set() if whole else {"DP-FAIL-01"})

    @pytest.mark.parametrize("how", ["error", "lost", "reset"])
    def test_ways_to_fail(self, gateway, script, how):
        self.failing(script, how)
        assert gateway(script)["DP-FAIL-01"] is Verdict.PASS
        self.failing(script, how, attempts=(B,), got=200)
        assert gateway(script).blamed == {"DP-FAIL-01"}

    def test_an_epp_that_wants_no_part_has_not_failed(self, gateway, script):
        self.failing(script, "close", attempts=(B,), got=200)
        assert gateway(script).blamed == set()

    def test_a_silent_epp(self, gateway, script):
        self.failing(script, "silent", got=504)
        assert gateway(script)["DP-FAIL-01"] is Verdict.PASS
        assert gateway(script, failure_mode="open").blamed == set()
        self.failing(script, "silent", attempts=(B,), got=200)
        assert gateway(script).blamed == {"DP-FAIL-01"}

    def test_open_and_asked_again_for_the_retry(self, gateway, script):
        one = script.exchange().request().reset(Author.EPP).upstream(A, 503)
        one.asks("again").request().answers(headers_answer(B), *echo(BODY)).upstream(B)
        one.response_headers(served=B).body(b"{}", side="response").client(200).reset()
        assert gateway(script, failure_mode="open").blamed == set()
        assert "DP-DEST-01" in gateway(script, failure_mode="closed").blamed

    @pytest.mark.parametrize("to", [(), (B,)])
    def test_an_epp_that_fails_when_it_is_asked_again(self, gateway, script, to):
        """What an EPP named before may be used all the same."""
        one = script.exchange(body=BODY).request().answers(headers_answer(f"{A},{B}"), *echo(BODY))
        one.upstream(A, 503, body=BODY, answer=b"busy").reset()
        one.asks("again").request().reset(Author.EPP)
        for endpoint in to:
            one.upstream(endpoint, 503, body=BODY, answer=b"busy")
        one.client(503, b"busy")
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize("answers", [(headers_answer(A), *echo(BODY)), (immediate(429),)])
    @pytest.mark.parametrize(
        ("waited", "mode", "right"), [(0.2, "open", True), (0.05, "open", False), (0.2, "closed", False)]
    )
    def test_a_gateway_that_fails_open_goes_on_without_an_epp_that_answers_later(
        self, gateway, script, answers, waited, mode, right
    ):
        one = script.exchange(body=BODY).request()
        script.pass_time(waited)
        one.upstream(B, body=BODY, answer=b"{}").answers(*answers).client(200, b"{}").reset()
        expected = {"x1": Expectation(requirement="DP-DEST-01", served_by=(A,))}
        assert (gateway(script, failure_mode=mode, expectations=expected).blamed == set()) is right


class TestExpectations:
    def judged(self, gateway, script, **expected):
        return gateway(script, expectations={"x1": Expectation(requirement="DP-DEST-02", **expected)})

    @pytest.mark.parametrize(
        ("expected", "met"),
        [
            ({"served_by": (A,)}, True),
            ({"served_by": (B, A)}, True),
            ({"served_by": (B,)}, False),
            ({"served_by": ()}, False),
            ({"status": (200, 204)}, True),
            ({"status": (503,)}, False),
        ],
    )
    def test_met_or_not(self, gateway, relayed, script, expected, met):
        relayed()
        assert self.judged(gateway, script, **expected).blamed == (set() if met else {"DP-DEST-02"})

    def test_what_an_epp_says_to_a_response_is_expected_if_it_is_told(self, gateway, relayed, script):
        one = script.exchange(body=BODY)
        one.request().answers(headers_answer(A), *echo(BODY)).upstream(A, answer=b"{}", body=BODY)
        one.client(200, b"{}").reset()
        expected = Expectation(requirement="DP-ERR-01", served_by=(A,), status=(403,))
        verdicts = gateway(script, "0.4.0", expectations={one.name: expected})
        assert verdicts.blamed == set()
        assert verdicts["DP-ERR-01"] is Verdict.NOT_APPLICABLE
        told = relayed()
        assert "DP-ERR-01" in gateway(script, "0.4.0", expectations={told.name: expected}).failed

    @pytest.mark.parametrize(("shown", "wrong"), [(True, True), (False, False)])
    def test_an_epp_that_is_shown_no_body_refuses_none(self, gateway, script, shown, wrong):
        """Without `protocol_config` it can't know, and lets the request go."""
        mode = "FULL_DUPLEX_STREAMED" if shown else "NONE"
        one = script.exchange(body=BODY, mode=mode, protocol_config=False).request().answers(headers_answer(A))
        one.answers(*(echo(BODY) if shown else ())).upstream(A, body=BODY)
        one.response_headers(served=A, end=True).answers(headers_answer(side="response")).client(200).reset()
        expected = Expectation(requirement="DP-ERR-01", served_by=(), status=(429,))
        verdicts = gateway(script, expectations={"x1": expected})
        assert ("DP-ERR-01" in verdicts.blamed) is wrong
        assert verdicts["DP-ERR-01"] is (Verdict.FAIL if wrong else Verdict.NOT_APPLICABLE)

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize(
        ("pick", "got", "verdict"),
        [(None, 503, Verdict.NOT_APPLICABLE), (None, 200, Verdict.FAIL), (A, 503, Verdict.FAIL)],
    )
    def test_a_request_that_was_let_go_without_a_pick_may_be_refused_at_once(
        self, gateway, script, told, pick, got, verdict
    ):
        """`told`: the EPP was told the body at the same time, and refused that."""
        one = script.exchange(body=BODY, mode="STREAMED").request_headers().answers(headers_answer(pick))
        one.body(BODY).answers(immediate(429)) if told else None
        one.client(got, b"no endpoint").reset()
        expected = Expectation(requirement="DP-ERR-01", served_by=(), status=(429,))
        assert gateway(script, expectations={"x1": expected})["DP-ERR-01"] is verdict

    def test_not_met_for_a_reason_that_was_found(self, gateway, relayed, script):
        relayed(A, (B,))
        assert self.judged(gateway, script, served_by=(A,)).blamed == {"DP-DEST-01"}

    def test_http2_that_the_gateway_takes_from_no_client_is_not_asked_for(self, gateway, script):
        script.exchange(stream=False, http=2).client(None, details="the connection failed: it speaks HTTP/1")
        verdicts = self.judged(gateway, script, served_by=(A,))
        assert verdicts.blamed == set()
        assert verdicts["DP-DEST-02"] is Verdict.NOT_APPLICABLE
        script.exchange(stream=False, http=2).upstream(A).client(200)
        assert "DP-DEST-02" in self.judged(gateway, script, served_by=(A,)).failed

    @pytest.mark.parametrize(("waited", "excused"), [(0.2, True), (0.05, False)])
    def test_a_gateway_may_go_on_without_an_epp_that_it_waited_for(self, gateway, script, waited, excused):
        one = script.exchange().request()
        script.pass_time(waited)
        one.reset().client(504)
        verdicts = self.judged(gateway, script, served_by=(A,))
        assert verdicts.blamed == (set() if excused else {"DP-DEST-02"})

    def test_one_that_fails_closed_may_not_send_the_request_on_meanwhile(self, gateway, script):
        """What was expected of it is not excused by its waiting."""
        one = script.exchange(body=BODY).request()
        script.pass_time(0.2)
        one.upstream(B, body=BODY, answer=b"{}").answers(headers_answer(A), *echo(BODY)).client(200, b"{}").reset()
        verdicts = self.judged(gateway, script, served_by=(A,))
        assert verdicts["DP-DEST-02"] is not Verdict.NOT_APPLICABLE
        assert "DP-DEST-01" in verdicts.blamed

    def test_a_gateway_may_go_on_without_an_epp_and_leave_the_stream_later(self, gateway, script):
        one = script.exchange().request()
        script.pass_time(0.2)
        one.client(504).answers(headers_answer(A), *echo(BODY)).reset()
        assert self.judged(gateway, script, served_by=(A,)).blamed == set()

    @pytest.mark.parametrize(
        ("method", "size", "status", "verdict"),
        [
            ("OPTIONS", 50, 501, Verdict.NOT_APPLICABLE),
            ("POST", 50, 501, Verdict.INCONCLUSIVE),
            ("DELETE", 50, 405, Verdict.NOT_APPLICABLE),
            ("GET", 0, 405, Verdict.INCONCLUSIVE),
            ("POST", 4_000_000, 413, Verdict.NOT_APPLICABLE),
            ("POST", 900_000, 413, Verdict.INCONCLUSIVE),
        ],
    )
    def test_what_a_gateway_may_refuse_without_asking_the_epp(self, gateway, script, method, size, status, verdict):
        script.exchange(method=method, body=b"x" * size, stream=False).client(status)
        expected = Expectation(requirement="DP-EXTP-01", served_by=(A,))
        assert gateway(script, expectations={"x1": expected})["DP-EXTP-01"] is verdict

    @pytest.mark.parametrize(
        ("note", "verdict"), [({"unannounced": True}, Verdict.NOT_APPLICABLE), ({}, Verdict.INCONCLUSIVE)]
    )
    def test_a_gateway_may_demand_to_be_told_the_length_of_a_body(self, gateway, script, note, verdict):
        script.exchange(body=BODY, note=note, stream=False).client(411)
        expected = Expectation(requirement="DP-EXTP-01", served_by=(A,))
        assert gateway(script, expectations={"x1": expected})["DP-EXTP-01"] is verdict

    @pytest.mark.parametrize("status", [400, 415, 422])
    @pytest.mark.parametrize(
        ("content_type", "body", "verdict"),
        [
            (b"application/octet-stream", BODY, Verdict.NOT_APPLICABLE),
            (b"application/octet-stream", b"", Verdict.INCONCLUSIVE),
            (b"application/grpc", BODY, Verdict.INCONCLUSIVE),
            (b"Application/JSON", BODY, Verdict.INCONCLUSIVE),
            (b"application/json; charset=utf-8", BODY, Verdict.INCONCLUSIVE),
        ],
    )
    def test_a_gateway_may_take_bodies_in_json_only(self, gateway, script, status, content_type, body, verdict):
        script.exchange(body=body, headers=((b"content-type", content_type),), stream=False).client(status)
        expected = Expectation(requirement="DP-EXTP-01", served_by=(A,))
        assert gateway(script, expectations={"x1": expected})["DP-EXTP-01"] is verdict

    @pytest.mark.parametrize("status", [400, 403])
    @pytest.mark.parametrize(
        ("headers", "verdict"),
        [
            (((b"X-Gateway-Destination-Endpoint", B.encode()),), Verdict.NOT_APPLICABLE),
            (((b"x-tenant", B.encode()),), Verdict.INCONCLUSIVE),
        ],
    )
    def test_a_gateway_may_refuse_a_client_that_names_its_destination(self, gateway, script, status, headers, verdict):
        script.exchange(headers=headers, stream=False).client(status)
        expected = Expectation(requirement="DP-EXTP-01", served_by=(A,))
        assert gateway(script, expectations={"x1": expected})["DP-EXTP-01"] is verdict

    @pytest.mark.parametrize("status", [426, 505])
    @pytest.mark.parametrize(
        ("opened", "verdict"),
        [
            ({"note": {"written": "http-1.0"}}, Verdict.NOT_APPLICABLE),
            ({"http": 2}, Verdict.NOT_APPLICABLE),
            ({"note": {"written": "absolute-form"}}, Verdict.INCONCLUSIVE),
            ({}, Verdict.INCONCLUSIVE),
        ],
    )
    def test_a_gateway_may_refuse_a_version_of_http(self, gateway, script, status, opened, verdict):
        script.exchange(body=BODY, stream=False, **opened).client(status)
        expected = Expectation(requirement="DP-EXTP-01", served_by=(A,))
        assert gateway(script, expectations={"x1": expected})["DP-EXTP-01"] is verdict

    def test_a_connection_of_http1_is(self, gateway, script):
        script.exchange(stream=False).client(None, details="the connection failed: nothing listens")
        assert self.judged(gateway, script, served_by=(A,)).failed == {"DP-DEST-02"}


class TestRoles:
    def test_epps_are_not_judged_here_nor_gateways_there(self, ask, gateway, script):
        one = script.exchange().request().answers(headers_answer(header=A, metadata=B), immediate(42))
        one.upstream(C).client(200).reset()
        assert all(finding.requirement.startswith("DP-") for finding in gateway(script).findings)
        assert not any(finding.requirement.startswith("DP-") for finding in ask(script).findings)
