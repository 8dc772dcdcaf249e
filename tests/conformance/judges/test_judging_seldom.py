"""Exchanges that seldom come: right ones that look wrong, and wrong ones that look right."""

from __future__ import annotations

import json

import pytest

from conformance.episode import Claims, Expectation
from conformance.scripted import (
    BODY,
    Script,
    body_answer,
    echo,
    headers_answer,
    immediate,
    option,
    streamed,
    trailers_answer,
)
from conformance.steering import DESTINATION, FALLBACK
from conformance.verdict import Verdict
from ext_proc.messages import BodyMutation, CommonResponse, HeaderMutation
from ext_proc.record import Author

A, B, STRANGER = "10.0.0.1:8000", "10.0.0.2:8000", "10.9.9.9:8000"
POOL = {"a": A, "b": B}
REWRITTEN = json.dumps({"model": "another", "prompt": "Say hello."}).encode()
LENGTH = ((b"content-length", str(len(BODY)).encode()),)


def script() -> Script:
    return Script(pool=POOL)


def length(number: int):
    return option("content-length", str(number))


class TestContentLength:
    """ENV-10 is about what is left after all mutations."""

    def rewritten(self, *, mode: str = "BUFFERED", first: tuple = (), then: HeaderMutation | None = None) -> Script:
        made = script()
        exchange = made.exchange(mode=mode, headers=LENGTH).request_headers()
        exchange.answers(headers_answer(A, options=list(first))).body(BODY)
        exchange.answers(body_answer(header_mutation=then, body_mutation=BodyMutation(body=REWRITTEN))).drained()
        return made

    def judged(self, ask, made: Script):
        return ask(made, claims=Claims(body_rewrites=("model", "prompt", "max_tokens")))

    def test_the_last_answer_counts(self, ask):
        then = HeaderMutation(set_headers=[length(len(REWRITTEN))])
        assert self.judged(ask, self.rewritten(first=(length(len(BODY)),), then=then))["ENV-10"] is Verdict.PASS

    def test_removed_in_the_end(self, ask):
        then = HeaderMutation(remove_headers=["Content-Length"])
        found = self.judged(ask, self.rewritten(first=(length(len(BODY)),), then=then))
        assert "ENV-10" not in found.blamed

    def test_wrong_in_the_end(self, ask):
        then = HeaderMutation(set_headers=[length(len(BODY))])
        assert "ENV-10" in self.judged(ask, self.rewritten(first=(length(len(REWRITTEN)),), then=then)).failed

    def test_two_in_one_answer(self, ask):
        then = HeaderMutation(set_headers=[length(len(BODY)), length(len(REWRITTEN))])
        assert "ENV-10" in self.judged(ask, self.rewritten(then=then)).failed

    @pytest.mark.parametrize(("mode", "wrong"), [("BUFFERED", True), ("BUFFERED_PARTIAL", False)])
    def test_left_as_it_was(self, ask, mode, wrong):
        assert ("ENV-10" in self.judged(ask, self.rewritten(mode=mode)).failed) is wrong


class TestRefusals:
    def refused(self, code: int, *, pool: dict[str, str] = POOL, body: bytes | None = None, **exchange):
        made = Script(pool=pool)
        made.exchange(**exchange).request(body).answers(immediate(code)).drained()
        return made

    def test_a_post_of_nothing_is_odd(self, ask):
        """AMB-08, as for an empty body that comes as a message."""
        assert not ask(self.refused(400, pool={})).blamed
        assert not ask(self.refused(400, subset=[STRANGER])).blamed
        busy = script().gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
        busy.exchange().request(None).answers(immediate(400)).drained()
        assert not ask(busy).blamed

    def test_a_get_is_not(self, ask):
        assert "EPP-ERR-02" in ask(self.refused(400, pool={}, method="GET")).failed

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/completions", b'{"model": "m", "prompt": "p", "temperature": NaN}'),
            ("/v1/completions", '{"model": "m", "prompt": "p"}'.encode("utf-16")),
            ("/v1/completions", b'{"model": "m", "messages": [{"role": "user", "content": "c"}]}'),
            ("/v1/chat/completions", b'{"model": "m", "prompt": "p"}'),
            ("/v1/chat/completions", b'{"model": "m", "messages": ["c"]}'),
        ],
    )
    def test_no_inference_request_may_be_refused(self, ask, path, body):
        assert not ask(self.refused(400, body=body, path=path)).blamed

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/completions", b'{"model": "m", "prompt": "p"}'),
            ("/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "c"}]}'),
        ],
    )
    def test_one_that_is_may_not(self, ask, path, body):
        assert "EPP-DEST-01" in ask(self.refused(400, body=body, path=path)).failed

    @pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"])
    @pytest.mark.parametrize(("code", "wrong"), [(500, True), (200, True), (400, False)])
    def test_on_the_headers_alone(self, ask, mode, code, wrong):
        """No body can have been at fault where none was there; of headers 4xx may still complain."""
        made = script()
        made.exchange(mode=mode).request_headers().answers(immediate(code)).drained()
        assert ("EPP-DEST-01" in ask(made).failed) is wrong

    def test_on_the_headers_of_who_knows_what(self, ask):
        made = script()
        made.exchange(path="/upload").request_headers().answers(immediate(500)).drained()
        assert "EPP-DEST-01" not in ask(made).failed


class TestFallback:
    def with_fallback(self, elsewhere: dict | None = None, **exchange) -> Script:
        made = script()
        metadata = {"envoy.lb": {DESTINATION: A, FALLBACK: B}, **(elsewhere or {})}
        made.exchange(**exchange).request().answers(headers_answer(A, metadata=metadata), *echo(BODY)).drained()
        return made

    def test_a_copy_elsewhere_does_no_harm(self, ask):
        assert ask(self.with_fallback({FALLBACK: B}), "0.3.0")["EPP-FB-01"] is Verdict.PASS
        assert ask(self.with_fallback({"another": {FALLBACK: B}}), "0.3.0")["EPP-FB-01"] is Verdict.PASS

    def test_a_hint_that_came_too_late_does_not_bind(self, ask):
        assert ask(self.with_fallback(subset=[A], hint_on="body"), "0.3.0")["EPP-FB-01"] is Verdict.PASS
        assert "EPP-FB-01" in ask(self.with_fallback(subset=[A]), "0.3.0").failed


class TestEndsOfStreams:
    def responding(self):
        made = script()
        exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY)).response_headers()
        return made, exchange.answers(headers_answer(side="response"))

    @pytest.mark.parametrize("how", ["status", "reset"])
    def test_an_error_between_the_phases(self, ask, how):
        """Envoy answers 500 to it, and goes on after a clean end."""
        made = script()
        exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
        if how == "status":
            exchange.closed(13, "boom")
        else:
            exchange.reset(Author.EPP)
        assert "ENV-16" in ask(made).failed

    def test_a_clean_end_between_the_phases(self, ask):
        made = script()
        made.exchange().request().answers(headers_answer(A), *echo(BODY)).closed()
        assert "ENV-16" not in ask(made).blamed

    def test_an_error_before_the_response_body(self, ask):
        made, exchange = self.responding()
        exchange.closed(13, "boom")
        assert "ENV-16" in ask(made).failed

    @pytest.mark.parametrize("back", [(), (streamed(b"he", side="response"),)])
    def test_a_body_that_is_lost_behind_its_trailers(self, ask, back):
        made, exchange = self.responding()
        exchange.body(b"hello", side="response", trailers=True).answers(*back).closed()
        assert "ENV-06" in ask(made).failed

    def test_a_body_that_came_back_before_them(self, ask):
        made, exchange = self.responding()
        exchange.body(b"hello", side="response", trailers=True)
        exchange.answers(streamed(b"hello", side="response")).closed()
        assert "ENV-06" not in ask(made).blamed


class TestBuffered:
    def response(self, mutation: HeaderMutation) -> Script:
        made = script()
        exchange = made.exchange(response_mode="BUFFERED").request().answers(headers_answer(A), *echo(BODY))
        exchange.response_headers().answers(headers_answer(side="response")).body(b"{}", side="response")
        exchange.answers(body_answer(side="response", header_mutation=mutation)).drained()
        return made

    def test_the_body_answer_leaves_the_status_alone(self, ask):
        assert ask(self.response(HeaderMutation()))["ENV-24"] is Verdict.PASS
        assert "ENV-24" in ask(self.response(HeaderMutation(set_headers=[option(":status", "500")]))).failed
        assert "ENV-24" in ask(self.response(HeaderMutation(remove_headers=["content-type"]))).failed

    def test_trailers_are_too_late_for_the_destination(self, ask):
        late = trailers_answer()
        late.request_trailers.header_mutation.set_headers.append(option(DESTINATION, A))
        made = script()
        exchange = made.exchange(mode="BUFFERED").request_headers()
        exchange.answers(headers_answer(header=None, metadata=A)).body(BODY, trailers=True)
        exchange.answers(body_answer(), late).drained()
        assert "ENV-13" in ask(made).failed


@pytest.mark.parametrize(
    ("metadata", "verdict"), [("10.0.0.1:8000 ", Verdict.WARN), ("10.0.0.1:80 00", Verdict.FAIL), (A, Verdict.PASS)]
)
def test_blanks_around_an_item_are_not_blanks_within(ask, metadata, verdict):
    made = script()
    made.exchange().request().answers(headers_answer(A, metadata=metadata), *echo(BODY)).drained()
    assert ask(made)["EPP-DEST-05"] is verdict


@pytest.mark.parametrize(
    ("mode", "number", "wrong"), [("BUFFERED", 51, True), ("NONE", 51, True), ("BUFFERED", 0, False)]
)
def test_a_length_for_a_request_without_a_body(ask, mode, number, wrong):
    made = script()
    exchange = made.exchange(mode=mode, method="GET").request(None)
    exchange.answers(headers_answer(A, options=[length(number)])).drained()
    assert ("ENV-10" in ask(made).failed) is wrong


def test_no_immediate_response_after_the_last_chunk(ask):
    made = script()
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY)).response_headers()
    exchange.answers(headers_answer(side="response")).body(b"{}", side="response")
    exchange.answers(*echo(b"{}", side="response"), immediate(500)).drained()
    assert "ENV-15" in ask(made).failed


@pytest.mark.parametrize("end", ["half-closed", "aborted"])
def test_once_the_data_plane_is_done_any_end_will_do(ask, end):
    made = script()
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
    _ = exchange.drained(1) if end == "half-closed" else exchange.aborted().closed(1, "cancelled")
    assert "ENV-16" not in ask(made).blamed


class TestLeftBeforeTheBody:
    """A clean end lets Envoy go on with what was answered; in buffered mode the headers' answer may be all."""

    def left(self, answer) -> Script:
        made = script()
        made.exchange(mode="BUFFERED", subset=[A]).request_headers().answers(answer).body(BODY).closed()
        return made

    def test_steered_by_the_headers_answer(self, ask):
        expected = {"x1": Expectation(answer=("endpoint",), requirement="EPP-DEST-01")}
        found = ask(self.left(headers_answer(A)), expectations=expected, requirements=("EPP-DEST-01",))
        assert not found.blamed
        assert found["EPP-DEST-01"] is Verdict.PASS

    def test_steered_out_of_the_subset(self, ask):
        assert "EPP-SUB-01" in ask(self.left(headers_answer(B))).failed

    def test_not_steered_at_all(self, ask):
        assert ask(self.left(headers_answer())).failed == {"EPP-DEST-01"}

    def test_not_even_the_headers_answered(self, ask):
        made = script()
        made.exchange(mode="BUFFERED").request_headers().body(BODY).closed()
        assert "ENV-16" in ask(made).failed


def test_an_error_on_the_trailers_of_a_buffered_request(ask):
    """It is held back until its trailers are answered."""
    made = script().gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
    exchange = made.exchange(mode="BUFFERED").request_headers().answers(headers_answer())
    exchange.body(BODY, trailers=True).answers(body_answer(), immediate(429)).drained()
    assert not ask(made).blamed


class TestOddRequestsOfABusyPool:
    def refused(self, code: int, body: bytes | None, **exchange) -> Script:
        made = script().gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
        made.exchange(**exchange).request(body).answers(immediate(code)).drained()
        return made

    def test_they_are_no_worse_than_of_an_idle_one(self, ask):
        assert not ask(self.refused(500, b"{nope")).failed
        assert not ask(self.refused(404, None, method="GET")).failed

    def test_an_inference_request_is_dropped_with_429(self, ask):
        assert "EPP-ERR-03" in ask(self.refused(500, BODY)).failed
        assert "EPP-ERR-03" in ask(self.refused(503, None, method="GET")).failed


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_body_that_is_replaced_unseen(ask, side):
    made = script()
    replacing = headers_answer(A if side == "request" else None, side=side)
    getattr(replacing, f"{side}_headers").response.status = CommonResponse.CONTINUE_AND_REPLACE
    exchange = made.exchange(mode="BUFFERED", response_mode="BUFFERED").request_headers()
    if side == "request":
        exchange.answers(replacing)
    else:
        exchange.answers(headers_answer(A)).body(BODY).answers(body_answer())
        exchange.response_headers().answers(replacing)
    exchange.drained()
    assert "ENV-09" in ask(made).failed
