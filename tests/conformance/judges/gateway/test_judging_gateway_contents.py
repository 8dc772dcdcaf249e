"""Role data-plane: what the messages hold, and what becomes of what the EPP released (DP-EXTP-01)."""

from __future__ import annotations

import gzip

import pytest
from scripted import BODY, body_answer, echo, headers_answer, immediate, option, streamed, trailers_answer

from conformance.judges.gateway.calling import STREAMS_END
from conformance.verdict import Verdict
from ext_proc.messages import BodyMutation, CommonResponse, HeaderMap, HeaderValue, HttpHeaders
from ext_proc.record import Author, ClientAborted, ClientResponse, Wait

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ANSWER = b'{"id": "1", "model": "m"}'
OTHER = BODY.replace(b"hello", b"HELLO")
GZIP = ((b"content-encoding", b"gzip"),)
JSON = ((b"content-type", b"application/json"),)


@pytest.fixture
def whole(script):
    """A request in full duplex with all bodies in the record, told by what differs."""

    def whole(
        *,
        told=BODY,
        released=BODY,
        arrived=BODY,
        answered=ANSWER,
        told_back=ANSWER,
        back=ANSWER,
        got=ANSWER,
        status=200,
        seen=None,
        method="POST",
        headers=(),
        upstream=(),
        came=(),
    ):
        one = script.exchange(body=BODY, method=method, headers=headers).request(told)
        one.answers(headers_answer(A), *echo(released))
        one.upstream(A, status, body=arrived, answer=answered, headers=upstream)
        one.response_headers(status=status, served=A, end=told_back is None)
        one.answers(headers_answer(side="response"))
        if told_back is not None:
            one.body(told_back, side="response").answers(*echo(back, side="response"))
        return one.client(seen or status, got, came).reset()

    return whole


def test_what_is_the_same_everywhere(gateway, script, whole):
    whole()
    assert gateway(script).blamed == set()


@pytest.mark.parametrize(
    "changed",
    [
        {"told": BODY[:20], "released": BODY[:20], "arrived": BODY[:20]},
        {"told": BODY + BODY, "released": BODY},
        {"told": b""},
        {"released": OTHER},
        {"arrived": BODY[:20]},
        {"arrived": b""},
        {"arrived": BODY + BODY},
        {"arrived": BODY[:-1] + b', "n": 2}'},
        {"told_back": ANSWER[:9], "back": ANSWER[:9], "got": ANSWER[:9]},
        {"told_back": ANSWER * 2, "back": ANSWER},
        {"told_back": None},
        {"got": b""},
        {"back": b"{}"},
        {"upstream": ((b":method", b"GET"),)},
        {"upstream": GZIP},
        {"headers": GZIP},
        {"came": GZIP},
        {"upstream": GZIP, "arrived": b"unpacked"},
        {"status": 500, "seen": 502},
        {"status": 503, "seen": 200},
        {"status": 500, "seen": 204, "got": b""},
        {"status": 500, "seen": 200, "got": b"all is well"},
        {"seen": 500},
        {"seen": 502, "got": b""},
        {"seen": 201},
        {"seen": 204, "got": b""},
        {"status": 204, "answered": b"", "told_back": None, "seen": 200, "got": b""},
        {"method": "HEAD", "told_back": None, "seen": 204, "got": b""},
        {"method": "HEAD", "told_back": None},
        {"status": 304, "told_back": None},
    ],
)
def test_what_is_lost_added_or_exchanged(gateway, script, whole, changed):
    whole(**changed)
    assert gateway(script).failed == {"DP-EXTP-01"}


@pytest.mark.parametrize(
    "changed",
    [
        {"released": OTHER, "arrived": OTHER},
        {"arrived": BODY.replace(b'"m"', b'"another"')},
        {"arrived": BODY.replace(b": ", b":")},
        {"arrived": BODY[:-1] + b', "stream_options": {"include_usage": true}}'},
        {"back": b"{}", "got": b"{}"},
        {"method": "HEAD", "told_back": None, "got": b""},
        {"status": 304, "told_back": None, "got": b""},
        {"status": 503, "got": b"no healthy upstream"},
        {"status": 500, "seen": 502, "got": b"bad gateway"},
        {"seen": 504, "got": b""},
        {"status": 500, "answered": b"", "told_back": None, "seen": 502, "got": b""},
        {"seen": 206, "got": ANSWER[:9]},
        {"seen": 304, "got": b""},
        {"headers": GZIP, "arrived": b"unpacked", "told": b"unpacked"},
        {"upstream": GZIP, "arrived": b"\x1f\x8bpacked"},
        {"headers": GZIP, "upstream": GZIP},
        {"headers": ((b"content-encoding", b"identity"),)},
        {"came": JSON},
        {"headers": JSON, "upstream": ((b"content-type", b"Application/JSON; charset=utf-8"),)},
        {"came": GZIP, "got": b"\x1f\x8bpacked"},
        {"came": GZIP, "back": b"{}", "got": b"{}"},  # the EPP says what it is
        {"method": "HEAD", "upstream": ((b":method", b"GET"),), "told_back": None, "got": b""},
    ],
)
def test_what_may_differ(gateway, script, whole, changed):
    whole(**changed)
    assert gateway(script).blamed == set()


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"status": 500, "got": b"<html>no</html>"}, True),
        ({"status": 500, "back": b"{}", "got": b"<html>no</html>"}, False),  # the EPP has changed it, too
        ({"status": 500, "back": b"{}", "got": b"{}"}, False),
        ({"status": 500, "told_back": None, "got": b"<html>no</html>", "answered": b""}, False),
        ({"status": 503, "got": b"<html>no</html>"}, False),  # which may be the gateway's own, after a retry
    ],
)
def test_a_page_for_errors_is_warned_of(gateway, script, whole, changed, wrong):
    whole(**changed)
    verdicts = gateway(script)
    assert (verdicts.warned, verdicts.failed) == ({"DP-EXTP-01"} if wrong else set(), set())


@pytest.mark.parametrize(
    ("arrived", "got", "wrong"),
    [
        (b"", (200, ANSWER), True),
        (BODY[:9], (200, ANSWER), True),
        (BODY[9:], (200, ANSWER), True),
        (BODY[:3] + BODY[9:], (200, ANSWER), True),
        (BODY, (200, ANSWER), False),
        (None, (500, b""), False),
    ],
)
@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_a_request_without_an_end_is_not_cut(gateway, script, arrived, got, wrong, broken, mode):
    one = script.exchange(body=BODY).request().answers(headers_answer(A), streamed(BODY[:9]))
    one.reset(Author.EPP) if broken else one.closed(14)
    if arrived is not None:
        one.upstream(B if mode == "open" else A, 200, body=arrived, answer=ANSWER)
    one.client(*got)
    assert gateway(script, failure_mode=mode).blamed == ({"DP-EXTP-01"} if wrong else set())


@pytest.mark.parametrize(
    ("status", "got", "complete", "wrong"),
    [
        (200, b"", True, True),
        (200, ANSWER[:9], True, True),
        (200, ANSWER[9:], True, True),
        (200, ANSWER[:9], False, False),
        (200, ANSWER, True, False),
        (500, b"", True, False),
    ],
)
def test_a_response_without_an_end_is_not_cut(gateway, script, status, got, complete, wrong):
    one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER).response_headers(served=A)
    one.answers(headers_answer(side="response")).body(ANSWER, side="response").answers(
        streamed(ANSWER[:9], side="response")
    )
    one.reset(Author.EPP)
    chunked = ((b"transfer-encoding", b"chunked"),)
    fields = {"status": status, "headers": chunked, "body": got, "size": len(got), "complete": complete}
    one.emit(ClientResponse(exchange=one.name, **fields))
    assert gateway(script).blamed == ({"DP-EXTP-01"} if wrong else set())


@pytest.mark.parametrize(("arrived", "wrong"), [("/a?b=1", False), ("/a", True), ("/other", False), ("/a?c=2", False)])
def test_the_query_goes_on_with_the_path_of_the_client(gateway, script, arrived, wrong):
    """On a path that the gateway rewrites, the query may be another, too."""
    one = script.exchange(method="GET", path="/a?b=1").request(None).answers(headers_answer(A))
    one.upstream(A, headers=((b":path", arrived.encode()),)).response_headers(served=A, end=True)
    one.answers(headers_answer(side="response")).client(200).reset()
    assert gateway(script).failed == ({"DP-EXTP-01"} if wrong else set())


def test_the_query_of_a_path_that_the_epp_rewrites(gateway, script):
    one = script.exchange(method="GET", path="/a?b=1").request(None)
    one.answers(headers_answer(A, options=[option(":path", "/a")])).upstream(A, headers=((b":path", b"/a"),))
    one.response_headers(served=A, end=True).answers(headers_answer(side="response")).client(200).reset()
    assert gateway(script).blamed == set()


def test_names_of_models_in_events_whatever_the_case_of_their_type(gateway, script):
    events, kind = b'data: {"model": "a"}\n\ndata: [DONE]\n\n', ((b"content-type", b"Text/Event-Stream"),)
    one = script.exchange(body=BODY).request(BODY).answers(headers_answer(A), *echo(BODY))
    one.upstream(A, body=BODY, answer=events, replied=kind)
    one.response_headers(served=A, content_type="Text/Event-Stream").answers(headers_answer(side="response"))
    one.body(events, side="response").answers(*echo(events, side="response"))
    one.client(200, events.replace(b'"a"', b'"b"'), kind).reset()
    assert gateway(script).blamed == set()


def test_a_body_that_goes_on_before_the_epp_released_it(gateway, script):
    one = script.exchange(body=BODY).request().answers(headers_answer(A)).upstream(A, body=BODY, answer=ANSWER)
    one.answers(*echo(OTHER)).response_headers(served=A).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER).reset()
    assert gateway(script).failed == {"DP-EXTP-01"}


class TestTheClient:
    """What the model server answered, and the EPP released, reaches the client whole."""

    def answered(self, script, *, slow=0.0, left=False, http=1, **got):
        one = script.exchange(body=BODY, http=http).request(BODY).answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 200, body=BODY, answer=ANSWER).response_headers(served=A)
        script.pass_time(slow)
        one.answers(headers_answer(side="response")).body(ANSWER, side="response")
        one.answers(*echo(ANSWER, side="response"))
        if left:
            one.closed(13)
        body = got.get("body", b"")
        one.emit(ClientResponse(exchange=one.name, size=len(body), **{"status": 200, "complete": False, **got}))
        if not left:
            one.reset()

    @pytest.mark.parametrize(
        "got",
        [
            {"status": None},
            {"body": ANSWER[:9], "headers": ((b"Content-Length", b"25"),)},
            {"body": ANSWER, "headers": ((b"transfer-encoding", b"chunked"),)},
            {"body": ANSWER, "http": 2},
            {"status": 503, "body": b"no healthy upstream", "complete": True},
        ],
    )
    def test_lost(self, gateway, script, got):
        self.answered(script, **got)
        assert gateway(script).failed == {"DP-EXTP-01"}

    @pytest.mark.parametrize("method", ["POST", "HEAD"])
    @pytest.mark.parametrize("slow", [0.0, 0.2])
    @pytest.mark.parametrize("told", [True, False])
    def test_it_never_comes(self, gateway, script, method, slow, told):
        """The client waits for it until its patience is over."""
        one = script.exchange(body=BODY, method=method).request(BODY)
        script.pass_time(slow)
        one.answers(headers_answer(A), *echo(BODY)).upstream(A, 200, body=BODY, answer=ANSWER)
        if told:
            one.response_headers(served=A, end=method == "HEAD").answers(headers_answer(side="response"))
        if told and method == "POST":
            one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response"))
        one.waited("answer of the gateway", "expired", 5.0)
        one.emit(ClientResponse(exchange=one.name, status=None, complete=False)).reset()
        assert gateway(script).failed == (set() if slow else {"DP-EXTP-01"})

    @pytest.mark.parametrize(
        "got",
        [
            {"body": ANSWER},  # it ends with its connection, which may be reset
            {"status": 504, "complete": True},
            {"status": None, "slow": 0.2},
            {"status": 500, "complete": True, "slow": 0.2},
            {"body": ANSWER[:9], "http": 2, "left": True},
        ],
    )
    def test_not_lost(self, gateway, script, got):
        self.answered(script, **got)
        assert gateway(script).failed == set()

    @pytest.mark.parametrize(
        ("answer", "told", "got", "lost"),
        [
            (ANSWER, 502, 502, True),
            (ANSWER, 504, 504, False),
            (ANSWER * 400, 502, 502, False),
            (ANSWER, 403, 403, False),
        ],
    )
    def test_an_error_in_its_place_of_which_the_epp_is_told(self, gateway, script, answer, told, got, lost):
        own = b"no response that I understand"
        one = script.exchange(body=BODY).request(BODY).answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 200, body=BODY, answer=answer).response_headers(status=told)
        one.answers(headers_answer(side="response")).body(own, side="response")
        one.answers(*echo(own, side="response")).client(got, own).reset()
        assert gateway(script).failed == ({"DP-EXTP-01"} if lost else set())

    def test_an_error_after_a_call_before_the_epp_was_asked(self, gateway, script):
        """The call is wrong (DP-DEST-01); its response need not be the client's."""
        own = b"no endpoint of the list serves"
        one = script.exchange(stream=False, body=BODY).upstream(B, 200, body=BODY, answer=ANSWER)
        one.asks("epp").request(BODY).answers(headers_answer(A), *echo(BODY)).response_headers(status=503)
        one.answers(headers_answer(side="response")).body(own, side="response")
        one.answers(*echo(own, side="response")).client(503, own).reset()
        verdicts = gateway(script)
        assert "DP-DEST-01" in verdicts.failed
        assert "DP-EXTP-01" not in verdicts.failed


@pytest.mark.parametrize(("paths", "wrong"), [(("/a?b=1", "/a?b=1"), False), (("/a?b=1", "/a"), True)])
def test_a_retry_asks_for_the_same_path(gateway, script, paths, wrong):
    one = script.exchange(body=BODY).request(BODY).answers(headers_answer(f"{A},{B}"), *echo(BODY))
    for endpoint, status, path in zip((A, B), (503, 200), paths, strict=True):
        one.upstream(endpoint, status, body=BODY, answer=ANSWER, headers=((b":path", path.encode()),))
    one.response_headers(status=200, served=B).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER).reset()
    assert ("DP-EXTP-01" in gateway(script).blamed) is wrong


@pytest.mark.parametrize(
    ("got", "came", "wrong"),
    [(ANSWER, (), False), (ANSWER, GZIP, True), (gzip.compress(ANSWER, 1, mtime=0), GZIP, False)],
)
def test_a_response_that_the_gateway_unpacks_for_the_epp(gateway, script, got, came, wrong):
    one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=gzip.compress(ANSWER), replied=GZIP).response_headers(served=A)
    one.answers(headers_answer(side="response")).body(ANSWER, side="response").answers(*echo(ANSWER, side="response"))
    one.client(200, got, came).reset()
    assert gateway(script).blamed == ({"DP-EXTP-01"} if wrong else set())


@pytest.mark.parametrize("upstream", [(), ((b"content-type", b"text/html"),)])
def test_a_body_of_another_type_than_it_came_with(gateway, whole, script, upstream):
    whole(headers=JSON, upstream=upstream)
    assert gateway(script)["DP-EXTP-01"] is Verdict.WARN


@pytest.mark.parametrize(
    ("told", "upstream", "got", "wrong"),
    [
        ({}, {}, {}, False),
        ({":path": "/"}, {}, {}, True),
        ({":path": "/other"}, {":path": "/other"}, {}, False),  # rewritten before the EPP is asked
        ({"x-tenant": "a, b"}, {}, {}, False),
        ({"x-tenant": "a"}, {}, {}, True),
        ({"x-tenant": None}, {}, {}, False),  # left out
        ({"x-tenant": ""}, {}, {}, True),
        ({"x-tenant": "a"}, {"x-tenant": "a"}, {}, False),
        ({"authorization": "hidden"}, {}, {}, False),
        ({}, {}, {":status": "200"}, True),
        ({}, {}, {"x-model": "n"}, True),
    ],
)
def test_what_the_epp_is_told_of_headers(gateway, script, told, upstream, got, wrong):
    sent = {":path": "/v1/completions", "x-tenant": "a,b", "authorization": "k"}
    answered = {":status": "404", "x-model": "m"}

    def pairs(fields):
        return tuple((name.encode(), text.encode()) for name, text in fields.items() if text is not None)

    def message(fields):
        values = [HeaderValue(key=name.decode(), raw_value=value) for name, value in pairs(fields)]
        return HttpHeaders(headers=HeaderMap(headers=values), end_of_stream=True)

    kept = {name: text for name, text in sent.items() if not name.startswith(":")}
    one = script.exchange(method="GET", path="/v1/completions", headers=pairs(kept))
    one.say(request_headers=message({":method": "GET", **sent, **told})).answers(headers_answer(A))
    model = ((b"x-model", b"m"),)
    one.upstream(A, 404, body=b"", answer=b"", headers=pairs({**sent, **upstream}), replied=model)
    one.say(response_headers=message({**answered, **got})).answers(headers_answer(side="response"))
    one.client(404, b"", model).reset()
    assert (gateway(script)["DP-EXTP-01"] is Verdict.FAIL) == wrong


def test_a_stream_that_is_left_open(gateway, script):
    one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER).response_headers(served=A).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER)
    one.emit(Wait(exchange=one.name, what=STREAMS_END, outcome="expired", seconds=1.0))
    assert gateway(script)["DP-EXTP-01"] is Verdict.WARN


@pytest.mark.parametrize("left_open", [True, False])
def test_a_stream_that_is_left_open_when_the_client_is_gone(gateway, script, left_open):
    one = script.exchange(body=BODY).request_headers().body(BODY[:9], end=False).answers(headers_answer(A))
    one.emit(ClientAborted(exchange=one.name, point="request-body"))
    if left_open:
        one.emit(Wait(exchange=one.name, what=STREAMS_END, outcome="expired", seconds=1.0))
    else:
        one.reset()
    assert gateway(script).warned == ({"DP-EXTP-01"} if left_open else set())


@pytest.mark.parametrize(
    ("told", "end", "sent_on", "wrong"),
    [
        (BODY[:9], False, None, False),
        (BODY[:9], True, None, True),
        (b"", True, None, True),
        (BODY, True, BODY, False),
        (b"{}", True, b"{}", False),
        (BODY[:9], False, BODY[:9], True),
        (BODY[:9], False, b"", True),
    ],
)
def test_a_body_in_whose_midst_the_client_went_away_has_no_end(gateway, script, told, end, sent_on, wrong):
    one = script.exchange(body=BODY).request_headers().body(told, end=end)
    one.answers(headers_answer(A), *echo(told)) if end else one.answers(headers_answer(A))
    one.upstream(A, body=sent_on, answer=ANSWER) if sent_on is not None else None
    one.aborted()
    assert gateway(script).failed == ({"DP-EXTP-01"} if wrong else set())


def test_a_beginning_that_the_epp_made_of_a_body_is_none(gateway, script):
    """What the EPP cleared goes on as it should."""
    one = script.exchange(body=BODY, mode="BUFFERED").request_headers().answers(headers_answer(A))
    one.body(BODY).answers(body_answer(body_mutation=BodyMutation(clear_body=True)))
    one.upstream(A, body=b"", answer=ANSWER).aborted("response")
    assert gateway(script).failed == set()


@pytest.mark.parametrize("missing", [":method", ":path", ":authority", ":status"])
def test_pseudo_headers_are_there(ask, script, missing):
    """A warning: Envoy can be told to forward some headers only."""

    def named(*names):
        pairs = [HeaderValue(key=name, raw_value=b"1") for name in names if name != missing]
        return HttpHeaders(headers=HeaderMap(headers=pairs), end_of_stream=True)

    one = script.exchange(opened=False).say(request_headers=named(":method", ":path", ":authority"))
    one.answers(headers_answer(A))
    one.say(response_headers=named(":status", "x")).reset()
    found = ask(script, role="data-plane")
    assert found["DP-EXTP-01"] is Verdict.WARN
    assert found.finding("DP-EXTP-01").actual == f"no {missing}"  # a warning is printed without what was expected


def test_the_authority_may_be_told_as_the_host(ask, script):
    pairs = [HeaderValue(key=name, raw_value=b"1") for name in (":method", ":path", "host")]
    one = script.exchange(opened=False).say(request_headers=HttpHeaders(headers=HeaderMap(headers=pairs)))
    one.answers(headers_answer(A)).reset()
    assert ask(script, role="data-plane").blamed == set()


@pytest.mark.parametrize(
    ("came", "told", "went", "verdict"),
    [
        ("example.test", "example.test", "example.test", Verdict.PASS),
        ("example.test:8080", "example.test", "example.test:8080", Verdict.PASS),
        ("example.test", "example.test:8080", "example.test", Verdict.PASS),
        ("example.test:8080", "example.test:80", "example.test:8080", Verdict.PASS),
        ("Example.Test", "example.test", "Example.Test", Verdict.PASS),
        ("example.test.", "example.test", "example.test.", Verdict.PASS),
        ("[::1]:8080", "[::1]", "[::1]:8080", Verdict.PASS),
        ("example.test", "pool.internal", "pool.internal", Verdict.PASS),  # rewritten before the EPP is asked
        ("example.test", "pool.internal", "example.test", Verdict.WARN),
        ("[::1]", "[::2]", "[::1]", Verdict.WARN),
    ],
)
def test_the_authority_of_which_the_epp_is_told(gateway, script, came, told, went, verdict):
    pairs = [(":method", "GET"), (":path", "/v1/models"), (":authority", told)]
    headers = HeaderMap(headers=[HeaderValue(key=name, raw_value=value.encode()) for name, value in pairs])
    one = script.exchange(method="GET", path="/v1/models", note={"authority": came})
    one.say(request_headers=HttpHeaders(headers=headers, end_of_stream=True)).answers(headers_answer(A))
    one.upstream(A, answer=ANSWER, headers=((b"host", went.encode()),)).response_headers(served=A)
    one.answers(headers_answer(side="response")).body(ANSWER, side="response").answers(*echo(ANSWER, side="response"))
    assert gateway(one.client(200, ANSWER).reset().script)["DP-EXTP-01"] is verdict


def test_a_connect_has_no_path(ask, script):
    pairs = [HeaderValue(key=name, raw_value=b"CONNECT") for name in (":method", ":authority")]
    one = script.exchange(opened=False).say(request_headers=HttpHeaders(headers=HeaderMap(headers=pairs)))
    one.answers(headers_answer(A)).reset()
    assert ask(script, role="data-plane").blamed == set()


class TestNotJudged:
    def test_a_client_that_went_away(self, gateway, script):
        one = script.exchange(body=BODY).request_headers().body(BODY[:9], end=False)
        one.answers(headers_answer(A), *echo(BODY[:9], end=False)).aborted()
        assert gateway(script).blamed == set()

    def test_a_request_that_expired(self, gateway, script):
        one = script.exchange(body=BODY).request(BODY[:9]).answers(headers_answer(A), *echo(BODY[:9]))
        one.upstream(A, body=BODY[:9], answer=ANSWER)
        one.emit(Wait(exchange=one.name, what="answer of the gateway", outcome="expired", seconds=5)).reset()
        assert gateway(script).blamed == set()

    def test_a_direction_that_has_not_ended(self, gateway, script):
        script.exchange(body=BODY).request_headers().chunk(BODY[:9]).client(413).reset()
        assert gateway(script).blamed == set()

    def test_answers_that_are_not_complete(self, gateway, script):
        one = script.exchange(body=BODY).request().answers(headers_answer(A), streamed(BODY[:9]))
        one.upstream(A, body=BODY, answer=ANSWER).response_headers(served=A).body(ANSWER, side="response")
        one.client(200, ANSWER).reset()
        assert gateway(script).blamed == set()

    def test_bodies_that_the_epp_is_not_sent(self, gateway, script):
        one = script.exchange(mode="NONE", body=BODY).request().answers(headers_answer(A))
        one.upstream(A, body=b"something else", answer=ANSWER).response_headers(served=A).client(200, b"{}").reset()
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize(("got", "blamed"), [(BODY, set()), (BODY[:9], {"DP-EXTP-01"}), (b"", {"DP-EXTP-01"})])
    def test_unless_they_are_cut(self, gateway, script, got, blamed):
        one = script.exchange(mode="NONE", body=BODY).request().answers(headers_answer(A))
        one.upstream(A, body=got, answer=ANSWER).response_headers(served=A).client(200, ANSWER).reset()
        assert gateway(script).blamed == blamed

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize("crossed", [True, False])
    def test_unless_they_are_those_of_another_request(self, gateway, script, side, crossed):
        bodies = [(BODY, ANSWER), (OTHER, ANSWER.replace(b"1", b"2"))]
        for number, (body, answer) in enumerate(bodies):
            sent, got = body, answer
            if crossed:
                sent, got = (bodies[1 - number][0], got) if side == "request" else (sent, bodies[1 - number][1])
            one = script.exchange(mode="NONE", body=body).request().answers(headers_answer(A))
            one.upstream(A, body=sent, answer=answer).response_headers(served=A).client(200, got).reset()
        assert gateway(script).failed == ({"DP-EXTP-01"} if crossed else set())

    def test_a_status_that_the_epp_changed(self, gateway, script):
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 500, body=BODY, answer=b"broken").response_headers(status=500, served=A)
        one.answers(headers_answer(side="response", options=[option(":status", "502")]))
        one.body(b"broken", side="response").answers(*echo(b"broken", side="response")).client(502, b"broken").reset()
        assert gateway(script).blamed == set()

    def test_a_response_in_place_of_which_the_epp_gave_its_own(self, gateway, script):
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 500, body=BODY, answer=b"broken").response_headers(status=500, served=A)
        one.answers(immediate(502, body=b"broken")).client(502, b"broken").reset()
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize("kind", [b"application/json", b"application/grpc"])
    def test_a_status_of_grpc(self, gateway, script, kind):
        one = script.exchange(method="GET", headers=((b"content-type", kind),)).request().answers(headers_answer(A))
        one.upstream(A, 500, answer=b"broken").response_headers(status=500, served=A)
        one.answers(headers_answer(side="response")).body(b"broken", side="response")
        one.answers(*echo(b"broken", side="response")).client(502, b"broken").reset()
        assert ("DP-EXTP-01" in gateway(script).blamed) is (kind == b"application/json")

    def test_a_second_question(self, gateway, script):
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(OTHER)).reset()
        one.asks("again").request(OTHER).answers(headers_answer(A), *echo(OTHER)).upstream(A, body=OTHER, answer=ANSWER)
        one.response_headers(served=A).body(ANSWER, side="response").client(200, ANSWER).reset()
        assert gateway(script).blamed == set()

    @pytest.mark.parametrize(
        ("changed", "wrong"),
        [({}, False), ({"arrived": b""}, True), ({"told": BODY[:9], "arrived": BODY[:9]}, True), ({"got": b""}, True)],
    )
    def test_unless_the_first_epp_changed_nothing(self, gateway, script, changed, wrong):
        case = {"told": BODY, "arrived": BODY, "got": ANSWER, **changed}
        one = script.exchange(body=BODY).request().answers(headers_answer(A), *echo(BODY))
        one.upstream(A, 503, body=BODY, answer=b"busy").reset()
        one.asks("again").request(case["told"]).answers(headers_answer(B), *echo(case["told"]))
        one.upstream(B, body=case["arrived"], answer=ANSWER)
        one.response_headers(served=B).answers(headers_answer(side="response")).body(ANSWER, side="response")
        one.answers(*echo(ANSWER, side="response")).client(200, case["got"]).reset()
        assert gateway(script).failed == ({"DP-EXTP-01"} if wrong else set())

    def test_a_body_with_trailers_that_real_envoy_sends_twice(self, gateway, script):
        one = script.exchange(body=BODY).request(trailers=True).answers(headers_answer(A), streamed(BODY))
        one.answers(trailers_answer()).upstream(A, body=BODY + BODY, answer=ANSWER).response_headers(served=A)
        one.body(ANSWER, side="response").client(200, ANSWER).reset()
        assert gateway(script).blamed == set()


@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "STREAMED"])
@pytest.mark.parametrize(("arrived", "wrong"), [(OTHER, False), (BODY, True), (b"", True)])
def test_a_body_that_the_epp_replaces_before_it_is_told(gateway, script, mode, arrived, wrong):
    replacing = headers_answer(A)
    common = replacing.request_headers.response
    common.status = CommonResponse.CONTINUE_AND_REPLACE
    common.body_mutation.body = OTHER
    one = script.exchange(mode=mode, body=BODY).request_headers().answers(replacing)
    one.upstream(A, body=arrived, answer=ANSWER).response_headers(served=A).answers(headers_answer(side="response"))
    if mode != "NONE":
        one.body(ANSWER, side="response").answers(body_answer(side="response"))
    one.client(200, ANSWER).reset()
    assert gateway(script).blamed == ({"DP-EXTP-01"} if wrong else set())


def test_an_error_of_the_gateway_for_a_grpc_client(gateway, script):
    one = script.exchange(body=BODY, headers=((b"content-type", b"application/grpc"),))
    one.request(BODY).answers(headers_answer(A), *echo(BODY)).upstream(A, 503, body=BODY, answer=b"busy")
    one.client(200, b"", ((b"grpc-status", b"14"),)).reset()
    assert gateway(script).failed == set()


def test_a_response_of_an_attempt_before_the_last(gateway, script):
    one = script.exchange(body=BODY).request(BODY).answers(headers_answer(f"{A},{B}"), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER).upstream(B, 500, body=BODY, answer=b"broken")
    one.response_headers(status=200, served=A).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER).reset()
    assert "DP-EXTP-01" not in gateway(script).failed


COOKIES = ((b"set-cookie", b"session=1; Path=/"), (b"set-cookie", b"tier=gold"))
LIST = ((b"x-list", b"one"), (b"x-list", b"two, three"))


@pytest.mark.parametrize(
    ("came", "out", "lost"),
    [
        (COOKIES, COOKIES, False),
        (COOKIES, ((b"set-cookie", b"session=1; Path=/, tier=gold"),), True),
        (COOKIES, COOKIES[1:], True),
        (COOKIES, (), False),
        (COOKIES, (*reversed(COOKIES), (b"set-cookie", b"own=1")), False),
        (COOKIES, ((b"set-cookie", b"session=1; Path=/; Secure"), COOKIES[1]), False),
        (LIST, ((b"x-list", b"one, two,three"),), False),
        (LIST, LIST[1:], True),
        (LIST, (), False),
        (LIST[1:], LIST[:1], False),
    ],
)
@pytest.mark.parametrize("side", ["request", "response"])
def test_headers_in_several_lines(gateway, script, side, came, out, lost):
    """A gateway may take a header away, and add to it; that it takes some lines can't be meant."""
    (sent, arrived), (replied, got) = ((came, out), ((), ())) if side == "request" else (((), ()), (came, out))
    one = script.exchange(body=BODY, headers=sent).request(BODY).answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER, headers=arrived, replied=replied)
    one.response_headers(status=200, served=A).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER, got).reset()
    assert gateway(script)["DP-EXTP-01"] is (Verdict.WARN if lost else Verdict.PASS)


LENGTH = ((b"content-length", b"20"),)


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        ({"status": 200, "body": ANSWER[:20], "headers": LENGTH}, True),
        ({"status": 200, "body": ANSWER[:20], "headers": LENGTH, "complete": False}, False),
        ({"status": 200, "body": ANSWER[:20]}, False),
        ({"status": 200, "body": b"", "headers": ((b"content-length", b"0"),)}, True),
        ({"status": 200, "body": ANSWER[:20] + b"error", "headers": LENGTH}, False),
        ({"status": 502, "body": ANSWER[:20], "headers": LENGTH}, False),
        ({"status": 503, "body": b"no healthy upstream", "headers": LENGTH}, False),
    ],
)
def test_a_response_that_is_cut_at_the_model_server(gateway, script, got, wrong):
    """One without a length and not chunked ends with its connection: that it is cut can't be seen."""
    one = script.exchange(body=BODY).request(BODY).answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER[:20], cut=True)
    one.response_headers(status=200, served=A).answers(headers_answer(side="response"))
    one.emit(ClientResponse(exchange=one.name, size=len(got["body"]), **got)).reset()
    assert ("DP-EXTP-01" in gateway(script).failed) is wrong


TENANT, TIER = ((b"x-tenant", b"7"),), ((b"x-tier", b"free"),)


@pytest.mark.parametrize(
    ("out", "wrong"),
    [
        (((b"x-tier", b"gold"),), False),
        (((b"x-tier", b"gold"), (b"x-tenant", b"8")), False),
        (((b"x-tier", b"gold"), *TENANT), True),
        (TIER, True),
        ((), True),
    ],
)
@pytest.mark.parametrize("side", ["request", "response"])
def test_headers_that_the_epp_changes(gateway, script, side, out, wrong):
    came = (*TENANT, *TIER)
    change = {"options": [option("x-tier", "gold")], "remove": ["x-tenant"]}
    request = headers_answer(A, **(change if side == "request" else {}))
    response = headers_answer(side="response", **(change if side == "response" else {}))
    (sent, arrived), (replied, got) = ((came, out), ((), ())) if side == "request" else (((), ()), (came, out))
    one = script.exchange(body=BODY, headers=sent).request(BODY).answers(request, *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER, headers=arrived, replied=replied)
    one.response_headers(status=200, headers=replied, served=A).answers(response)
    one.body(ANSWER, side="response").answers(*echo(ANSWER, side="response")).client(200, ANSWER, got).reset()
    assert gateway(script)["DP-EXTP-01"] is (Verdict.WARN if wrong else Verdict.PASS)


@pytest.mark.parametrize(
    ("http", "got", "lost"), [(2, (), True), (2, ((b"grpc-status", b"0"),), False), (1, (), False)]
)
def test_trailers_of_the_response(gateway, script, http, got, lost):
    """In HTTP/1.1 they may be dropped on any way; there they need chunks."""
    one = script.exchange(body=BODY, http=http).request(BODY).answers(headers_answer(A), *echo(BODY))
    one.upstream(A, 200, body=BODY, answer=ANSWER)
    one.response_headers(status=200, served=A).answers(headers_answer(side="response"))
    one.body(ANSWER, side="response", trailers=True).answers(streamed(ANSWER, side="response"))
    one.answers(trailers_answer(side="response"))
    one.emit(ClientResponse(exchange=one.name, status=200, body=ANSWER, size=len(ANSWER), trailers=got)).reset()
    assert gateway(script)["DP-EXTP-01"] is (Verdict.WARN if lost else Verdict.PASS)
