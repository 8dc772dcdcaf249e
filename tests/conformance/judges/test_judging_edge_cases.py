"""Rare exchanges: right ones that look wrong, and wrong ones that look right."""

from __future__ import annotations

import gzip
import json
import sys
import zlib

import pytest
from scripted import (
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

from conformance.evidence.episode import Claims, Expectation
from conformance.reading.conversation import DUPLEX
from conformance.verdict import Verdict
from ext_proc.messages import (
    BodyMutation,
    BoolValue,
    CommonResponse,
    HeaderMap,
    HeaderMutation,
    HeaderValue,
    HeaderValueOption,
    HttpTrailers,
    ProcessingMode,
    ProcessingResponse,
    TrailersResponse,
)
from ext_proc.protocol import DESTINATION, FALLBACK
from ext_proc.record import RESPONSE_TOO_LARGE, UNROUTED, Author, ClientAborted, ClientResponse, HalfClosed

A, B, STRANGER = "10.0.0.1:8000", "10.0.0.2:8000", "10.9.9.9:8000"
POOL = {"a": A, "b": B}
REWRITTEN = json.dumps({"model": "another", "prompt": "Say hello."}).encode()
UNKNOWN_KIND = b"\xc2\x3e\x03abc"
"""A message with nothing but a field of number 1000."""

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

    @pytest.mark.parametrize(("removed", "wrong"), [(False, True), (True, False)])
    def test_appended_to_what_the_client_sent(self, ask, removed, wrong):
        then = HeaderMutation(set_headers=[length(len(REWRITTEN))])
        then.set_headers[0].append.value = True
        if removed:
            then.remove_headers.append("content-length")
        assert ("ENV-10" in self.judged(ask, self.rewritten(then=then)).failed) is wrong

    @pytest.mark.parametrize(
        ("code", "method", "lengths", "wrong"),
        [
            (503, "POST", ["4"], False),
            (503, "POST", ["3"], True),
            (503, "POST", ["4", "3"], True),
            (503, "POST", ["x"], True),
            (503, "HEAD", ["9"], False),
            (503, "POST", [], False),
        ],
    )
    def test_of_an_error(self, ask, code, method, lengths, wrong):
        made = Script(pool={})
        exchange = made.exchange(method=method).request(None if method == "HEAD" else BODY)
        answer = immediate(code, body=b"" if method == "HEAD" else b"none")
        for one in lengths:
            answer.immediate_response.headers.set_headers.append(option("content-length", one))
        exchange.answers(answer).drained()
        assert ("ENV-10" in ask(made).failed) is wrong

    def test_of_very_many_digits(self, ask):
        then = HeaderMutation(set_headers=[option("content-length", "9" * 5000)])
        assert "ENV-10" in self.judged(ask, self.rewritten(then=then)).failed

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize(("number", "wrong"), [(len(BODY), False), (7, True)])
    def test_of_a_body_that_is_not_shown(self, ask, side, number, wrong):
        """In mode NONE Envoy passes the length on, and cuts the body off there."""
        made, set_length = script(), {side: [length(number)]}
        exchange = made.exchange(mode="NONE", headers=LENGTH).request_headers()
        exchange.answers(headers_answer(A, options=set_length.get("request", ()))).response_headers(headers=LENGTH)
        exchange.answers(headers_answer(side="response", options=set_length.get("response", ()))).drained()
        assert ("ENV-10" in ask(made).failed) is wrong

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize(
        ("mode", "mutation", "changes", "wrong"),
        [
            ("BUFFERED", BodyMutation(), HeaderMutation(), True),
            ("BUFFERED", BodyMutation(clear_body=False), HeaderMutation(), True),
            ("BUFFERED", BodyMutation(), HeaderMutation(set_headers=[length(len(BODY))]), True),
            ("BUFFERED", BodyMutation(), HeaderMutation(set_headers=[length(0)]), True),
            ("BUFFERED", BodyMutation(), HeaderMutation(remove_headers=["content-length"]), False),
            ("BUFFERED", BodyMutation(body=BODY), HeaderMutation(), False),
            ("BUFFERED", BodyMutation.FromString(UNKNOWN_KIND), HeaderMutation(), False),
            ("STREAMED", BodyMutation(), HeaderMutation(), False),
        ],
    )
    def test_beside_a_body_mutation_in_which_nothing_is_set(self, ask, side, mode, mutation, changes, wrong):
        """Real Envoy 1.40 compares it with the bytes of the mutation, and answers 500: the body itself stays."""
        made = script()
        exchange = made.exchange(mode=mode, response_mode=mode, headers=LENGTH).request_headers()
        exchange.answers(headers_answer(A)).chunk(BODY, end=True)
        answer = body_answer(side=side, header_mutation=changes, body_mutation=mutation)
        exchange.answers(answer if side == "request" else body_answer()).response_headers(headers=LENGTH)
        exchange.answers(headers_answer(side="response")).chunk(BODY, side="response", end=True)
        exchange.answers(answer if side == "response" else body_answer(side="response")).drained()
        assert ask(made).failed == ({"ENV-10"} if wrong else set())

    def test_left_as_it_was_before_trailers(self, ask):
        """Envoy answers 500 to the body's answer, so that none comes to the trailers."""
        made = script()
        exchange = made.exchange(mode="BUFFERED", headers=LENGTH).request_headers().answers(headers_answer(A))
        exchange.body(BODY, trailers=True).answers(body_answer(body_mutation=BodyMutation(body=BODY + b" ")))
        exchange.drained()
        assert ask(made).failed == {"ENV-10"}

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

    def test_a_get_is_no_odd_request(self, ask):
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
        ("path", "wrong"), [("/v1/completions?x=%zz", False), ("/v1/completions?x=%", False), ("/v1/a?x=%20", True)]
    )
    def test_a_malformed_path_is_odd_without_a_body_and_with_one_that_is_not_sent(self, ask, path, wrong):
        """AMB-08: a percent sign that escapes nothing."""
        assert ("EPP-DEST-07" in ask(self.refused(400, path=path, method="GET")).failed) is wrong
        made = script()
        made.exchange(mode="NONE", path=path).request_headers().answers(immediate(400)).drained()
        assert ("EPP-DEST-01" in ask(made).failed) is wrong

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/completions", b'{"model": "m", "prompt": "p"}'),
            ("/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": "c"}]}'),
        ],
    )
    def test_an_inference_request_may_not(self, ask, path, body):
        assert "EPP-DEST-01" in ask(self.refused(400, body=body, path=path)).failed

    @pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"])
    @pytest.mark.parametrize(("code", "wrong"), [(500, True), (200, True), (400, False)])
    def test_on_the_headers_alone(self, ask, mode, code, wrong):
        """No body can have been at fault where none was there; of headers 4xx may still complain."""
        made = script()
        made.exchange(mode=mode).request_headers().answers(immediate(code)).drained()
        assert ("EPP-DEST-01" in ask(made).failed) is wrong

    def test_on_the_headers_of_an_unknown_request(self, ask):
        made = script()
        made.exchange(path="/upload").request_headers().answers(immediate(500)).drained()
        assert "EPP-DEST-01" not in ask(made).failed

    @pytest.mark.parametrize(
        ("kind", "wrong"),
        [
            ("", False),
            ("text/plain", False),
            ("multipart/form-data; boundary=x", False),
            ("application/json", True),
            ("Application/JSON ; charset=utf-8", True),
            ("application/vnd.x+json", True),
        ],
    )
    def test_a_body_that_is_not_said_to_be_json_may_be_refused(self, ask, kind, wrong):
        headers = ((b"content-type", kind.encode()),)
        body = b'{"model": "m", "prompt": "p"}'
        assert ("EPP-DEST-01" in ask(self.refused(415, body=body, headers=headers)).failed) is wrong
        assert ("EPP-ERR-02" in ask(self.refused(415, body=body, headers=headers, pool={})).failed) is wrong

    @pytest.mark.parametrize(("queue", "dropped"), [(3, True), (0, False)])
    def test_a_request_that_is_dropped_while_pods_are_busy_tells_nothing_of_other_rules(self, ask, queue, dropped):
        """AMB-06: when to drop is the EPP's own decision. Idle pods are no reason."""
        made = script().gauges("a", queue=queue).gauges("b", queue=queue)
        made.exchange(subset=[A]).request(BODY).answers(immediate(429)).drained()
        expected = {"x1": Expectation(within=(A,), requirement="EPP-SUB-01")}
        found = ask(made, expectations=expected, requirements=("EPP-SUB-01",))
        assert found.failed == set()
        assert (not found.blamed) is dropped


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

    @pytest.mark.parametrize("how", ["status", "reset", "lost"])
    def test_an_error_between_the_phases(self, ask, how):
        """Envoy answers 500 to it, and goes on after a clean end."""
        made = script()
        exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
        if how == "status":
            exchange.closed(13, "boom")
        elif how == "reset":
            exchange.reset(Author.EPP)
        else:
            exchange.lost()
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


@pytest.mark.parametrize(
    ("side", "changes", "failed", "warned"),
    [
        ("request", {"remove_headers": ["x-client"]}, set(), {"EPP-TRN-06"}),
        ("request", {"set_headers": [option("content-type", "text/plain")]}, set(), {"EPP-TRN-02"}),
        ("request", {"set_headers": [length(3), option("x-epp", "1")]}, set(), set()),
        ("response", {"set_headers": [option(":status", "500")]}, {"ENV-24"}, set()),
        ("response", {"remove_headers": ["content-type"]}, {"ENV-24"}, set()),
        ("response", {"set_headers": [length(3), option(":status", "200")]}, set(), set()),
    ],
)
@pytest.mark.parametrize(("chunks", "counts"), [(1, True), (2, False)])
def test_headers_that_a_streamed_body_answer_changes(ask, side, changes, failed, warned, chunks, counts):
    """Real Envoy 1.40 still takes them where it had the whole body, which it then sends in one message."""
    made = script()
    changing = body_answer(side=side, header_mutation=HeaderMutation(**changes))
    exchange = made.exchange(mode="STREAMED", headers=((b"x-client", b"1"),)).request_headers()
    exchange.answers(headers_answer(A))
    if side == "response":
        exchange.chunk(BODY, end=True).answers(body_answer()).response_headers().answers(headers_answer(side=side))
    for number in range(chunks):
        exchange.chunk(BODY, side=side, end=number + 1 == chunks).answers(changing)
    exchange.drained()
    found = ask(made)
    assert (found.failed, found.warned) == ((failed, warned) if counts else (set(), set()))


class TestABodyThatIsLeft:
    """After a clean end Envoy passes on as it is what was not answered; what was answered has changed all the same."""

    LOST = BodyMutation(body=b"")

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize(("mode", "chunks", "trailers"), [("BUFFERED", 1, True), ("STREAMED", 3, False)])
    @pytest.mark.parametrize(("mutation", "wrong"), [(LOST, {"ENV-09"}), (None, set())])
    def test_behind_an_answer_to_a_part(self, ask, side, mode, chunks, trailers, mutation, wrong):
        made = script()
        exchange = made.exchange(mode=mode).request_headers().answers(headers_answer(A))
        if side == "response":
            exchange.body(BODY).answers(*[body_answer()] * (1 if mode == "BUFFERED" else 2))
            exchange.response_headers().answers(headers_answer(side=side))
        exchange.body(BODY, side=side, chunks=chunks, trailers=trailers)
        exchange.answers(body_answer(side=side, body_mutation=mutation)).closed()
        assert ask(made).blamed == wrong

    def test_in_the_midst_of_the_request(self, ask):
        """What the rest would have been is not known."""
        made = script()
        exchange = made.exchange(mode="STREAMED").request_headers().answers(headers_answer(A)).chunk(BODY[:20])
        exchange.answers(body_answer(body_mutation=BodyMutation(body=b"another"))).closed()
        assert not ask(made).blamed

    @pytest.mark.parametrize(("back", "wrong"), [(BODY, set()), (BODY[::-1], {"ENV-09"}), (BODY[:9], {"ENV-06"})])
    def test_before_the_trailers_of_full_duplex(self, ask, back, wrong):
        made = script()
        exchange = made.exchange().request(trailers=True)
        exchange.answers(headers_answer(A), *echo(back, end=False)).closed()
        assert ask(made).blamed == wrong


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

    def test_the_data_plane_has_replied_itself(self, ask):
        """A body over its buffer gets 413: the request goes nowhere."""
        made = script()
        one = made.exchange(mode="BUFFERED").request_headers().answers(headers_answer())
        one.response_headers(status=413).answers(headers_answer(side="response")).closed()
        assert not ask(made).blamed

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

    def test_errors_of_a_busy_pool_are_judged_as_of_an_idle_one(self, ask):
        assert not ask(self.refused(500, b"{nope")).failed
        assert ask(self.refused(404, None, method="GET")).failed == {"EPP-DEST-07"}
        assert not ask(self.refused(400, None)).failed

    def test_an_inference_request_is_dropped_with_429(self, ask):
        assert "EPP-ERR-03" in ask(self.refused(500, BODY)).failed
        assert "EPP-ERR-03" in ask(self.refused(503, None, method="GET")).failed


@pytest.mark.parametrize(
    ("mode", "waits", "sent", "wrong"),
    [
        ("STREAMED", False, BODY, True),
        ("STREAMED", False, b"", False),
        ("STREAMED", True, BODY, False),  # the endpoint picker could not know
        ("BUFFERED", False, BODY, False),
    ],
)
def test_chunks_that_were_sent_before_no_body_was_asked_for(ask, mode, waits, sent, wrong):
    """Real Envoy 1.40 drops them."""
    asking = headers_answer(A)
    asking.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
    made = script()
    made.exchange(mode=mode, waits=waits).request_headers().chunk(sent, end=True).answers(asking).drained()
    assert ask(made).blamed == ({"ENV-09"} if wrong else set())


@pytest.mark.parametrize(
    ("end", "put", "blamed"),
    [
        (True, BODY, set()),
        (True, BODY[:-9], {"ENV-09"}),
        (True, b"", {"ENV-09"}),
        (True, BODY.replace(b"hello", b"hello there"), {"EPP-TRN-05"}),
        (False, BODY[:-9], set()),  # it may be what was not sent yet
    ],
)
def test_a_body_that_is_replaced_when_it_was_sent(ask, end, put, blamed):
    """A data plane that does not wait for the answer to the headers sends the body beside them."""
    replacing = headers_answer(A)
    replacing.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
    replacing.request_headers.response.body_mutation.body = put
    made = script()
    one = made.exchange(mode="STREAMED", waits=False).request_headers()
    one.chunk(BODY, end=end).answers(replacing).drained()
    found = ask(made)
    assert found.blamed == blamed
    assert sum(one.requirement == "ENV-09" and one.verdict is Verdict.FAIL for one in found.findings) <= 1


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(
    ("mutation", "wrong"),
    [
        (None, False),
        (BodyMutation(clear_body=True), True),
        (BodyMutation(body=b""), True),
        (BodyMutation(body=b'{"model": "m"}'), True),
    ],
)
def test_a_body_that_is_replaced_unseen(ask, side, mutation, wrong):
    """Without a mutation Envoy lets the body go on, and shows no more of it."""
    made = script()
    replacing = headers_answer(A if side == "request" else None, side=side)
    common = getattr(replacing, f"{side}_headers").response
    common.status = CommonResponse.CONTINUE_AND_REPLACE
    if mutation is not None:
        common.body_mutation.CopyFrom(mutation)
    exchange = made.exchange(mode="BUFFERED", response_mode="BUFFERED").request_headers()
    if side == "request":
        exchange.answers(replacing)
    else:
        exchange.answers(headers_answer(A)).body(BODY).answers(body_answer())
        exchange.response_headers().answers(replacing)
    exchange.drained()
    assert ask(made).blamed == ({"ENV-09"} if wrong else set())


@pytest.mark.parametrize(("length", "wrong"), [(b"3", True), (b"%d" % len(BODY), False)])
def test_the_length_of_a_body_that_stays_unseen(ask, length, wrong):
    """CONTINUE_AND_REPLACE without a body: the client's goes on, and the content-length that the answer sets."""
    made = script()
    answer = headers_answer(A, options=[option("content-length", length)])
    answer.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
    one = made.exchange(mode="BUFFERED", headers=[(b"content-length", b"%d" % len(BODY))])
    one.request_headers().answers(answer).drained()
    assert ask(made).blamed == ({"ENV-10"} if wrong else set())


@pytest.mark.parametrize(("answered_first", "wrong"), [(True, True), (False, False)])
def test_an_end_without_bytes_that_an_epp_leaves_behind(ask, answered_first, wrong):
    """Envoy has let the headers go, and waits with the end of the body for the EPP's."""
    made = script()
    one = made.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).response_headers()
    steps = [lambda: one.answers(headers_answer(side="response")), lambda: one.chunk(b"", side="response", end=True)]
    for step in steps if answered_first else steps[::-1]:
        step()
    one.closed()
    assert ask(made).blamed == ({"ENV-16"} if wrong else set())


@pytest.mark.parametrize("served", [A, B])
def test_a_local_reply_that_is_not_answered(ask, served):
    """Whichever endpoint the data plane says that it tried last."""
    made = script()
    one = made.exchange().request(BODY).answers(headers_answer(A), *echo(BODY))
    for endpoint in dict.fromkeys((A, served)):
        one.upstream(endpoint, outcome="connect-failed")
    one.response_headers(status=503, served=served, end=True).hang("answer to response_headers")
    assert ask(made).failed == {"ENV-23"}


@pytest.mark.parametrize("mode", ["BUFFERED", DUPLEX])
@pytest.mark.parametrize(("side", "warned"), [("request", "EPP-TRN-05"), ("response", "ENV-09")])
def test_a_body_that_is_added_where_there_is_none(ask, side, warned, mode):
    """The carrier allows it; the endpoint picker has no business with it."""
    adding = headers_answer(A if side == "request" else None, side=side)
    common = getattr(adding, f"{side}_headers").response
    common.status = CommonResponse.CONTINUE_AND_REPLACE
    common.body_mutation.body = BODY
    made = script()
    exchange = made.exchange(method="GET", mode=mode).request(None)
    if side == "response":
        exchange.answers(headers_answer(A)).response_headers(status=204, end=True)
    exchange.answers(adding).drained()
    found = ask(made)
    assert found.blamed == found.warned == {warned}


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(
    ("got", "lost"),
    [
        ('{"model": "m", "prompt": "Gr\ufffd\ufffd\ufffd\ufffde"}', True),  # decoded byte by byte
        ('{"model": "m", "prompt": "Gre"}', True),  # what could not be decoded is left out
        ('{"model": "m", "prompt": null}', True),
        ('{"model": "m", "prompt": ""}', True),
        ('{"model": "m", "prompt": "Grüße!"}', False),
        ('{"model": "m", "prompt": "Gruesse"}', False),
    ],
)
def test_a_text_that_lost_characters_is_no_edit(ask, side, got, lost):
    sent, answered = '{"model": "m", "prompt": "Grüße"}'.encode(), got.encode()
    made = script()
    exchange = made.exchange().request_headers()
    if side == "request":
        exchange.body(sent).answers(headers_answer(A), *echo(answered))
    else:
        exchange.body(BODY).answers(headers_answer(A), *echo(BODY)).response_headers().body(sent, side=side)
        exchange.answers(headers_answer(side=side), *echo(answered, side=side))
    exchange.drained()
    assert ("ENV-09" in ask(made).failed) is lost


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("Tell me about it. " * 9, "Tell me about it. " * 5, True),  # cut at the end
        ("beginning " * 9 + "end", "end", True),
        ("beginning " * 9 + "end", "beginning end", True),
        ("Tell me about it. " * 9, ("Tell me about it. " * 9).strip(), False),
        ("Tell me about it. " * 9, "Tell us about it. " * 9, False),
        ("Tell me about it. " * 9, "Say no more.", False),
        ("food-review-1", "food-review", False),  # a model is rewritten
    ],
)
def test_a_long_text_that_lost_a_piece_is_no_edit(ask, before, after, lost):
    sent, answered = (json.dumps({"model": "m", "prompt": text}).encode() for text in (before, after))
    made = script()
    made.exchange().request_headers().body(sent).answers(headers_answer(A), *echo(answered)).drained()
    assert ("ENV-09" in ask(made).failed) is lost


REPEATED = "0123456789abcdef" * 10


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (REPEATED[:80] + "1" + REPEATED[81:], True),
        (REPEATED[:80] + "stale bytes" + REPEATED[91:], True),
        (REPEATED.replace("6", "*"), False),  # a mask is put wherever the text says that
        ("X" + REPEATED[1:], False),  # a beginning is no other place
        (REPEATED[:-1] + "X", False),
        (REPEATED[:80] + "10" + REPEATED[81:], False),  # put in
    ],
)
def test_a_text_with_one_place_of_several_alike_changed_is_damaged(ask, after, lost):
    sent, answered = (json.dumps({"model": "m", "prompt": text}).encode() for text in (REPEATED, after))
    made = script()
    made.exchange().request_headers().body(sent).answers(headers_answer(A), *echo(answered)).drained()
    found = ask(made)
    assert ("ENV-09" in found.failed) is lost
    assert ("EPP-TRN-05" in found.warned) is not lost


@pytest.mark.parametrize("code", [200, 302, 500])
@pytest.mark.parametrize("seen", ["unobserved pool", "changing pool", "part of the body", "an odd part of the body"])
def test_a_code_that_is_never_due(ask, seen, code):
    """The text has an endpoint, 503 or 429: where it is not known which is due, another answer is still none."""
    made = Script(pool=None if seen == "unobserved pool" else POOL)
    if seen == "changing pool":
        made.pool(phases=("asked",))
    exchange = made.exchange().request_headers()
    if "part" in seen:
        exchange.chunk(BODY[:20] if seen == "part of the body" else b"nope")
    else:
        exchange.body(BODY)
    exchange.answers(immediate(code)).drained()
    found = ask(made)
    if seen == "part of the body":  # the rest may have been odd, but nothing of it had come
        assert found.failed == {"EPP-DEST-01"}
    elif "part" in seen:
        assert found.blamed == {"EPP-DEST-07"}
        assert found["EPP-DEST-07"] is (Verdict.WARN if code == 500 else Verdict.FAIL)
    else:
        assert found.failed == {"EPP-DEST-01"}


@pytest.mark.parametrize("code", [400, 401, 404, 413, 499])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("part", "odd"),
    [
        (b"nope", True), (b"[", True), (b'{"model": 5, "pro', True), (b'{"model": "m", "prompt": "\xff', True),
        (b'{"model": "m", "model": "', True), (b'{"model": "m", "prompt": "a\n', True), (b'{"prompt": {', True),
        (BODY[:1], False), (BODY[:20], False), (BODY[:30], False), (BODY[:-1], False),
        (b'{"prompt": "\\"{[', False), (b'{"prompt": ["a", "', False), (b'{"n": {"a": [1, {"b": null}, ', False),
    ],
)  # fmt: skip
def test_an_odd_part_of_a_body_may_be_refused(ask, part, odd, announced, code):
    """Of one that may become an ordinary request, nothing is a reason to: whether the rest had come is chance."""
    made = script()
    headers = [(b"content-type", b"application/json")] + [(b"content-length", b"300")] * announced
    made.exchange(headers=headers).request_headers().chunk(part).answers(immediate(code)).drained()
    assert ask(made).blamed == (set() if odd else {"EPP-DEST-01"})
    whole = script()
    whole.exchange(headers=headers).request_headers().body(part + b"?" if odd else BODY).answers(
        immediate(code)
    ).drained()
    assert ask(whole).blamed == ask(made).blamed


@pytest.mark.parametrize("code", [400, 429, 503])
def test_a_code_that_may_be_due(ask, code):
    for made in (Script(pool=None), script().pool(phases=("asked",))):
        made.exchange().request().answers(immediate(code)).drained()
        assert not ask(made).blamed


def test_before_0_3_0_any_error_may_be_due(ask):
    made = Script(pool=None)
    made.exchange().request().answers(immediate(500)).drained()
    assert not ask(made, "0.2.0").blamed


@pytest.mark.parametrize("answer", [streamed(BODY[:20], end=True), immediate(400), immediate(503), immediate(500)])
@pytest.mark.parametrize("released", [True, False])
def test_what_is_said_once_the_client_is_gone(ask, answer, released):
    """The data plane half-closes when the client goes away: what the EPP makes of that reaches no client."""
    made = script()
    exchange = made.exchange().request_headers()
    if released:
        exchange.answers(headers_answer(A))
    exchange.chunk(BODY[:20])
    gone = ClientAborted(exchange=exchange.name, point="request-body")
    half_closed = HalfClosed(exchange=exchange.name, stream=exchange.stream, author=Author.DATA_PLANE)
    exchange.emit(gone, half_closed).answers(answer).closed()
    assert not ask(made).blamed


@pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED"])
def test_trailers_that_an_epp_asked_not_to_be_shown(ask, mode):
    """Envoy shows nothing of the message behind such an answer: there is nothing to judge, and nothing wrong."""
    replacing = headers_answer(A)
    replacing.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
    made = script()
    made.exchange(mode=mode).request_headers().answers(replacing).drained()
    found = ask(made, requirements=("ENV-06",))
    assert (found["ENV-06"], found.blamed) == (Verdict.NOT_APPLICABLE, set())


def test_no_more_of_a_body_that_there_is_not(ask):
    replacing = headers_answer(A)
    replacing.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
    made = script()
    made.exchange(method="GET").request(None).answers(replacing).drained()
    assert not ask(made).blamed


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL"])
@pytest.mark.parametrize(("code", "pool", "body"), [(503, {}, BODY), (400, POOL, b"{nope")])
def test_an_error_on_a_buffered_body_and_a_clean_end(ask, mode, code, pool, body):
    made = Script(pool=pool)
    exchange = made.exchange(mode=mode).request_headers().answers(headers_answer()).body(body)
    exchange.answers(immediate(code)).closed()
    assert not ask(made).blamed


class TestBesideOthersDataPlanes:
    """In a tap the modes may be unknown, and may change."""

    def heard(self, mode: str, *answers, body: bytes | None = BODY, **exchange) -> Script:
        made = Script(None)
        one = made.exchange(mode=mode, opened=False, **exchange).request_headers().answers(answers[0])
        one.body(body).answers(*answers[1:]).drained()
        return made

    def test_the_mode_is_not_known(self, ask):
        steered = body_answer(header_mutation=HeaderMutation(set_headers=[option(DESTINATION, A)]))
        assert not ask(self.heard("BUFFERED", headers_answer(), steered, protocol_config=False)).blamed
        assert not ask(self.heard("BUFFERED", headers_answer(), immediate(503), protocol_config=False)).blamed

    @pytest.mark.parametrize("answer", [streamed(BODY, end=True), body_answer()])
    def test_the_mode_is_overridden(self, ask, answer):
        override = headers_answer(A, mode_override=ProcessingMode(request_body_mode=ProcessingMode.BUFFERED))
        assert not ask(self.heard("NONE", override, answer)).blamed

    def test_full_duplex_is_not_overridden(self, ask):
        override = headers_answer(A, mode_override=ProcessingMode(request_body_mode=ProcessingMode.BUFFERED))
        assert "ENV-04" in ask(self.heard("FULL_DUPLEX_STREAMED", override, body_answer())).failed

    def test_the_load_is_not_known(self, ask):
        answers = (headers_answer(A), streamed(BODY, end=True), immediate(503))
        assert not ask(self.heard("FULL_DUPLEX_STREAMED", *answers)).blamed

    def test_headers_are_left_out(self, ask):
        made = Script(None)
        one = made.exchange(opened=False).request().answers(headers_answer(A), *echo(BODY))
        one.body(b"{}", side="response").answers(*echo(b"{}", side="response")).drained()
        assert not ask(made).blamed


def test_an_early_response_that_is_complete(ask):
    """The client has it: the rest of the request does not matter."""
    made = script()
    exchange = made.exchange().request_headers().chunk(BODY).answers(headers_answer(A))
    exchange.response_headers(status=413, end=True).answers(headers_answer(side="response")).closed()
    assert not ask(made).blamed


@pytest.mark.parametrize(("removed", "wrong"), [([DESTINATION], False), ([], True)])
def test_an_entry_that_is_conditional_on_what_was_removed(ask, removed, wrong):
    made = script()
    answer = headers_answer(A, remove=removed)
    answer.request_headers.response.header_mutation.set_headers[0].append_action = HeaderValueOption.ADD_IF_ABSENT
    made.exchange().request().answers(answer, *echo(BODY)).drained()
    assert ("ENV-12" in ask(made).failed) is wrong


@pytest.mark.parametrize(("first", "wrong"), [(None, False), (A, True)])
def test_an_entry_that_is_conditional_on_what_an_earlier_answer_removed(ask, first, wrong):
    """In BUFFERED mode the answer to the body adds to what the answer to the headers left."""
    appended = HeaderMutation(set_headers=[option(DESTINATION, A, append={"value": True})])
    made = script()
    exchange = made.exchange(mode="BUFFERED").request_headers()
    exchange.answers(headers_answer(A, header=first, remove=[DESTINATION])).body(BODY)
    exchange.answers(body_answer(header_mutation=appended)).drained()
    assert ("ENV-12" in ask(made).failed) is wrong


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (b'"n": 1e400', False),
        (b'"n": ' + b"9" * 400, False),
        (b'"n": 1e300', True),
        (b'"suffix": "\\ud83d"', False),
        (b'"suffix": "\\ud83d\\ude00"', True),
        (b'"model": "other"', False),
        (b'"more": [{"a": 1}, {"a": 2}]', True),
        (b'"more": ' + b"[" * 200 + b"]" * 200, False),
        (b'"more": [' + b"[], " * 200 + b"[]]", True),
    ],
)
def test_json_that_readers_may_refuse(ask, more, wrong):
    """RFC 8259, sections 4, 6, 8.2 and 9: a 4xx is right then, and so is an endpoint."""
    body = BODY[:-1] + b", " + more + b"}"
    for answers, blamed in (([immediate(400)], wrong), ([headers_answer(A), *echo(body)], False)):
        made = script()
        made.exchange().request(body).answers(*answers).drained()
        assert bool(ask(made).failed) is blamed


@pytest.mark.parametrize(("method", "wrong"), [("POST", False), ("GET", True)])
@pytest.mark.parametrize("opened", [True, False])
def test_a_request_without_a_body_that_is_refused(ask, opened, method, wrong):
    """A tap knows the method from the headers alone."""
    made = script()
    made.exchange(opened=opened, method=method).request(None).answers(immediate(400)).drained()
    assert ("EPP-DEST-07" in ask(made).failed) is wrong


@pytest.mark.parametrize(("hint", "pick"), [("[::ffff:10.0.0.1]:8000", A), (A, "[::ffff:10.0.0.1]:8000")])
def test_an_ipv4_mapped_ipv6_address(ask, hint, pick):
    made = script()
    made.exchange(subset=[hint]).request().answers(headers_answer(pick), *echo(BODY)).drained()
    assert not ask(made).failed


@pytest.mark.parametrize(
    ("pick", "warned"),
    [
        ("[fd00::1]:8000", set()),
        ("[FD00::1]:8000", {"EPP-DEST-04"}),
        ("[fd00:0:0::1]:8000", {"EPP-DEST-04"}),
        ("[::ffff:10.0.0.1]:8000", {"EPP-DEST-04"}),
        (f"{A},[FD00::1]:8000", {"EPP-DEST-04"}),
    ],
)
def test_an_address_in_another_spelling(ask, pick, warned):
    """It names an endpoint of the pool, but real Envoy, which knows its hosts by their text, does not find it."""
    made = Script(pool={"a": A, "six": "[fd00::1]:8000"})
    made.exchange().request().answers(headers_answer(pick), *echo(BODY)).drained()
    assert ask(made).blamed == warned


@pytest.mark.parametrize(("hinted", "warned"), [("[FD00::1]:8000", set()), ("[fd00::1]:8000", {"EPP-DEST-04"})])
def test_an_address_in_the_spelling_of_the_data_plane(ask, hinted, warned):
    made = Script(pool={"a": A, "six": "[fd00::1]:8000"})
    made.exchange(subset=[hinted]).request().answers(headers_answer("[FD00::1]:8000"), *echo(BODY)).drained()
    assert ask(made).blamed == warned


@pytest.mark.parametrize(("version", "wrong"), [("0.2.0", False), ("1.0.0", True)])
def test_the_code_of_a_dropped_request(ask, version, wrong):
    made = script().gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
    made.exchange(note={"sheddable": True}).request().answers(immediate(503)).drained()
    assert bool(ask(made, version).failed) is wrong


@pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "STREAMED"])
@pytest.mark.parametrize(
    ("when", "body", "code", "load", "verdict"),
    [
        ("before the body", b"no JSON", 400, {}, Verdict.WARN),
        ("before the body", BODY, 400, {}, Verdict.FAIL),
        ("before the body", BODY, 503, {}, Verdict.FAIL),
        ("before the body", b"no JSON", 500, {}, Verdict.FAIL),
        ("before the body", BODY, 429, {}, Verdict.INCONCLUSIVE),
        ("before the body", BODY, 429, {"queue": 100, "kv": 0.99}, Verdict.WARN),
        ("in the body", b"no JSON", 400, {}, Verdict.WARN),
        ("in the body", BODY, 503, {}, Verdict.FAIL),
        ("after the body", b"no JSON", 400, {}, Verdict.WARN),
        ("after the body", BODY, 503, {}, Verdict.FAIL),
        ("after the body", BODY, 503, {"queue": 100, "kv": 0.99}, Verdict.PASS),
    ],
)
def test_a_pick_that_is_taken_back(ask, mode, when, body, code, load, verdict):
    """Real Envoy 1.40 passes the error on in each of them, and cuts off what reached the model server: severity follows
    what the client and the model server lose. Eviction under load is known; without load it is none."""
    made = script()
    if load:
        made.gauges("a", **load).gauges("b", **load)
    duplex = mode == "FULL_DUPLEX_STREAMED"
    exchange = made.exchange(mode=mode).request(body, chunks=2)
    pieces = [streamed(body[:5]), streamed(body[5:], end=True)] if duplex else [body_answer() for _ in range(3)]
    answered = {"before the body": [], "in the body": pieces[:1], "after the body": pieces}[when]
    exchange.answers(headers_answer(A), *answered, immediate(code)).drained()
    found = ask(made)
    assert found["ENV-15"] is verdict
    assert found.blamed <= {"ENV-15"}


@pytest.mark.parametrize(
    ("code", "busy", "verdict"),
    [(429, True, Verdict.PASS), (429, False, Verdict.INCONCLUSIVE), (503, False, Verdict.FAIL)],
)
def test_a_pick_for_a_request_without_a_body_that_is_taken_back(ask, code, busy, verdict):
    """Real Envoy 1.40 passes the error on, as it does for a request whose body is answered."""
    made = script()
    if busy:
        made.gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
    made.exchange(method="GET").request(None).answers(headers_answer(A), immediate(code)).drained()
    found = ask(made)
    assert found["ENV-15"] is verdict
    assert found.blamed <= {"ENV-15"}


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_error_after_a_request_was_let_go_without_a_destination(ask, method):
    """Envoy may have opened the request at an endpoint that it chose itself."""
    made = script()
    exchange = made.exchange(method=method).request(BODY if method == "POST" else None)
    exchange.answers(headers_answer(), immediate(400)).drained()
    assert ask(made).failed == {"ENV-15"}


@pytest.mark.parametrize("responds", [False, True])
@pytest.mark.parametrize(("destination", "wrong"), [(None, "ENV-15"), (A, "ENV-24")])
def test_the_order_of_both_sides_matters_only_with_a_destination(ask, destination, wrong, responds):
    """Without one the data plane answers at once, and its response crosses the ImmediateResponse or does not."""
    made = script()
    exchange = made.exchange(method="GET").request(None).answers(headers_answer(destination))
    if responds:
        exchange.response_headers(status=503, end=True)
    exchange.answers(immediate(503)).drained()
    assert ask(made).failed == {wrong if responds else "ENV-15"}


@pytest.mark.parametrize(
    ("quiet", "answers", "verdict"),
    [
        (0.02, [streamed(BODY[:9])], Verdict.INCONCLUSIVE),
        (10.0, [streamed(BODY[:9])], Verdict.FAIL),
        (0.02, [streamed(b"")], Verdict.FAIL),
    ],
)
def test_a_slow_answer_is_no_hang(ask, quiet, answers, verdict):
    """The exchange as a whole has a deadline, too; empty chunks without end are no progress."""
    made = script()
    exchange = made.exchange().request().answers(headers_answer(A))
    made.pass_time(10.0)
    exchange.answers(*answers).hang("answer to request_body", quiet=quiet)
    assert ask(made)["ENV-16"] is verdict


def test_an_eviction_that_meets_the_response(ask):
    made = script().gauges("a", queue=100, kv=0.99).gauges("b", queue=100, kv=0.99)
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
    exchange.response_headers().answers(immediate(429)).drained()
    found = ask(made)
    assert not found.failed
    assert found["ENV-24"] is Verdict.WARN


@pytest.mark.parametrize(
    ("mode", "coding", "answered", "changes", "wrong"),
    [
        (DUPLEX, b"gzip", b"zipped", {"remove": ["content-encoding"]}, True),
        (DUPLEX, b"gzip", b"zipped", {"options": [option("content-encoding", "br")]}, True),
        (DUPLEX, b"gzip", b"zipped", {"options": [option("content-encoding", "GZIP")]}, False),
        (DUPLEX, b"gzip", b"text", {"remove": ["content-encoding"]}, False),
        (DUPLEX, b"identity", b"zipped", {"remove": ["content-encoding"]}, False),
        (DUPLEX, b"", b"zipped", {"options": [option("content-encoding", "identity")]}, False),
        (DUPLEX, b"", b"zipped", {"options": [option("content-encoding", "gzip")]}, True),
        ("NONE", b"gzip", None, {"remove": ["content-encoding"]}, True),
    ],
)
def test_the_encoding_of_a_response_is_that_of_its_body(ask, mode, coding, answered, changes, wrong):
    made = script()
    exchange = made.exchange(mode=mode).request(None).answers(headers_answer(A))
    exchange.response_headers(headers=((b"content-encoding", coding),) if coding else ())
    exchange.answers(headers_answer(side="response", **changes))
    if answered is not None:
        exchange.chunk(b"zipped", side="response", end=True).answers(*echo(answered, side="response"))
    exchange.drained()
    assert ("ENV-24" in ask(made).failed) is wrong


GZIPPED = gzip.compress(BODY, mtime=0)
OTHER = BODY.replace(b"hello", b"")


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(
    ("sent", "coding", "answered", "removed", "failed"),
    [
        (GZIPPED, b"gzip", BODY, True, set()),
        (zlib.compress(BODY), b"deflate", BODY, True, set()),
        (GZIPPED, b"gzip", b" " + BODY, True, set()),  # the same value
        (GZIPPED, b"gzip", OTHER, True, {"ENV-09"}),
        (GZIPPED, b"gzip", BODY, False, {"ENV-09"}),
        (GZIPPED[:-9], b"gzip", BODY, True, {"ENV-09"}),
        (GZIPPED, b"br", BODY, True, {"ENV-09"}),
        (GZIPPED + GZIPPED, b"gzip", BODY, True, {"ENV-09"}),
        (gzip.compress(bytes(10_000_000)), b"gzip", BODY, True, {"ENV-09"}),
    ],
)
def test_a_body_that_is_unpacked(ask, side, sent, coding, answered, removed, failed):
    made, headers = script(), ((b"content-encoding", coding),)
    changes = {"remove": ["content-encoding"]} if removed else {}
    own = {"request": changes} if side == "request" else {"response": changes}
    exchange = made.exchange(headers=headers if side == "request" else ())
    exchange.request(sent if side == "request" else BODY).answers(headers_answer(A, **own.get("request", {})))
    exchange.answers(*echo(answered if side == "request" else BODY))
    if side == "response":
        exchange.response_headers(headers=headers).answers(headers_answer(side="response", **changes))
        exchange.chunk(sent, side="response", end=True).answers(*echo(answered, side="response"))
    exchange.drained()
    assert ask(made).blamed - {"EPP-TRN-06"} == failed


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"remove_headers": ["x-other"], "set_headers": [option("x-mine", "1")]}, Verdict.PASS),
        ({"remove_headers": ["x-took"]}, Verdict.WARN),
        ({"set_headers": [option("x-took", "6")]}, Verdict.WARN),
        ({"remove_headers": ["grpc-status"]}, Verdict.FAIL),
        ({"set_headers": [option("grpc-status", "0")]}, Verdict.FAIL),
        ({"set_headers": [option("grpc-status", "13", field="value")]}, Verdict.FAIL),
        ({"set_headers": [option("grpc-status", "13")]}, Verdict.PASS),
    ],
)
def test_the_trailers_of_a_response_stay(ask, changes, verdict):
    made = script()
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
    exchange.response_headers().answers(headers_answer(side="response"))
    exchange.chunk(b"1", side="response").answers(*echo(b"1", side="response", end=False))
    sent = [HeaderValue(key="grpc-status", raw_value=b"13"), HeaderValue(key="x-took", raw_value=b"5")]
    answer = ProcessingResponse(response_trailers=TrailersResponse(header_mutation=HeaderMutation(**changes)))
    exchange.say(response_trailers=HttpTrailers(trailers=HeaderMap(headers=sent))).answers(answer).drained()
    assert ask(made)["ENV-24"] is verdict


@pytest.mark.parametrize(
    ("name", "added", "first", "verdict"),
    [
        ("content-type", "application/json", (), Verdict.WARN),
        ("content-type", "application/json", ("content-type",), Verdict.PASS),
        ("content-encoding", "gzip", (), Verdict.FAIL),
        ("content-encoding", "identity", (), Verdict.PASS),
        ("grpc-status", "0", (), Verdict.FAIL),
        (":status", "200", (), Verdict.PASS),
    ],
)
def test_a_value_is_added_to_what_a_response_is_read_by(ask, name, added, first, verdict):
    """Envoy joins it to the one that is there (`application/json,application/json`); a status it leaves alone."""
    made, sent = script(), ((b"content-encoding", b"gzip"), (b"grpc-status", b"0"))
    exchange = made.exchange(method="GET").request(None).answers(headers_answer(A)).response_headers(headers=sent)
    changes = {"options": [option(name, added, append=BoolValue(value=True))], "remove": first}
    exchange.answers(headers_answer(side="response", **changes)).body(b"{}", side="response")
    exchange.answers(*echo(b"{}", side="response")).drained()
    assert ask(made)["ENV-24"] is verdict


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"options": [option("x-epp", "1"), option("x-gateway-destination-endpoint-served", A)]}, True),
        ({"options": [option("x-one", "1"), option("X-One", "1")]}, True),
        ({"options": [option("vary", "accept, origin,cookie")]}, True),
        ({"options": [option("set-cookie", "c=3", append=BoolValue(value=True))]}, True),
        ({"remove": ["content-length", "connection", "etag", "server", "date", "x-request-id", ":status"]}, True),
        ({"remove": ["x-envoy-upstream-service-time", "x-gateway-mine", "endpoint-load-metrics"]}, True),
        ({"remove": ["X-One"]}, False),
        ({"options": [option("x-one", "2")]}, False),
        ({"options": [option("set-cookie", "b=2")]}, False),
        ({"options": [option("set-cookie", "a=1, b=2")]}, False),
        ({"options": [option("vary", "origin")]}, False),
        ({"remove": ["x-one", "vary"], "options": [option("vary", "origin, accept")]}, False),
    ],
)
@pytest.mark.parametrize("mode", [DUPLEX, "NONE"])
def test_other_headers_of_a_response_stay(ask, mode, changes, kept):
    sent = (
        *((b"x-one", b"1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"vary", b"origin, accept")),
        *((name, b"1") for name in (b"content-length", b"connection", b"etag", b"server", b"date", b"x-request-id")),
        *((name, b"1") for name in (b"x-envoy-upstream-service-time", b"x-gateway-mine", b"endpoint-load-metrics")),
    )
    made = script()
    exchange = made.exchange(mode=mode).request(None).answers(headers_answer(A)).response_headers(headers=sent)
    exchange.answers(headers_answer(side="response", **changes)).drained()
    assert ask(made)["ENV-24"] is (Verdict.PASS if kept else Verdict.WARN)


@pytest.mark.parametrize("load", [{}, {"queue": 100, "kv": 0.99}])
def test_a_response_that_is_broken_off(ask, load):
    made = script()
    if load:
        made.gauges("a", **load).gauges("b", **load)
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
    exchange.response_headers().answers(headers_answer(side="response")).chunk(b"data: 1", side="response")
    exchange.answers(*echo(b"data: 1", side="response", end=False), immediate(500)).drained()
    assert ask(made)["ENV-24"] is (Verdict.WARN if load else Verdict.FAIL)


@pytest.mark.parametrize(("code", "verdict"), [(429, Verdict.WARN), (503, Verdict.WARN), (500, Verdict.FAIL)])
def test_the_response_is_taken_away_where_the_load_is_not_known(ask, code, verdict):
    made = Script(pool=None)
    exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY)).response_headers()
    exchange.answers(immediate(code)).drained()
    assert ask(made)["ENV-24"] is verdict


class TestWhatNoRuleExplains:
    """A response that did not reach the client is not passed, however the messages look."""

    def served(self, status: int | None, **upstream) -> Script:
        made = script()
        exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A, **upstream)
        exchange.response_headers(end=True).answers(headers_answer(side="response"))
        exchange.client(status).drained()
        return made

    def test_another_status(self, ask):
        found = ask(self.served(500))
        assert not found.failed
        assert found["ENV-24"] is Verdict.INCONCLUSIVE

    def test_the_same(self, ask):
        assert not ask(self.served(200)).blamed

    def test_no_response_of_a_server(self, ask):
        assert not ask(self.served(503, outcome="connect-failed")).blamed

    @pytest.mark.parametrize(("details", "missed"), [("", True), (RESPONSE_TOO_LARGE, False)])
    def test_a_response_that_the_data_plane_could_not_collect(self, ask, details, missed):
        """In BUFFERED, Envoy answers 500 for a model server whose response is larger than its buffer."""
        made = script()
        exchange = made.exchange(mode="BUFFERED").request_headers().answers(headers_answer(A)).body(BODY)
        exchange.answers(body_answer()).upstream(A).response_headers().answers(headers_answer(side="response"))
        exchange.emit(ClientResponse(exchange=exchange.name, status=500, details=details)).drained()
        found = ask(made)
        assert not found.failed
        assert (found["ENV-24"] is Verdict.INCONCLUSIVE) is missed

    @pytest.mark.parametrize(("details", "missed"), [("", True), (UNROUTED, False)])
    def test_no_server_was_asked(self, ask, details, missed):
        """Some data planes have no way to what was picked, such as a list."""
        made = script()
        exchange = made.exchange().request().answers(headers_answer(A), *echo(BODY))
        exchange.emit(ClientResponse(exchange=exchange.name, status=503, details=details)).drained()
        assert (ask(made)["ENV-24"] is Verdict.INCONCLUSIVE) is missed

    @pytest.mark.parametrize(
        ("content_type", "status", "missed"),
        [
            (b"application/json", 503, False),
            (b"application/json", 500, True),
            (b"application/grpc", 200, False),
        ],
    )
    def test_another_error_than_that_of_the_target(self, ask, content_type, status, missed):
        made = Script(pool={})
        exchange = made.exchange(headers=((b"content-type", content_type),)).request()
        exchange.answers(immediate(503)).client(status).drained()
        assert (ask(made)["ENV-24"] is Verdict.INCONCLUSIVE) is missed

    def test_details_of_the_target_are_no_explanation(self, ask):
        made = Script(pool={})
        exchange = made.exchange().request().answers(immediate(503))
        exchange.emit(ClientResponse(exchange=exchange.name, status=500, details=UNROUTED)).drained()
        assert ask(made)["ENV-24"] is Verdict.INCONCLUSIVE

    def test_a_warning_is_no_explanation(self, ask):
        made = script()
        many = [option(f"x-{number}", "1") for number in range(101)]
        made.exchange().request().answers(headers_answer(A, options=many), *echo(BODY)).client(500).drained()
        found = ask(made)
        assert (found["ENV-26"], found["ENV-24"]) == (Verdict.WARN, Verdict.INCONCLUSIVE)

    def test_what_a_rule_explains(self, ask):
        made = script()
        exchange = made.exchange().request().answers(headers_answer(None), *echo(BODY)).upstream(A)
        exchange.response_headers(end=True).answers(headers_answer(side="response")).client(500).drained()
        found = ask(made)
        assert "EPP-DEST-01" in found.failed
        assert found["ENV-24"] is not Verdict.INCONCLUSIVE


def test_a_local_reply_is_no_request(ask):
    made = script()
    made.exchange().response_headers(status=404, end=True).answers(immediate(503)).drained()
    assert "ENV-24" in ask(made).failed


def test_a_mode_that_is_not_known(ask):
    """Who drives several body modes can't know which one is meant where `protocol_config` is missing."""
    made = script()
    exchange = made.exchange(mode="BUFFERED", protocol_config=False).request_headers().answers(headers_answer(A))
    exchange.body(BODY).answers(streamed(BODY, end=True)).drained()
    found = ask(made)
    assert not found.failed
    assert found["ENV-19"] is Verdict.WARN


@pytest.mark.parametrize("end", ["OK", "error", "reset"])
def test_a_stream_may_end_on_a_message_of_an_unknown_kind(ask, end):
    """Whether the next message was on its way by then makes no difference."""
    made = script()
    exchange = made.exchange().request_headers().raw(UNKNOWN_KIND, Author.DATA_PLANE)
    exchange.answers(headers_answer(A)).chunk(BODY, end=True)
    _ = exchange.reset(Author.EPP) if end == "reset" else exchange.closed(3 if end == "error" else 0)
    assert not ask(made, stimulus="off-contract", requirements=("ENV-26",)).failed


class TestBehindAnotherFault:
    """A broken carrier rule does not hide the protocol's rules where the answer can still be read."""

    def body_first(self, pick: str) -> tuple:
        return (*echo(BODY), headers_answer(pick))

    def replaced(self, pick: str) -> tuple:
        answer = headers_answer(pick)
        answer.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
        return (answer,)

    def headers_of_the_response(self, pick: str) -> tuple:
        return (headers_answer(pick, side="response"),)

    def spoiled(self, answers: tuple, **exchange) -> Script:
        made = script()
        made.exchange(**exchange).request().answers(*answers).reset()
        return made

    @pytest.mark.parametrize(("fault", "rule"), [("body_first", "ENV-03"), ("replaced", "ENV-04")])
    @pytest.mark.parametrize(
        ("pick", "subset", "broken"),
        [
            (A, ..., set()),
            (A, [A], set()),
            (B, [A], {"EPP-SUB-01"}),
            (STRANGER, ..., {"EPP-DEST-06"}),
            (A, [STRANGER], {"EPP-SUB-02"}),
            ("nonsense", ..., {"EPP-DEST-04"}),
        ],
    )
    def test_an_endpoint_that_can_be_read(self, ask, fault, rule, pick, subset, broken):
        found = ask(self.spoiled(getattr(self, fault)(pick), subset=subset))
        assert found.failed == {rule} | broken
        assert all(f"Seen behind {rule}" in found.finding(one).hint for one in broken)
        assert "Seen behind" not in found.finding(rule).hint

    @pytest.mark.parametrize("subset", [..., [A]])
    def test_an_endpoint_that_cannot(self, ask, subset):
        """In an answer of the wrong kind it may be anything."""
        assert ask(self.spoiled(self.headers_of_the_response(B), subset=subset)).failed == {"ENV-01"}

    def test_what_is_missing_may_be_hidden(self, ask):
        assert ask(self.spoiled((*echo(BODY), headers_answer()))).failed == {"ENV-03"}
        assert ask(self.spoiled(echo(BODY), subset=[STRANGER])).failed == {"ENV-03"}

    def test_an_error_that_can_be_read(self, ask):
        made = Script(pool={})
        made.exchange().request().answers(*echo(BODY), immediate(500)).reset()
        assert ask(made).failed == {"ENV-03", "EPP-ERR-02"}


@pytest.mark.parametrize(
    ("sent", "coding", "body", "wrong"),
    [
        ((), "gzip", BODY, True),
        ((), "identity", BODY, False),
        ((), "gzip", None, False),  # there is nothing to decode
        (((b"content-encoding", b"gzip"),), "gzip", BODY, False),
    ],
)
def test_an_encoding_that_the_body_does_not_have(ask, sent, coding, body, wrong):
    made = script()
    exchange = made.exchange(method="POST" if body else "GET", headers=sent).request(body)
    answer = headers_answer(A, options=[option("content-encoding", coding)])
    exchange.answers(answer, *(echo(body) if body else ())).drained()
    found = ask(made)
    assert not found.failed
    assert ("EPP-TRN-05" in found.warned) is wrong


@pytest.mark.parametrize(("append", "lines"), [(True, 2), (False, 1)])
def test_one_destination_in_two_headers(ask, append, lines):
    made = script()
    again = HeaderMutation(
        remove_headers=[DESTINATION],
        set_headers=[HeaderValueOption(header=option(DESTINATION, A).header, append=BoolValue(value=append))] * 2,
    )
    answer = headers_answer(A)
    answer.request_headers.response.header_mutation.CopyFrom(again)
    made.exchange().request().answers(answer, *echo(BODY)).drained()
    found = ask(made)
    assert not found.failed
    assert ("EPP-DEST-04" in found.warned) is (lines > 1)


def test_the_work_grows_with_the_messages_and_not_with_their_square(ask):
    """A data plane may cut a body of some megabytes into pieces of some bytes."""

    def calls(chunks: int) -> int:
        body, made, count = b"x" * chunks, script(), 0

        def called(*_: object) -> None:
            nonlocal count
            count += 1

        made.exchange().request(body, chunks=chunks).answers(headers_answer(A), *echo(body, chunks=chunks)).drained()
        before = sys.getprofile()
        sys.setprofile(called)
        try:
            ask(made)
        finally:
            sys.setprofile(before)
        return count

    calls(1)  # what is done once and remembered
    assert calls(1600) < 6 * calls(400)
