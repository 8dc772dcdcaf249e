"""Judges of errors, of the model's 404, of the fallback key and of scenarios' expectations."""

from __future__ import annotations

import pytest
from scripted import (
    BODY,
    NAMESPACE,
    Script,
    body_answer,
    echo,
    headers_answer,
    immediate,
    option,
    pod,
    with_metadata,
)

from conformance.evidence.episode import Claims, Expectation
from conformance.verdict import Verdict
from ext_proc.messages import (
    HeaderMap,
    HeaderMutation,
    HttpHeaders,
    ProcessingResponse,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from ext_proc.protocol import DESTINATION, FALLBACK
from ext_proc.record import Author

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = {"a": A, "b": B}


def refused(*answers, pool=POOL, method="POST", load=None, body=BODY, **exchange):
    script = Script(pool=pool)
    for name in pool if load else ():
        script.gauges(name, **load)
    one = script.exchange(method=method, **exchange).request(None if method == "GET" else body)
    one.answers(*answers).drained()
    return script


BUSY = {"queue": 100, "kv": 0.99}
SHEDDABLE = {"sheddable": True}


class TestNoReadyEndpoint:
    @pytest.mark.parametrize("method", ["POST", "GET"])
    def test_503(self, ask, method):
        verdicts = ask(refused(immediate(503), pool={}, method=method))
        assert verdicts.blamed == set()
        assert verdicts["EPP-ERR-02"] is Verdict.PASS

    @pytest.mark.parametrize("method", ["POST", "GET"])
    @pytest.mark.parametrize("code", [500, 429, 404])
    def test_another_code(self, ask, method, code):
        assert ask(refused(immediate(code), pool={}, method=method)).blamed == {"EPP-ERR-02"}

    def test_pods_of_which_none_is_ready(self, ask):
        script = Script().pool(pod("a", A, ready=False), pod("b", B, terminating=True))
        script.exchange().request(BODY).answers(immediate(500)).drained()
        assert ask(script).blamed == {"EPP-ERR-02"}

    def test_429_for_a_sheddable_request_is_a_warning(self, ask):
        verdicts = ask(refused(immediate(429), pool={}, note=SHEDDABLE))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-ERR-02"})

    def test_a_request_that_is_let_go(self, ask):
        assert ask(refused(headers_answer(), *echo(BODY), pool={})).blamed == {"EPP-ERR-02"}
        assert ask(refused(headers_answer(), *echo(BODY), pool={}), "0.2.0").blamed == {"EPP-ERR-01"}

    def test_a_pick_all_the_same(self, ask):
        assert ask(refused(headers_answer(A), *echo(BODY), pool={})).blamed == {"EPP-DEST-06"}

    @pytest.mark.parametrize("code", [400, 503, 599])
    def test_any_error_in_0_2_0(self, ask, code):
        assert ask(refused(immediate(code), pool={}), "0.2.0").blamed == set()

    def test_a_grpc_status(self, ask):
        script = Script(pool={})
        script.exchange().request(BODY).closed(14)
        assert ask(script).blamed == {"EPP-ERR-04"}
        verdicts = ask(script, "0.2.0")
        assert verdicts.blamed == set()
        assert verdicts["EPP-ERR-01"] is verdicts["ENV-16"] is Verdict.PASS

    @pytest.mark.parametrize("expected", [(), ("4xx", "5xx", "grpc-error")])
    @pytest.mark.parametrize("code", [0, 2, 8])
    def test_a_reset(self, ask, code, expected):
        """gRPC has a status for each code of a reset: it is as good an error as a status, whatever asks for one."""
        expectations = {"x1": Expectation(requirement="EPP-ERR-01", answer=expected)} if expected else {}
        script = Script(pool={})
        script.exchange().request(BODY).reset(Author.EPP, code)
        verdicts = ask(script, "0.2.0", expectations=expectations)
        assert verdicts.blamed == set()
        assert verdicts["EPP-ERR-01"] is Verdict.PASS
        assert ask(script).blamed == {"EPP-ERR-04"}

    def test_an_endpoint_of_an_empty_pool_in_0_2_0(self, ask):
        """Which has none of the rules that scenarios name first, and one that asks for an error of any kind."""
        named = {"requirements": ("EPP-ERR-02", "EPP-ERR-01"), "expectations": {"x1": Expectation(answer=("503",))}}
        assert ask(refused(headers_answer(A), *echo(BODY), pool={}), "0.2.0", **named).blamed == {"EPP-ERR-01"}
        assert ask(refused(immediate(500), pool={}), "0.2.0", **named).blamed == set()

    def test_a_closed_stream(self, ask):
        script = Script(pool={})
        script.exchange().request(BODY).closed()
        assert ask(script).blamed == {"EPP-ERR-04"}
        assert ask(script, "0.2.0").blamed == {"EPP-ERR-01"}

    def test_silence(self, ask):
        script = Script(pool={})
        script.exchange().request(BODY).hang("answer to request_headers")
        assert ask(script).blamed == {"EPP-ERR-02"}

    def test_silence_of_a_queue(self, ask):
        script = Script(pool={})
        script.exchange().request(BODY).hang("answer to request_headers")
        assert ask(script, "next", claims=Claims(queues=True)).blamed == {"EPP-SUB-14"}

    def test_a_pool_that_is_becoming_empty(self, ask):
        script = Script(pool=POOL).pool(phases=("asked",))
        script.exchange().request(BODY).answers(immediate(503)).drained()
        script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == set()

    @pytest.mark.parametrize("poll", [True, False])
    @pytest.mark.parametrize("changing", ["emptied", "filled", "a pod leaves"])
    @pytest.mark.parametrize("hint", [..., [A]])
    @pytest.mark.parametrize(
        ("how", "version", "blamed"),
        [
            ("grpc status", "0.2.0", set()),
            ("grpc status", "1.0.0", {"EPP-ERR-04"}),
            ("clean close", "1.0.0", {"EPP-ERR-04"}),
            ("silence", "1.0.0", {"ENV-16"}),
            ("connection lost", "1.0.0", {"ENV-16"}),
        ],
    )
    def test_no_answer_while_any_state_of_the_pool_leaves_nothing(
        self, ask, how, version, blamed, hint, changing, poll
    ):
        """Between the old and the new pool both are right: what is wrong is the form of the error, not ENV-16."""
        script = Script(pool={} if changing == "filled" else POOL)
        after = {"emptied": (), "filled": (pod("a", A),), "a pod leaves": (pod("b", B),)}[changing]
        script.pool(*after, phases=("asked",))
        one = script.exchange(note={"settling": True} if poll else {}, subset=hint).request(BODY)
        match how:
            case "grpc status":
                one.closed(14)
            case "clean close":
                one.closed()
            case "silence":
                one.hang("answer to request_headers")
            case "connection lost":
                one.lost()
        found = ask(script, version)
        stays = changing == "a pod leaves" and hint is ...  # an endpoint is due all the same
        assert found.failed <= ({"ENV-16"} if stays else blamed)
        assert bool(found.failed) is (bool(blamed) or stays)

    @pytest.mark.parametrize("version", ["0.2.0", "1.0.0"])
    @pytest.mark.parametrize(("status", "failed"), [(0, set()), (14, set()), (None, {"ENV-16"})])
    def test_a_poll_of_a_pool_that_was_not_observed(self, ask, version, status, failed):
        script = Script()
        one = script.exchange(note={"settling": True}, subset=[A]).request(BODY)
        if status is None:
            one.hang("answer to request_headers")
        else:
            one.closed(status)
        assert ask(script, version).failed == failed

    def test_a_request_that_is_let_go_while_the_pool_is_emptied(self, ask):
        script = Script(pool=POOL).pool(phases=("asked",))
        script.exchange().request(BODY).answers(headers_answer(), *echo(BODY)).drained()
        assert ask(script).failed == {"EPP-ERR-02"}


class TestErrorsOfTheFirstVersion:
    """0.2.0 names no kind of error (reading AMB-13); 200 is none."""

    def test_a_dropped_request(self, ask):
        for code in (429, 503, 500):
            assert ask(refused(immediate(code), load=BUSY, note=SHEDDABLE), "0.2.0").blamed == set()
        assert ask(refused(immediate(200), load=BUSY, note=SHEDDABLE), "0.2.0").blamed == {"EPP-ERR-01"}

    @pytest.mark.parametrize(
        ("note", "load", "failed"),
        [
            ({}, BUSY, set()),
            ({}, {"metrics": "down"}, set()),
            ({"unknown_model": True}, {}, set()),
            ({}, {}, {"ENV-16"}),
        ],
    )
    def test_a_grpc_error(self, ask, note, load, failed):
        script = Script(pool=POOL)
        for name in POOL:
            script.gauges(name, **load)
        script.exchange(note=note).request(BODY).closed(14)
        assert ask(script, "0.2.0").failed == failed
        assert ask(refused(immediate(500), load=load, note=note), "0.2.0").failed == (
            {"EPP-DEST-01"} if failed else set()
        )
        assert ask(script, "1.0.0").failed & {"ENV-16", "EPP-ERR-04"}

    @pytest.mark.parametrize("expected", [(), ("endpoint", "4xx")])
    @pytest.mark.parametrize("body", [b"{", b"this is not JSON"])
    def test_a_request_that_is_not_understood(self, ask, body, expected):
        expectations = {"x1": Expectation(requirement="EPP-DEST-07", answer=expected)} if expected else {}
        assert ask(refused(immediate(500), body=body), "0.2.0", expectations=expectations).blamed == set()
        script = Script(pool=POOL)
        script.exchange().request(body).closed(2)
        assert ask(script, "0.2.0", expectations=expectations).blamed == set()
        assert ask(script, "0.3.0", expectations=expectations).failed

    def test_an_error_where_an_endpoint_is_expected(self, ask):
        expectations = {"x1": Expectation(requirement="EPP-DEST-07", answer=("endpoint",))}
        assert ask(refused(immediate(500), load=BUSY), "0.2.0", expectations=expectations).failed == {"EPP-DEST-07"}

    @pytest.mark.parametrize("end", ["status", "reset"])
    def test_a_grpc_error_where_the_pool_is_not_known(self, ask, end):
        """In traffic: what is right there as an ImmediateResponse is right as a status."""
        script = Script()
        one = script.exchange().request(BODY)
        _ = one.closed(14) if end == "status" else one.reset(Author.EPP)
        verdicts = ask(script, "0.2.0")
        assert (verdicts.blamed, verdicts["EPP-ERR-01"]) == (set(), None)
        assert ask(script, "1.0.0").failed == {"ENV-16"}
        script = Script()
        script.exchange().response_headers(status=503, end=True).closed(14)  # no answer to a request
        assert ask(script, "0.2.0").failed == {"ENV-23"}


class TestUnderLoad:
    def test_429(self, ask):
        verdicts = ask(refused(immediate(429), load=BUSY, note=SHEDDABLE))
        assert verdicts.blamed == set()
        assert verdicts["EPP-ERR-03"] is Verdict.PASS

    @pytest.mark.parametrize("code", [503, 500, 404])
    def test_another_error(self, ask, code):
        assert ask(refused(immediate(code), load=BUSY, note=SHEDDABLE)).blamed == {"EPP-ERR-03"}

    def test_a_grpc_status(self, ask):
        script = Script(pool=POOL)
        for name in POOL:
            script.gauges(name, **BUSY)
        script.exchange(note=SHEDDABLE).request(BODY).closed(8)
        assert ask(script).blamed == {"EPP-ERR-04"}

    def test_an_endpoint_is_right_unless_shedding_is_claimed(self, ask):
        script = refused(headers_answer(A), *echo(BODY), load=BUSY, note=SHEDDABLE)
        assert ask(script)["EPP-ERR-03"] is Verdict.NOT_APPLICABLE
        assert ask(script, claims=Claims(sheds=True)).blamed == {"EPP-ERR-03"}

    @pytest.mark.parametrize("load", [{"queue": 5, "kv": 0.8}, {"queue": 100}, {"kv": 0.99}])
    def test_limits_of_a_target_that_sheds_may_be_higher(self, ask, load):
        script = refused(headers_answer(A), *echo(BODY), load=load, note=SHEDDABLE)
        assert ask(script, claims=Claims(sheds=True)).blamed == set()

    @pytest.mark.parametrize("expected", [{}, {"x1": Expectation(answer=("429",), requirement="EPP-ERR-03")}])
    def test_an_endpoint_that_is_taken_back_is_shed(self, ask, expected):
        """The client gets the 429 (ENV-15)."""
        script = refused(headers_answer(A), *echo(BODY), immediate(429), load=BUSY, note=SHEDDABLE)
        assert ask(script, claims=Claims(sheds=True), expectations=expected).blamed == set()

    def test_a_subset_that_is_busy_may_get_503(self, ask):
        verdicts = ask(refused(immediate(503), load=BUSY, note=SHEDDABLE, subset=[A]))
        assert verdicts.blamed == set()
        assert verdicts["EPP-SUB-13"] is Verdict.PASS

    def test_a_busy_subset_does_not_open(self, ask):
        script = Script(pool=POOL).gauges("a", **BUSY)
        one = script.exchange(note=SHEDDABLE, subset=[A]).request(BODY)
        one.answers(headers_answer(B), *echo(BODY)).drained()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == ({"EPP-SUB-01"}, {"EPP-SUB-13"})

    def test_metrics_that_cannot_be_read(self, ask):
        for code in (503, 429):
            assert ask(refused(immediate(code), load={"metrics": "down"})).blamed == set()


class TestContents:
    def test_a_destination_in_an_error(self, ask):
        in_header = immediate(503, headers=HeaderMutation(set_headers=[option(DESTINATION, A)]))
        for answer in (in_header, with_metadata(immediate(503), A)):
            verdicts = ask(refused(answer, pool={}))
            assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-ERR-05"})

    def test_a_long_body_and_extra_headers(self, ask):
        headers = HeaderMutation(set_headers=[option("retry-after", "1")])
        assert ask(refused(immediate(503, body=b"x" * 200_000, headers=headers), pool={})).blamed == set()

    @pytest.mark.parametrize("code", [None, 0, 100, 199, 600, 999])
    def test_no_valid_status(self, ask, code):
        assert ask(refused(immediate(code), pool={})).blamed == {"ENV-15"}

    def test_something_after_it(self, ask):
        assert ask(refused(immediate(503), immediate(503), pool={})).blamed == {"ENV-15"}
        assert ask(refused(immediate(503), headers_answer(A), pool={})).blamed == {"ENV-15"}

    def test_the_headers_answer_before_it(self, ask):
        assert ask(refused(headers_answer(), immediate(503), pool={})).blamed == {"ENV-15"}
        assert ask(refused(headers_answer(), immediate(503), pool={}, method="GET")).blamed == {"ENV-15"}

    def test_in_buffered_mode_the_headers_answer_releases_nothing(self, ask):
        script = Script(pool={})
        one = script.exchange(mode="BUFFERED").request_headers().answers(headers_answer())
        one.body(BODY).answers(immediate(503)).drained()
        assert ask(script).blamed == set()

    @pytest.mark.parametrize(("author", "warned"), [(Author.EPP, {"ENV-15"}), (Author.DATA_PLANE, set())])
    def test_a_reset_after_it(self, ask, author, warned):
        script = Script(pool={})
        script.exchange().request().answers(immediate(503)).reset(author)
        verdicts = ask(script)
        assert verdicts.blamed == verdicts.warned == warned

    def test_absence_is_known_on_drained_streams_only(self, ask):
        assert ask(refused(immediate(503), pool={}))["ENV-15"] is Verdict.PASS
        script = Script(pool={})
        script.exchange(ending="envoy").request(BODY).answers(immediate(503)).reset()
        # the order of what was seen holds; that nothing would have followed is not known
        assert "ENV-15" not in ask(script).blamed


class TestModel:
    UNKNOWN = {"unknown_model": True}

    def test_404(self, ask):
        script = refused(immediate(404), note=self.UNKNOWN)
        assert ask(script, "0.3.0")["EPP-MODEL-01"] is Verdict.PASS
        assert ask(script, "1.0.0").blamed == set()

    def test_an_endpoint(self, ask):
        script = refused(headers_answer(A), *echo(BODY), note=self.UNKNOWN)
        assert ask(script, "0.4.0").blamed == {"EPP-MODEL-01"}
        assert ask(script, "1.0.0").blamed == set()

    @pytest.mark.parametrize("expected", [{}, {"x1": Expectation(answer=("404",), requirement="EPP-MODEL-01")}])
    def test_an_endpoint_that_is_taken_back(self, ask, expected):
        """The client gets the 404; that a model server may have got the head of the request is ENV-15."""
        script = refused(headers_answer(A), immediate(404), note=self.UNKNOWN)
        verdicts = ask(script, "0.4.0", expectations=expected)
        assert (verdicts.blamed, verdicts["ENV-15"]) == ({"ENV-15"}, Verdict.WARN)
        assert verdicts["EPP-MODEL-01"] is Verdict.PASS

    def test_an_endpoint_that_is_taken_back_from_the_response(self, ask):
        script = Script(pool=POOL)
        one = script.exchange(note=self.UNKNOWN).request().answers(headers_answer(A), *echo(BODY))
        one.response_headers().answers(immediate(404)).drained()
        assert ask(script, "0.4.0").failed == {"EPP-MODEL-01", "ENV-24"}

    @pytest.mark.parametrize(("mode", "due"), [("BUFFERED", True), ("STREAMED", False), ("NONE", False)])
    def test_a_model_that_is_shown_too_late(self, ask, mode, due):
        """In STREAMED and NONE the request is let go before its body, which names the model, is shown."""
        script = Script()
        exchange = script.exchange(mode=mode, note=self.UNKNOWN).request_headers().answers(headers_answer(A))
        if mode != "NONE":
            exchange.body(BODY).answers(body_answer())
        exchange.drained()
        assert ("EPP-MODEL-01" in ask(script, "0.4.0").failed) is due

    def test_another_code(self, ask):
        assert ask(refused(immediate(400), note=self.UNKNOWN), "0.3.0").blamed == {"EPP-MODEL-01"}
        assert ask(refused(immediate(400), note=self.UNKNOWN), "1.0.0").blamed == set()

    @pytest.mark.parametrize("version", ["1.0.0", "next"])
    @pytest.mark.parametrize(("code", "broken"), [(200, "EPP-DEST-01"), (500, "EPP-DEST-01"), (503, "EPP-ERR-02")])
    def test_what_is_never_right(self, ask, version, code, broken):
        """From 1.0.0 on it is an endpoint or a 4xx."""
        assert ask(refused(immediate(code), note=self.UNKNOWN), version).failed == {broken}

    def test_any_error_in_the_first_version(self, ask):
        assert ask(refused(immediate(500), note=self.UNKNOWN), "0.2.0").blamed == set()
        assert ask(refused(immediate(200), note=self.UNKNOWN), "0.2.0").failed == {"EPP-DEST-01"}

    def test_no_endpoints_and_no_model(self, ask):
        for code in (503, 404):
            assert ask(refused(immediate(code), pool={}, note=self.UNKNOWN), "0.3.0").blamed == set()

    def test_a_request_without_a_body(self, ask):
        verdicts = ask(refused(immediate(404), method="GET"), "0.3.0")
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-MODEL-02"})

    @pytest.mark.parametrize("given", [{}, {"pool": {}}, {"subset": []}])
    def test_where_the_model_is_looked_up_first(self, ask, given):
        """Also where no endpoint is eligible; and a POST without a body may not be understood (AMB-08)."""
        verdicts = ask(refused(immediate(404), method="GET", **given), "0.3.0")
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-MODEL-02"})
        assert ask(refused(immediate(404), method="POST", body=None, **given), "0.3.0").blamed == set()


class TestFallback:
    def ask_for(self, ask, metadata, version="0.3.0", **exchange):
        return ask(refused(headers_answer(header=A, metadata=metadata), *echo(BODY), **exchange), version)

    def test_right(self, ask):
        metadata = {NAMESPACE: {DESTINATION: A, FALLBACK: B}}
        assert self.ask_for(ask, metadata)["EPP-FB-01"] is Verdict.PASS
        assert self.ask_for(ask, metadata, "1.0.0").blamed == set()

    def test_none(self, ask):
        assert self.ask_for(ask, A)["EPP-FB-01"] is Verdict.NOT_APPLICABLE

    @pytest.mark.parametrize("value", ["10.9.9.9:1", f"{A},{B}", "b", ""])
    def test_wrong(self, ask, value):
        assert self.ask_for(ask, {NAMESPACE: {DESTINATION: A, FALLBACK: value}}).blamed == {"EPP-FB-01"}

    def test_the_primary_again_is_a_warning(self, ask):
        verdicts = self.ask_for(ask, {NAMESPACE: {DESTINATION: A, FALLBACK: A}})
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-FB-01"})

    @pytest.mark.parametrize("value", [f" {B}", f"{B}\t", "[::ffff:10.0.0.2]:8000"])
    def test_blanks_and_other_spellings_are_a_warning(self, ask, value):
        """As those of the destination are."""
        verdicts = self.ask_for(ask, {NAMESPACE: {DESTINATION: A, FALLBACK: value}})
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-FB-01"})

    def test_another_namespace(self, ask):
        assert self.ask_for(ask, {NAMESPACE: {DESTINATION: A}, "other": {FALLBACK: B}}).blamed == {"EPP-FB-01"}

    def test_outside_the_subset(self, ask):
        metadata = {NAMESPACE: {DESTINATION: A, FALLBACK: B}}
        assert self.ask_for(ask, metadata, subset=[A]).blamed == {"EPP-FB-01"}


class TestTooLarge:
    @pytest.mark.parametrize(
        ("version", "length", "blamed"),
        [
            ("1.0.0", 3_000_000, set()),
            ("1.0.0", 300_000, {"EPP-DEST-01"}),
            ("next", 5_000_000, set()),
            ("next", 3_000_000, {"EPP-STRM-01"}),
        ],
    )
    @pytest.mark.parametrize("chunks", [[], [BODY[:30] + b"x" * 1000], [BODY[:30], *[b"x" * 59_000] * 5]])
    def test_what_the_body_was_to_be_decides_and_not_what_had_been_sent(self, ask, version, length, blamed, chunks):
        script = Script(pool=POOL)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
        one = script.exchange(headers=headers).request_headers()
        for chunk in chunks:
            one.chunk(chunk)
        one.answers(immediate(413)).drained()
        assert ask(script, version=version).blamed == blamed


class TestExpectations:
    def ask_with(self, ask, script, **expected):
        return ask(script, requirements=("EPP-SUB-04", "EPP-DEST-06"), expectations={"x1": Expectation(**expected)})

    def test_met(self, ask):
        script = refused(headers_answer(A), *echo(BODY))
        verdicts = self.ask_with(ask, script, answer=("endpoint",), within=(A,), absent=(B,))
        assert verdicts.blamed == set()

    def test_the_wrong_endpoint(self, ask):
        script = refused(headers_answer(A), *echo(BODY))
        assert self.ask_with(ask, script, within=(B,)).blamed == {"EPP-SUB-04"}
        assert self.ask_with(ask, script, absent=(A,), requirement="EPP-DEST-06").blamed == {"EPP-DEST-06"}

    def test_the_wrong_kind(self, ask):
        script = refused(immediate(400), body=b"nonsense")
        assert self.ask_with(ask, script, answer=("endpoint",)).blamed == {"EPP-SUB-04"}
        for kind in ("4xx", "400", "any"):
            assert self.ask_with(ask, script, answer=(kind,)).blamed == set()

    def test_one_deviation_is_one_finding(self, ask):
        script = refused(headers_answer(A), *echo(BODY), subset=[B])
        assert self.ask_with(ask, script, within=(B,)).blamed == {"EPP-SUB-01"}

    def test_a_code_that_the_scenario_takes_is_tolerated(self, ask):
        script = refused(immediate(413))
        assert self.ask_with(ask, script, answer=("endpoint", "4xx")).blamed == set()
        assert ask(script).blamed == {"EPP-DEST-01"}


def reply(status: str | None = "503", *, end: bool = False) -> ProcessingResponse:
    headers = HttpHeaders(end_of_stream=end)
    if status is not None:
        headers.headers.headers.add(key=":status", raw_value=status.encode())
    return ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(headers_response=headers))


def piece(*, end: bool = False) -> ProcessingResponse:
    body = StreamedBodyResponse(body=b"busy", end_of_stream=end)
    return ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(body_response=body))


TRAILERS = ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(trailers_response=HeaderMap()))
GRPC_TRAILERS = ProcessingResponse(
    streamed_immediate_response=StreamedImmediateResponse(
        trailers_response=HeaderMap(headers=[{"key": "grpc-status", "raw_value": b"12"}])
    )
)


GRPC = ((b"content-type", b"application/grpc"),)
JSON = ((b"content-type", b"application/json"),)


def as_grpc(status: int, code: int = 200) -> ProcessingResponse:
    return immediate(code, grpc_status={"status": status})


class TestRefusalsOfGrpc:
    """What Envoy 1.40 makes of them for a client of gRPC was tried: 200, with the gRPC status."""

    @pytest.mark.parametrize(
        ("answers", "client", "verdict"),
        [
            ([as_grpc(12)], GRPC, None),
            ([as_grpc(3)], GRPC, None),
            ([immediate(200, headers=HeaderMutation(set_headers=[option("grpc-status", b"12")]))], GRPC, None),
            ([reply("200"), piece(), GRPC_TRAILERS], GRPC, None),
            ([as_grpc(13)], GRPC, Verdict.WARN),  # as for 5xx
            ([as_grpc(14)], GRPC, Verdict.WARN),
            ([as_grpc(0)], GRPC, Verdict.FAIL),
            ([immediate(200)], GRPC, Verdict.FAIL),
            ([as_grpc(12)], JSON, Verdict.FAIL),  # its client gets 200
            ([as_grpc(12, code=204)], GRPC, Verdict.FAIL),
        ],
    )
    def test_of_what_is_not_understood(self, ask, answers, client, verdict):
        found = ask(refused(*answers, headers=client, body=b"\0\0\0\0\1x"))
        assert found.blamed == ({"EPP-DEST-07"} if verdict else set())
        assert found["EPP-DEST-07"] is (verdict or Verdict.PASS)

    @pytest.mark.parametrize(
        ("answer", "client", "failed"),
        [
            (as_grpc(0, 503), GRPC, {"ENV-15"}),
            (immediate(503, headers=HeaderMutation(set_headers=[option("grpc-status", b"0")])), GRPC, {"ENV-15"}),
            (as_grpc(14, 503), GRPC, set()),
            (as_grpc(0, 503), JSON, set()),
            (immediate(503), GRPC, set()),
        ],
    )
    def test_an_error_that_a_client_takes_for_success(self, ask, answer, client, failed):
        assert ask(refused(answer, headers=client, pool={})).failed == failed

    def test_where_another_code_is_due(self, ask):
        script = refused(as_grpc(14), headers=GRPC, pool={})
        assert ask(script).failed == {"EPP-ERR-02"}
        assert ask(script, "0.2.0").blamed == set()

    @pytest.mark.parametrize(("status", "failed"), [(8, set()), (0, {"EPP-ERR-01"})])
    def test_of_a_request_that_is_dropped_where_no_form_is_named(self, ask, status, failed):
        script = refused(as_grpc(status), headers=GRPC, load=BUSY)
        assert ask(script, "0.2.0").failed == failed

    def test_where_a_scenario_expects_one(self, ask):
        script = refused(as_grpc(12), headers=GRPC, body=b"x")
        for expected, failed in (("4xx", set()), ("5xx", {"ENV-06"})):
            expectations = {"x1": Expectation(answer=("endpoint", expected), requirement="ENV-06")}
            assert ask(script, expectations=expectations).failed == failed


class TestStreamedImmediateResponse:
    """As Envoy 1.40 takes it: tried in full duplex, buffered and streamed mode."""

    @pytest.mark.parametrize(
        ("answers", "mode", "failed"),
        [
            ([reply("400", end=True)], "FULL_DUPLEX_STREAMED", set()),
            ([reply("400", end=True)], "BUFFERED", set()),
            ([reply("400"), piece(), piece(end=True)], "FULL_DUPLEX_STREAMED", set()),
            ([reply("400"), piece(), TRAILERS], "FULL_DUPLEX_STREAMED", set()),
            ([reply("400"), piece(end=True)], "NONE", {"EPP-DEST-01"}),  # whose body is not shown
            ([reply("400"), piece(end=True)], "BUFFERED", {"ENV-15"}),
            ([reply("400"), piece(end=True)], "STREAMED", {"ENV-15"}),
            ([reply(None, end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([reply("099", end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([piece(end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([reply("400"), piece()], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([reply("400", end=True), piece(end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([reply("400"), reply("400", end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([immediate(400), piece(end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([reply("400", end=True), immediate(400)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
            ([headers_answer(A), reply("400", end=True)], "FULL_DUPLEX_STREAMED", {"ENV-15"}),
        ],
    )
    def test_its_form(self, ask, answers, mode, failed):
        assert ask(refused(*answers, body=b"no JSON", mode=mode)).failed == failed

    @pytest.mark.parametrize(
        ("name", "field", "value", "failed", "warned"),
        [
            (":status", "value", "400", {"ENV-15"}, {"ENV-11"}),  # Envoy answers 500
            ("x-why", "value", "odd", set(), {"ENV-11"}),
            ("x-why", "raw_value", b"a\nb", {"ENV-11"}, set()),
            ("x why", "raw_value", b"odd", {"ENV-11"}, set()),
            (DESTINATION, "raw_value", A.encode(), set(), {"EPP-ERR-05"}),
            ("content-length", "raw_value", b"4", set(), set()),
        ],
    )
    def test_its_headers(self, ask, name, field, value, failed, warned):
        answer = reply(None if name == ":status" else "400")
        answer.streamed_immediate_response.headers_response.headers.headers.add(key=name, **{field: value})
        found = ask(refused(answer, piece(end=True), body=b"no JSON"))
        assert (found.failed, found.warned) == (failed, warned)

    @pytest.mark.parametrize("method", ["POST", "GET"])
    @pytest.mark.parametrize(
        ("status", "version", "pool", "failed"),
        [
            ("503", "0.2.0", {}, set()),
            ("503", "1.0.0", {}, {"EPP-ERR-04"}),
            ("500", "1.0.0", {}, {"EPP-ERR-02", "EPP-ERR-04"}),
            ("503", "1.0.0", POOL, {"EPP-ERR-02"}),
        ],
    )
    def test_an_error_is_an_immediate_response(self, ask, method, status, version, pool, failed):
        assert ask(refused(reply(status, end=True), pool=pool, method=method), version).failed == failed

    @pytest.mark.parametrize(("method", "failed"), [("POST", {"EPP-DEST-01"}), ("GET", {"EPP-DEST-07"})])
    def test_a_reply_in_the_place_of_an_endpoint(self, ask, method, failed):
        assert ask(refused(reply("200"), piece(end=True), method=method)).failed == failed

    def test_a_reply_of_an_unknown_kind_is_not_judged(self, ask):
        empty = ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse())
        assert ask(refused(empty)).blamed == set()
