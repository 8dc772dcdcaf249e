"""Role data-plane: what it says to the EPP (DP-EXTP-01, DP-SUB-01)."""

from __future__ import annotations

import pytest
from scripted import BODY, SUBSET_NAMESPACE, Script, echo, headers_answer, immediate, option

from conformance.verdict import Verdict
from ext_proc.messages import HeaderMap, HeaderValue, HttpBody, HttpHeaders, HttpTrailers, ProtocolConfiguration
from ext_proc.messages import ProcessingMode as Modes
from ext_proc.protocol import SUBSET
from ext_proc.record import Author, Malformed, Wait

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def upper(*names):
    return HeaderMap(headers=[HeaderValue(key=name, raw_value=b"1") for name in names])


def wire(ask, script, **claims):
    """What a tap would say: no HTTP side was observed."""
    return ask(script, role="data-plane", **claims)


class TestAsked:
    @pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"])
    @pytest.mark.parametrize("config", [True, False])
    def test_every_body_mode_is_right(self, gateway, script, mode, config):
        one = script.exchange(mode=mode, protocol_config=config).request_headers().answers(headers_answer(A))
        if mode != "NONE":
            one.body(BODY)
            answers = echo(BODY) if mode == "FULL_DUPLEX_STREAMED" else ()
            one.answers(*answers)
        one.upstream(A, body=BODY).response_headers(served=A).answers(headers_answer(side="response"))
        if mode != "NONE":
            one.body(b"{}", side="response")
        one.client(200).reset()
        assert gateway(script).blamed == set()

    def test_a_request_without_a_body(self, gateway, script):
        one = script.exchange(method="GET").request(None).answers(headers_answer(A)).upstream(A)
        one.response_headers(served=A, end=True).client(200).drained()
        assert gateway(script).blamed == set()

    def test_trailers_in_place_of_the_end(self, gateway, script):
        one = script.exchange().request(trailers=True).answers(headers_answer(A))
        one.upstream(A, body=BODY).response_headers(served=A).body(b"{}", side="response", trailers=True)
        one.client(200).reset()
        assert gateway(script).blamed == set()

    def test_not_asked(self, gateway, script):
        script.exchange(stream=False).upstream(A).client(200)
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_not_asked_and_a_response_from_elsewhere(self, gateway, script):
        script.exchange(stream=False).client(200)
        assert gateway(script).failed == {"DP-EXTP-01"}

    def test_not_asked_as_there_is_no_epp(self, gateway, script):
        script.epps(first=False)
        script.exchange(stream=False).client(500)
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize("status", [404, 413, 500, 503])
    def test_a_request_that_the_gateway_refused_tells_nothing(self, gateway, script, status):
        script.exchange(stream=False).client(status)
        assert gateway(script)["DP-EXTP-01"] is Verdict.INCONCLUSIVE

    @pytest.mark.parametrize(("to", "status", "verdict"), [(A, 200, Verdict.FAIL), (None, 504, Verdict.INCONCLUSIVE)])
    def test_a_stream_on_which_nothing_is_said(self, gateway, script, to, status, verdict):
        one = script.exchange(body=BODY)
        script.pass_time(0.5)
        one = one.upstream(to, body=BODY, answer=b"{}") if to else one
        one.client(status, b"{}").reset()
        assert gateway(script)["DP-EXTP-01"] is verdict

    def test_a_stream_that_may_be_the_requests(self, gateway, script):
        script.exchange(stream=False).upstream(A).client(200)
        script.exchange(opened=False).request().answers(headers_answer(A), *echo(BODY)).reset()
        assert gateway(script)["DP-EXTP-01"] is Verdict.INCONCLUSIVE

    def test_the_gateway_died(self, gateway, relayed, script):
        relayed()
        script.crashed(-11, "segmentation fault")
        verdicts = gateway(script)
        assert verdicts.failed == {"DP-EXTP-01"}
        assert "signal 11" in verdicts.finding("DP-EXTP-01").actual


class TestMessages:
    @pytest.mark.parametrize("body", [BODY, b"x" * 9000, None])
    def test_a_buffered_body_that_is_not_told(self, gateway, script, body):
        """One that is too long need not be collected."""
        one = script.exchange(body=body, mode="BUFFERED", response_mode="NONE").request_headers()
        one.answers(headers_answer(A)).upstream(A, body=body or b"", answer=b"{}").response_headers(served=A)
        one.answers(headers_answer(side="response")).client(200, b"{}").reset()
        assert gateway(script).blamed == ({"DP-EXTP-01"} if body == BODY else set())

    def test_what_is_right_is_right_for_the_tap(self, ask):
        script = Script()
        one = script.exchange(opened=False).request().answers(headers_answer(A), *echo(BODY))
        one.response_headers(served=A).body(b"{}", side="response").reset()
        verdicts = wire(ask, script)
        assert verdicts.blamed == set()
        assert verdicts["DP-EXTP-01"] is Verdict.PASS
        assert verdicts["DP-SRVD-01"] is verdicts["DP-DEST-01"] is Verdict.NOT_APPLICABLE

    @pytest.mark.parametrize(
        "message",
        [
            {"request_headers": HttpHeaders(headers=upper("X-Upper"), end_of_stream=True)},
            {"request_body": HttpBody(body=b"x", end_of_stream=True)},
            {},
        ],
    )
    def test_a_wrong_beginning(self, ask, message):
        script = Script()
        script.exchange(opened=False).say(**message).reset()
        assert wire(ask, script).blamed == {"DP-EXTP-01"}

    @pytest.mark.parametrize("request_follows", [False, True])
    def test_a_reply_of_an_earlier_filter_has_no_request(self, ask, request_follows):
        """ENV-23: one that denies a request answers it, and ext_proc sees the response alone."""
        script = Script()
        one = script.exchange(opened=False).say(response_headers=HttpHeaders(headers=upper(":status")))
        if request_follows:
            one.say(request_headers=HttpHeaders(headers=upper("x"), end_of_stream=True))
        one.reset()
        assert wire(ask, script).blamed == ({"DP-EXTP-01"} if request_follows else set())

    @pytest.mark.parametrize(
        "message",
        [
            {"request_headers": HttpHeaders(headers=upper("x"))},
            {"request_body": HttpBody(body=b"late")},
            {"request_trailers": HttpTrailers(trailers=upper("x"))},
            {"response_body": HttpBody(body=b"no headers before")},
            {"response_headers": HttpHeaders(headers=upper("Content-Type"))},
        ],
    )
    def test_a_wrong_message_after_a_whole_request(self, ask, message):
        script = Script()
        script.exchange(opened=False).request().say(**message).reset()
        assert wire(ask, script).blamed == {"DP-EXTP-01"}

    def test_upper_case_in_trailers(self, ask):
        script = Script()
        one = script.exchange(opened=False).request_headers()
        one.say(request_trailers=HttpTrailers(trailers=upper("X-End"))).reset()
        assert wire(ask, script).blamed == {"DP-EXTP-01"}

    def test_protocol_config_twice(self, ask):
        script = Script()
        config = ProtocolConfiguration(request_body_mode=Modes.STREAMED)
        script.exchange(opened=False).request_headers().say(
            request_body=HttpBody(body=b"x", end_of_stream=True), protocol_config=config
        ).reset()
        assert wire(ask, script).blamed == {"DP-EXTP-01"}

    def test_bytes_that_are_no_message(self, ask):
        script = Script()
        script.exchange(opened=False).raw(b"\xff\xff", Author.DATA_PLANE).reset()
        one = script.exchange(opened=False)
        one.emit(Malformed(exchange=one.name, stream=one.stream, author=Author.DATA_PLANE, raw=b"x", reason="cut"))
        assert len(wire(ask, script).of(Verdict.FAIL)) == 1
        assert len([one for one in wire(ask, script).findings if one.verdict is Verdict.FAIL]) == 2

    def test_what_the_schema_does_not_know_is_not_judged(self, ask):
        script = Script()
        script.exchange(opened=False).raw(b"\xfa\x3f\x01x", Author.DATA_PLANE).reset()
        assert wire(ask, script).blamed == set()

    @pytest.mark.parametrize("length", [b"51", b"9" * 5000])
    def test_early_end_of_a_request_with_a_body(self, gateway, script, length):
        one = script.exchange(headers=((b"content-length", length),)).request_headers(end=True)
        one.answers(headers_answer(A)).upstream(A, body=BODY).response_headers(served=A).body(b"{}", side="response")
        one.client(200).reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_early_end_of_a_request_whose_body_goes_nowhere(self, gateway, script):
        """As where a body without a content-length is taken for none."""
        one = script.exchange(body=BODY).request(None).answers(headers_answer(A)).upstream(A, answer=b"{}")
        one.response_headers(served=A).body(b"{}", side="response").client(200, b"{}").reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_no_end_for_an_epp_that_is_left_for_another(self, gateway, script):
        """What its first answer names is dead: there is no use in telling it the rest."""
        script.conduct(a="refuses")
        one = script.exchange(body=BODY).request_headers().answers(headers_answer(A)).reset()
        one.asks("second").request().answers(headers_answer(B), *echo(BODY)).upstream(B, body=BODY)
        one.response_headers(served=B).body(b"{}", side="response").client(200).reset()
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "STREAMED"])
    @pytest.mark.parametrize("side", ["request", "response"])
    def test_no_end(self, gateway, script, mode, side):
        one = script.exchange(mode=mode).request_headers().answers(headers_answer(A))
        one.body(BODY, end=side != "request").upstream(A, body=BODY).response_headers(served=A)
        one.body(b"{}", side="response", end=side != "response").client(200).reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_no_end_and_no_answer(self, gateway, script):
        one = script.exchange().request_headers().body(BODY, end=False)
        one.emit(Wait(exchange=one.name, what="response of the gateway", outcome="expired", seconds=5)).reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_no_body_until_the_epp_answers(self, gateway, script):
        """In full duplex it may wait for the whole body before it says a word."""
        one = script.exchange().request_headers()
        script.pass_time(0.6)
        one.reset().client(500)
        assert gateway(script).blamed == {"DP-EXTP-01"}

    @pytest.mark.parametrize(("pieces", "end", "waited"), [((BODY,), True, 4.0), ((BODY,) * 20, False, 0.1)])
    def test_an_epp_that_is_given_up_when_it_was_told_all_there_was(self, gateway, script, pieces, end, waited):
        one = script.exchange().request_headers()
        for piece in pieces:
            script.pass_time(waited)
            one.chunk(piece)
        if end:
            one.chunk(b"", end=True)
        script.pass_time(waited)
        one.reset().client(500)
        assert gateway(script).blamed == set()

    def test_no_end_where_the_epp_left(self, gateway, script):
        one = script.exchange().request_headers().answers(headers_answer(A)).closed()
        one.upstream(A, body=BODY).client(200)
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize(
        ("waited", "mode", "blamed"), [(0.3, "open", False), (0.05, "open", True), (0.3, "closed", True)]
    )
    def test_an_epp_that_is_slow_with_the_response(self, gateway, script, waited, mode, blamed):
        """A gateway that fails open gives it to the client, and ends the stream. What the EPP says is too late."""
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, body=BODY, answer=b"{}").response_headers(served=A)
        script.pass_time(waited)
        one.client(200, b"{}").answers(headers_answer(side="response", options=[option("x-a", "1")])).reset()
        assert gateway(script, failure_mode=mode).blamed == ({"DP-EXTP-01"} if blamed else set())

    @pytest.mark.parametrize(("mode", "blamed"), [("open", set()), ("closed", {"DP-EXTP-01"})])
    def test_an_epp_that_never_answers_the_response(self, gateway, script, mode, blamed):
        """One that fails closed has no reason to pass it on, and not to tell the EPP the rest of it."""
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, body=BODY, answer=b"{}").response_headers(served=A)
        script.pass_time(0.3)
        one.client(200, b"{}").reset()
        assert gateway(script, failure_mode=mode).blamed == blamed

    def test_messages_in_flight_when_the_epp_answered_itself(self, gateway, script):
        script.exchange().request_headers().answers(immediate(429)).body(BODY).client(429).reset()
        assert gateway(script).blamed == set()

    def test_the_epps_own_answer_as_a_response(self, gateway, script):
        script.exchange().request().answers(immediate(429)).response_headers(status=429).client(429).reset()
        assert gateway(script).blamed == {"DP-EXTP-01"}

    def test_a_local_reply_of_the_gateway_meanwhile(self, gateway, script):
        script.exchange().request().answers(immediate(429)).response_headers(status=413).client(429).reset()
        assert gateway(script).blamed == set()

    def test_two_streams_for_one_request_are_allowed(self, gateway, script):
        one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A, 503, body=BODY).reset()
        one.asks("again").request().answers(headers_answer(B), *echo(BODY)).upstream(B, body=BODY)
        one.response_headers(served=B).body(b"{}", side="response").client(200).reset()
        assert gateway(script).blamed == set()


class TestSubset:
    def sent(self, script, subset, **more):
        one = script.exchange(subset=subset, **more).request().answers(headers_answer(A), *echo(BODY)).upstream(A)
        one.response_headers(served=A).body(b"{}", side="response").client(200).reset()

    @pytest.mark.parametrize("subset", [[A], [A, B, C], [], [B, B]])
    def test_right(self, gateway, script, subset):
        self.sent(script, subset)
        verdicts = gateway(script, sends_subset=True)
        assert verdicts.blamed == set()
        assert verdicts["DP-SUB-01"] is Verdict.PASS

    @pytest.mark.parametrize(
        "subset", [A, f"{A},{B}", [8000], {"a": A}, None, ["10.0.0.1"], [f" {A}"], ["pod-a:8000"], ["10.7.7.7:8000"]]
    )
    def test_wrong(self, gateway, script, subset):
        self.sent(script, subset)
        assert gateway(script).blamed == {"DP-SUB-01"}
        assert gateway(script, "0.2.0").blamed == set()

    def test_another_hint_on_a_later_message(self, gateway, script):
        one = script.exchange(subset=[A, B]).request_headers()
        one._subset = [B, A]
        one.body(BODY[:9], end=False)
        assert gateway(script).blamed == set()
        one._subset = "10.0.0.1:8000"
        one.body(BODY[9:]).answers(headers_answer(A), *echo(BODY)).reset()
        assert gateway(script).blamed >= {"DP-SUB-01"}

    def test_a_hint_on_the_headers_only(self, gateway, script):
        self.sent(script, [A, B], hint_on="headers")
        assert gateway(script, sends_subset=True)["DP-SUB-01"] is Verdict.PASS

    @pytest.mark.parametrize("named", [[A], [A, B], []])
    def test_no_more_than_the_client_named(self, gateway, script, named):
        self.sent(script, [A], note={"subset": named})
        assert gateway(script)["DP-SUB-01"] is Verdict.PASS

    def test_more_than_the_client_named(self, gateway, script):
        self.sent(script, [B, A], note={"subset": [A]})
        assert gateway(script).blamed == {"DP-SUB-01"}

    @pytest.mark.parametrize("sent", [[A], []])
    def test_less_than_the_client_named(self, gateway, script, sent):
        self.sent(script, sent, note={"subset": [A, B], "subset_owed": True})
        assert gateway(script).blamed == {"DP-SUB-01"}

    @pytest.mark.parametrize(("named", "owed"), [([A, B], False), ([A, C], True), ([A, "10.7.7.7:8000"], True)])
    def test_what_need_not_be_in_it(self, gateway, script, named, owed):
        script.conduct(c="refuses")
        self.sent(script, [A], note={"subset": named, "subset_owed": owed})
        assert gateway(script)["DP-SUB-01"] is Verdict.PASS

    def test_another_namespace(self, gateway, script):
        self.sent(script, ..., metadata={"envoy.lb": {SUBSET: [A]}})
        assert gateway(script).blamed == {"DP-SUB-01"}

    def test_none_is_allowed_unless_it_is_claimed(self, gateway, script):
        self.sent(script, ..., metadata={SUBSET_NAMESPACE: {"x": 1}})
        assert gateway(script)["DP-SUB-01"] is Verdict.NOT_APPLICABLE
        assert gateway(script, sends_subset=True).blamed == {"DP-SUB-01"}

    @pytest.mark.parametrize(
        ("named", "owed", "verdict"),
        [([A], True, Verdict.FAIL), ([A], False, Verdict.NOT_APPLICABLE), ([], True, Verdict.NOT_APPLICABLE)],
    )
    def test_none_although_the_client_named_one_by_the_header_of_the_profile(
        self, gateway, script, named, owed, verdict
    ):
        self.sent(script, ..., note={"subset": named, "subset_owed": owed})
        assert gateway(script)["DP-SUB-01"] is verdict

    def test_the_tap_knows_no_pool(self, ask):
        script = Script()
        script.exchange(opened=False, subset=["10.7.7.7:8000"]).request().reset()
        script.exchange(opened=False, subset="10.7.7.7:8000").request().reset()
        assert len([one for one in wire(ask, script).findings if one.verdict is Verdict.FAIL]) == 1
