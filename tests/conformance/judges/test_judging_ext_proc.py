"""Judges of the carrier: order, completeness, mutations, and what was never a message."""

from __future__ import annotations

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

from conformance.evidence.episode import Claims, Expectation, ProcessExited
from conformance.verdict import Verdict
from ext_proc.messages import (
    BodyMutation,
    CommonResponse,
    Duration,
    HeaderMutation,
    HeadersResponse,
    HeaderValueOption,
    ImmediateResponse,
    ProcessingMode,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from ext_proc.protocol import DESTINATION
from ext_proc.record import STILL_OPEN, Author, Malformed, Message, StreamOpened

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
POOL = {"a": A, "b": B}
TRACE = "0af7651916cd43dd8448eb211c80319c"


def started(**exchange):
    script = Script(pool=POOL)
    return script, script.exchange(**exchange)


def answered(*answers, chunks=1, trailers=False, **exchange):
    script, one = started(**exchange)
    one.request(BODY, chunks=chunks, trailers=trailers).answers(*answers).drained()
    return script


class TestKinds:
    def test_wrong_member(self, ask):
        assert ask(answered(headers_answer(A, side="response"))).blamed == {"ENV-01"}
        assert ask(answered(trailers_answer())).blamed == {"ENV-01"}

    def test_trailers_that_never_came_may_be_answered_behind_the_end_of_full_duplex(self, ask):
        """Envoy ignores it there; the rest is judged as if it had not been."""
        verdicts = ask(answered(headers_answer(A), *echo(BODY), trailers_answer(), *echo(BODY)))
        assert verdicts.finding("ENV-01").verdict is Verdict.WARN
        assert verdicts.failed == {"ENV-05"}
        script, one = started(mode="BUFFERED")
        one.request_headers().answers(headers_answer(A)).body(BODY).answers(body_answer(), trailers_answer())
        assert ask(script).failed == {"ENV-01"}

    def test_so_they_may_where_the_record_has_only_the_beginning_of_the_last_piece(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A))
        (piece,) = echo(BODY)
        raw = piece.SerializeToString()
        one.emit(Message(exchange=one.name, stream=one.stream, author=Author.EPP, raw=raw[:12], size=len(raw)))
        one.answers(trailers_answer()).drained()
        assert ask(script).finding("ENV-01").verdict is Verdict.WARN

    def test_the_response_is_answered_as_the_request(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers().answers(headers_answer()).drained()
        assert ask(script).blamed == {"ENV-01"}

    @pytest.mark.parametrize("trailers", [False, True])
    def test_the_body_of_the_response_is_answered_as_that_of_the_request(self, ask, trailers):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers()
        one.answers(headers_answer(side="response")).body(b"{}", side="response", end=not trailers)
        if trailers:
            one.trailers(side="response")
        one.answers(*echo(b"{}", end=not trailers)).drained()
        assert ask(script).failed == {"ENV-01"}

    def test_no_member(self, ask):
        assert ask(answered(ProcessingResponse())).blamed == {"ENV-01"}
        assert ask(answered(headers_answer(A), *echo(BODY), ProcessingResponse())).blamed == {"ENV-01"}

    @pytest.mark.parametrize(
        "raw", [b"\xff", b"\x0a\x05\x00", b"not protobuf at all", b"\x0a\x06\x0a\x04\x12\x02\x0a\xff"]
    )
    def test_bytes_that_are_no_message(self, ask, raw):
        finding = ask(answered(raw)).finding("ENV-01")
        assert finding.verdict is Verdict.FAIL
        assert finding.seq is not None

    def test_invalid_utf8_in_a_string(self, ask):
        raw = headers_answer(A).SerializeToString().replace(b"x-gateway", b"\xff\xfe-gateway"[:9])
        assert ask(answered(raw)).blamed == {"ENV-01"}

    def test_unknown_members_are_not_judged(self, ask):
        verdicts = ask(answered(b"\xa2\x06\x03abc"))
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-01"] is None

    def test_unknown_fields_beside_a_known_member_are_nothing(self, ask):
        raw = headers_answer(A).SerializeToString() + b"\xc2\x3e\x03sam"
        assert ask(answered(raw, *echo(BODY))).blamed == set()

    def test_unknown_kind_of_body_mutation_is_not_judged(self, ask):
        mutation = BodyMutation.FromString(b"\x7a\x01x")
        assert ask(answered(headers_answer(A), body_answer(body_mutation=mutation))).blamed == set()

    def test_unknown_enum_values_do_not_matter(self, ask):
        script, one = started(mode="BUFFERED")
        answer = headers_answer(A)
        answer.request_headers.response.status = 77
        one.request_headers().answers(answer).body(BODY).answers(body_answer(status=99)).drained()
        assert ask(script).blamed == set()

    def test_framing_that_is_no_grpc(self, ask):
        script, one = started()
        one.request().emit(
            Malformed(exchange=one.name, stream=one.stream, author=Author.EPP, raw=b"\x01", reason="compressed")
        )
        one.reset()
        assert ask(script).blamed == {"ENV-01"}

    def test_an_http_server_is_no_ext_proc(self, ask):
        script, one = started()
        one.request()._ended(author=Author.EPP, how="malformed", headers=((b":status", b"404"),))
        finding = ask(script).finding("ENV-01")
        assert "404" in finding.actual

    def test_a_message_cut_by_the_record_is_not_judged(self, ask):
        script, one = started()
        raw = headers_answer(A).SerializeToString()
        one.request().raw(raw[:20], Author.EPP, size=len(raw)).answers(*echo(BODY)).drained()
        verdicts = ask(script)
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-01"] is None

    def test_a_body_cut_by_the_record_is_not_compared(self, ask):
        script, one = started()
        raw = streamed(BODY, end=True).SerializeToString()
        one.request().answers(headers_answer(A)).raw(raw[:10], Author.EPP, size=len(raw)).drained()
        assert ask(script).blamed == set()

    def test_ten_thousand_messages_are_one_finding(self, ask):
        assert len([f for f in ask(answered(*[headers_answer(A)] * 10_000)).findings if f.verdict is Verdict.FAIL]) == 1


class TestOrder:
    def test_headers_twice(self, ask):
        assert ask(answered(headers_answer(A), headers_answer(A), *echo(BODY))).blamed == {"ENV-02"}

    def test_buffered_body_twice(self, ask):
        script, one = started(mode="BUFFERED")
        one.request_headers().answers(headers_answer(A)).body(BODY).answers(body_answer(), body_answer()).drained()
        assert ask(script).blamed == {"ENV-02"}

    def test_streamed_chunks_are_answered_one_by_one(self, ask):
        script, one = started(mode="STREAMED")
        one.request_headers().answers(headers_answer(A)).body(BODY, chunks=3).answers(*[body_answer()] * 4).drained()
        assert ask(script).blamed == set()

    def test_only_the_last_chunk_is_answered(self, ask):
        script, one = started(mode="STREAMED")
        one.request_headers().answers(headers_answer(A)).body(BODY, chunks=3).answers(body_answer())
        one.hang("answer to request_body")
        assert ask(script).blamed == {"ENV-02"}

    def test_body_before_headers(self, ask):
        assert ask(answered(*echo(BODY), headers_answer(A))).blamed == {"ENV-03"}

    def test_trailers_before_headers(self, ask):
        assert ask(answered(trailers_answer(), headers_answer(A), trailers=True)).blamed == {"ENV-03"}

    def test_body_after_trailers(self, ask):
        answers = (headers_answer(A), trailers_answer(), *echo(BODY, end=False))
        assert "ENV-03" in ask(answered(*answers, trailers=True)).failed

    @pytest.mark.parametrize("mutation", [None, BodyMutation(body=BODY), BodyMutation(clear_body=True), BodyMutation()])
    def test_full_duplex_without_streamed_response(self, ask, mutation):
        answer = body_answer(body_mutation=mutation) if mutation is not None else body_answer()
        assert ask(answered(headers_answer(A), answer)).blamed == {"ENV-04"}

    def test_streamed_response_elsewhere(self, ask):
        script, one = started(mode="BUFFERED")
        one.request_headers().answers(headers_answer(A)).body(BODY).answers(*echo(BODY)).drained()
        assert ask(script).blamed == {"ENV-04"}

    def test_merged_and_split_chunks_are_right(self, ask):
        assert ask(answered(headers_answer(A), *echo(BODY), chunks=5)).blamed == set()
        assert ask(answered(headers_answer(A), *echo(BODY, chunks=7), chunks=2)).blamed == set()
        assert ask(answered(headers_answer(A), *echo(BODY, end=False), streamed(b"", end=True))).blamed == set()

    def test_bodies_of_any_number_of_answers_are_right_in_full_duplex(self, ask):
        many = [streamed(b"")] * 20
        assert ask(answered(headers_answer(A), *many, *echo(BODY), chunks=2)).blamed == set()


class TestEndOfStream:
    def test_twice(self, ask):
        assert ask(answered(headers_answer(A), *echo(BODY), streamed(b"", end=True))).blamed == {"ENV-05"}

    def test_something_after_it(self, ask):
        answers = (streamed(BODY[:9], end=True), streamed(BODY[9:]))
        assert ask(answered(headers_answer(A), *answers)).failed == {"ENV-05"}

    def test_where_trailers_end_the_body(self, ask):
        assert ask(answered(headers_answer(A), *echo(BODY), trailers_answer(), trailers=True)).blamed == {"ENV-05"}

    def test_too_early(self, ask):
        script, one = started()
        one.request_headers().answers(headers_answer(A)).chunk(BODY).answers(streamed(BODY, end=True))
        one.chunk(b"", end=True).drained()
        assert ask(script).blamed == {"ENV-05"}

    def test_missing(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY, end=False)).hang("answer to request_body")
        assert ask(script).blamed == {"ENV-05"}

    def test_that_of_another_mode(self, ask):
        """Real Envoy 1.40 does not read it in full duplex, and waits."""
        piece = StreamedBodyResponse(end_of_stream_without_message=True)
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY, end=False))
        one.answers(body_answer(body_mutation=BodyMutation(streamed_response=piece))).hang("answer to request_body")
        assert ask(script).blamed == {"ENV-05"}

    def test_missing_in_the_response(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY))
        one.response_headers().answers(headers_answer(side="response")).body(b"{}", side="response")
        one.answers(*echo(b"{}", side="response", end=False)).hang("answer to response_body")
        assert ask(script).blamed == {"ENV-05"}


class TestUnanswered:
    def test_request_headers_without_a_body(self, ask):
        script, one = started(method="GET")
        one.request(None).hang("answer to request_headers")
        assert ask(script).blamed == {"ENV-07"}

    def test_response_headers_without_a_body(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers(status=204, end=True)
        one.hang("answer to response_headers")
        assert ask(script).blamed == {"ENV-07"}

    def test_response_headers_without_a_body_in_mode_none(self, ask):
        """A request whose body is not shown is complete with the answer to its headers."""
        script, one = started(mode="NONE")
        one.request_headers().answers(headers_answer(A)).response_headers(status=204, end=True)
        one.answers(headers_answer(side="response")).drained()
        assert ask(script)["ENV-07"] is Verdict.PASS

    def test_an_error_after_the_headers_in_mode_none(self, ask):
        script, one = started(mode="NONE")
        one.request_headers().answers(headers_answer(), immediate(503)).drained()
        assert "ENV-15" in ask(script).blamed

    def test_request_trailers(self, ask):
        script, one = started()
        one.request(trailers=True).answers(headers_answer(A), *echo(BODY, end=False)).hang("answer to request_trailers")
        assert ask(script).blamed == {"ENV-06"}

    def test_a_body_that_trailers_end(self, ask):
        script, one = started()
        one.request(trailers=True).hang("answer to request_headers")
        assert ask(script).blamed == {"ENV-06"}

    def test_trailers_without_the_body(self, ask):
        assert ask(answered(headers_answer(A), trailers_answer(), trailers=True)).blamed == {"ENV-06"}
        answers = (headers_answer(A), streamed(BODY[:10]), trailers_answer())
        assert ask(answered(*answers, trailers=True)).blamed == {"ENV-09"}

    def test_an_ordinary_request(self, ask):
        script, one = started(headers=((b"content-length", b"51"),))
        one.request().hang("answer to request_headers")
        verdicts = ask(script)
        assert verdicts.blamed == {"ENV-16"}
        assert "answer to request_headers" in verdicts.finding("ENV-16").actual

    def test_a_body_without_a_declared_length(self, ask):
        script, one = started()
        one.request().hang("answer to request_headers")
        assert ask(script).blamed == {"ENV-16"}
        assert ask(script, "next").blamed == {"EPP-STRM-03"}

    @pytest.mark.parametrize("how", ["closed", "status", "reset", "lost"])
    def test_the_stream_ends_instead(self, ask, how):
        script, one = started()
        one.request()
        match how:
            case "closed":
                one.closed()
            case "status":
                one.closed(13, "boom")
            case "reset":
                one.reset(Author.EPP)
            case "lost":
                one.lost()
        assert ask(script).blamed == {"ENV-16"}
        assert ask(script, "0.2.0").blamed == {"ENV-16"}

    @pytest.mark.parametrize("sent", [0, 20])
    def test_an_error_before_the_body_is_whole_in_0_2_0(self, ask, sent):
        """0.2.0 names no form for errors; the beginning of a body gives no reason for one."""
        for body, blamed in ((BODY, {"ENV-16"}), (b"no JSON at all, however long", set() if sent else {"ENV-16"})):
            script, one = started(
                headers=((b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"))
            )
            one.request_headers()
            if sent:
                one.chunk(body[:sent])
            one.closed(8, "too many")
            assert ask(script, "0.2.0").blamed == blamed

    def test_a_lost_connection_may_be_one_that_was_closed_for_its_age(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).upstream(A).response_headers(served=A)
        one.answers(headers_answer(side="response")).chunk(b"{}", side="response").lost()
        finding = ask(script).finding("ENV-16")
        assert finding.verdict is Verdict.FAIL
        assert "connection" in finding.hint
        assert "MaxConnectionAgeGrace" in finding.hint

    def test_a_reset_may_be_a_limit_of_the_server(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).upstream(A).response_headers(served=A)
        one.answers(headers_answer(side="response")).chunk(b"{}", side="response").reset(Author.EPP)
        finding = ask(script).finding("ENV-16")
        assert finding.verdict is Verdict.FAIL
        assert "WriteTimeout" in finding.hint

    def test_closed_with_the_body_outstanding(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A)).closed()
        verdicts = ask(script)
        assert verdicts.failed == {"ENV-16"}
        assert "when the data plane has closed its side" in verdicts.finding("ENV-16").hint

    def test_failed_with_the_body_outstanding(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A)).closed(2, "Application error processing RPC")
        verdicts = ask(script)
        assert verdicts.failed == {"ENV-16"}
        assert "what does the target print?" in verdicts.finding("ENV-16").hint

    def test_ended_with_a_status_that_was_chosen(self, ask):
        script, one = started()
        one.request().closed(9, "no such session")
        verdicts = ask(script)
        assert verdicts.failed == {"ENV-16"}
        assert "ImmediateResponse instead" in verdicts.finding("ENV-16").hint

    def test_closed_once_the_request_is_answered(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).closed()
        assert ask(script).blamed == set()
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers().closed()
        verdicts = ask(script)
        assert verdicts.blamed == set()
        assert verdicts["EPP-SRVD-01"] is Verdict.NOT_APPLICABLE

    def test_closed_with_response_bytes_in_hand(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers()
        one.answers(headers_answer(side="response")).body(b"hello", side="response").closed()
        assert ask(script).failed == {"ENV-16"}

    @pytest.mark.parametrize("body", [b"hello", b""])
    def test_closed_with_nothing_of_the_response_answered(self, ask, body):
        """Real Envoy's client gets an empty body then; but the close may have been under way before it came."""
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers().body(body, side="response").closed()
        verdicts = ask(script)
        assert verdicts.blamed == set()

    @pytest.mark.parametrize(
        ("seconds", "body", "failed"), [(0.5, b"{}", set()), (2.0, b"", set()), (2.0, b"{}", {"ENV-16"})]
    )
    def test_closed_because_of_a_response_that_came_late(self, ask, seconds, body, failed):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY))
        script.pass_time(seconds)
        one.response_headers().body(body, side="response").closed()
        assert ask(script).failed == failed

    def test_closed_without_the_end_of_the_response(self, ask):
        """Real Envoy waits for it although all bytes are back."""
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers()
        one.answers(headers_answer(side="response")).body(b"hello", side="response")
        one.answers(*echo(b"hello", side="response", end=False)).closed()
        assert ask(script).failed == {"ENV-16"}

    @pytest.mark.parametrize(("back", "failed"), [(BODY, set()), (BODY[:9], {"ENV-06"})])
    def test_closed_at_the_trailers_of_the_request(self, ask, back, failed):
        """ext_proc asks for an answer, or for the end of the stream; Envoy has the trailers, and passes them on."""
        script, one = started()
        one.request(trailers=True).answers(headers_answer(A), *echo(back, end=False)).closed()
        verdicts = ask(script)
        assert verdicts.blamed == failed
        assert verdicts["ENV-06"] is (Verdict.FAIL if failed else Verdict.PASS)

    def test_a_status_after_everything_was_answered_is_nothing(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).drained(status=1)
        assert ask(script).blamed == set()

    def test_refused_streams(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().refused()
        assert ask(script).blamed == {"ENV-16"}
        one.stream = "again"
        script.emit(StreamOpened(exchange=one.name, stream="again", connection=2))
        one.request().answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == set()

    def test_a_deadline_that_comes_while_we_are_still_sending(self, ask):
        script, one = started()
        one.request_headers().chunk(BODY[:10]).hang("answer to request_headers")
        assert ask(script)["ENV-16"] is Verdict.INCONCLUSIVE
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).response_headers(content_type="text/event-stream")
        one.answers(headers_answer(side="response")).chunk(b"data: 1", side="response")
        one.answers(streamed(b"data: 1", side="response")).hang("answer to response_body")
        assert ask(script)["ENV-16"] is Verdict.INCONCLUSIVE

    def test_a_wait_for_our_own_upstream_is_nothing(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).hang("response of the model server")
        assert ask(script).blamed == set()

    def test_a_client_that_went_away_asks_for_nothing(self, ask):
        script, one = started()
        one.request_headers().aborted()
        assert ask(script).blamed == set()

    @pytest.mark.parametrize(("size", "chunks"), [(100_000, 1), (400, 20)])
    def test_silence_on_a_demanding_body(self, ask, size, chunks):
        script, one = started(headers=((b"content-length", b"1"),))
        body = b'{"model": "m", "prompt": "' + b"x" * size + b'"}'
        one.request(body, chunks=chunks).hang("answer to request_headers")
        assert ask(script).blamed == {"ENV-16"}
        assert ask(script, "next").blamed == {"EPP-STRM-01"}

    def test_refusing_full_duplex(self, ask):
        script, one = started(headers=((b"content-length", b"51"),))
        one.request().closed(12, "mode not supported")
        assert ask(script).blamed == {"ENV-16"}
        assert ask(script, "next").blamed == {"EPP-STRM-01"}


class TestPeculiarStimuli:
    def test_no_protocol_config(self, ask):
        for refused in (True, False):
            script, one = started()
            one.request().answers(headers_answer(A), *echo(BODY)).drained()
            odd = script.exchange(protocol_config=False).request()
            _ = odd.closed(9) if refused else odd.answers(headers_answer(A), *echo(BODY)).drained()
            assert ask(script)["ENV-19"] is (Verdict.FAIL if refused else Verdict.PASS)
            assert ask(script).blamed == ({"ENV-19"} if refused else set())

    @pytest.mark.parametrize(("answered", "control"), [(BODY, b"Hello"), (None, b"Hello"), (None, BODY), (None, None)])
    def test_no_protocol_config_where_no_like_request_is_answered_with_one(self, ask, answered, control):
        script = Script(pool=POOL)
        if answered is not None:
            script.exchange().request(answered).answers(headers_answer(A), *echo(answered)).drained()
        if control is not None:
            script.exchange().request(control).closed(9)
        script.exchange(protocol_config=False).request(b"Hello").closed(9)
        assert "ENV-19" not in ask(script).blamed

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("answer", [body_answer(), body_answer(body_mutation=BodyMutation(body=BODY))])
    def test_a_body_answer_of_another_mode(self, ask, told, answer):
        """Without a protocol_config it is a warning, unless the EPP does the same where it was told the mode."""
        script, one = started(protocol_config=False)
        one.request().answers(headers_answer(A), answer).drained()
        if told:
            script.exchange().request().answers(headers_answer(A), answer).drained()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == (({"ENV-04"}, set()) if told else (set(), {"ENV-19"}))

    @pytest.mark.parametrize("value", [b"\xff\xfe", "é".encode()])
    def test_headers_that_are_no_ascii(self, ask, value):
        script, one = started(headers=((b"x-odd", value),))
        one.request().closed(13)
        assert ask(script).failed == {"ENV-26", "ENV-16"}
        assert ask(script, stimulus="off-contract").failed == {"ENV-26"}

    def test_a_response_that_comes_first(self, ask):
        script, one = started()
        one.response_headers(status=413, end=True).hang("answer to response_headers")
        assert ask(script).blamed == {"ENV-23"}
        script, one = started()
        one.response_headers(status=413, end=True).answers(headers_answer(side="response")).drained()
        assert ask(script)["ENV-23"] is Verdict.PASS

    def test_a_response_in_the_middle_of_the_request(self, ask):
        script, one = started()
        one.request_headers().answers(headers_answer(A)).chunk(BODY).response_headers(end=True)
        one.closed(13)
        assert "ENV-23" in ask(script).failed or ask(script).failed == {"ENV-16"}

    @pytest.mark.parametrize(("mode", "status"), [("NONE", 0), ("BUFFERED", CommonResponse.CONTINUE_AND_REPLACE)])
    def test_a_response_after_a_request_whose_end_is_not_shown(self, ask, mode, status):
        """It is neither early nor first, so that ENV-23 is not tried."""
        answer = headers_answer(A)
        answer.request_headers.response.status = status
        script, one = started(mode=mode)
        one.request_headers().answers(answer).response_headers(end=True).hang("answer to response_headers")
        assert ask(script).blamed == {"ENV-07"}
        script, one = started(mode=mode)
        one.request_headers().answers(answer).response_headers(end=True).answers(headers_answer(side="response"))
        one.drained()
        assert ask(script)["ENV-23"] is None

    @pytest.mark.parametrize("served", [8000, "10.9.9.9:1", [A], ""])
    @pytest.mark.parametrize("usual", ["answered", "unanswered", "not tried"])
    def test_an_odd_served_endpoint(self, ask, served, usual):
        """It explains a silence only where the usual one is answered."""
        script = Script(pool={"a": A})
        for report in (served,) if usual == "not tried" else (A, served):
            one = script.exchange().request().answers(headers_answer(A), *echo(BODY)).upstream(A)
            one.response_headers(served=report, end=True)
            if report == A and usual == "answered":
                one.answers(headers_answer(side="response")).drained()
            else:
                one.hang("answer to response_headers")
        assert ask(script).failed == ({"EPP-SRVD-01"} if usual == "answered" else {"ENV-07"})

    def test_a_body_that_is_no_request(self, ask):
        script, one = started()
        one.request(b"nonsense").hang("answer to request_headers")
        assert ask(script).failed == {"EPP-DEST-07"}


class TestRobustness:
    def test_death(self, ask):
        script, one = started()
        one.request().lost()
        script.crashed(output="panic: boom\n\ngoroutine 1 [running]:\n\tepp/main.go:7")
        finding = ask(script).finding("ENV-27")
        assert finding.verdict is Verdict.FAIL
        assert "panic: boom" in finding.actual  # and not the end of the stack
        assert ask(script).failed == {"ENV-27"}

    def test_death_after_an_abort(self, ask):
        script, one = started()
        one.request_headers().aborted()
        script.exchange().request().lost()
        script.crashed()
        assert ask(script).failed == {"ENV-22"}

    def test_death_with_several_in_flight_accuses_none_of_them(self, ask):
        script = Script(pool=POOL)
        ones = [script.exchange().request() for _ in range(3)]
        for one in ones:
            one.lost()
        script.crashed()
        finding = ask(script).finding("ENV-27")
        assert finding.exchange is None
        assert ask(script).failed == {"ENV-27"}

    def test_death_before_any_exchange_blames_none(self, ask):
        finding = ask(Script(pool=POOL).gauges("a", metrics="half").crashed(code=2)).finding("ENV-27")
        assert "with no exchanges in flight" in finding.actual
        assert "Any of them" not in finding.hint
        assert "metrics" in finding.hint

    def test_death_in_an_episode_that_begins_with_an_earlier_one(self, ask):
        script = Script(pool=POOL).crashed()
        script.exchange().request_headers().aborted()
        script.crashed()
        assert ask(script).failed == {"ENV-22"}

    @pytest.mark.parametrize("step", ["never begun", "refused", "lost", "reset", "silent", "status"])
    @pytest.mark.parametrize(
        "expected", [Expectation(answer=("endpoint",)), Expectation(within=(A,)), Expectation(status=(200,))]
    )
    def test_steps_after_death_accuse_of_nothing(self, ask, step, expected):
        script, one = started()
        one.request().lost()
        script.crashed()
        later = script.exchange(stream=step != "never begun")
        match step:
            case "refused":
                later.refused()
            case "lost":
                later.request().lost()
            case "reset":
                later.request().reset(Author.EPP)
            case "silent":
                later.request().hang("answer to request_headers")
            case "status":
                later.request().closed(14)
        later.client(503)
        expectations = {"x1": expected, "x2": expected}
        verdicts = ask(script, requirements=("EPP-DEST-06",), expectations=expectations)
        assert verdicts.blamed == {"ENV-27"}

    @pytest.mark.parametrize("aborted", [False, True])
    def test_the_client_goes_away_before_a_refused_stream_is_opened_again(self, ask, aborted):
        script, one = started()
        one.request().refused()
        if aborted:
            one.aborted()
        assert ask(script).failed == (set() if aborted else {"ENV-16"})

    def test_what_came_before_death_is_still_judged(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).drained()
        script.exchange().request().lost()
        script.crashed()
        expectations = {"x1": Expectation(within=("10.0.0.9:8000",))}
        assert ask(script, requirements=("EPP-DEST-06",), expectations=expectations).failed == {"ENV-27", "EPP-DEST-06"}

    def test_an_exchange_without_a_request_accuses_of_nothing(self, ask):
        script, one = started(stream=False)
        one.client(503)
        expectations = {"x1": Expectation(answer=("endpoint",))}
        verdicts = ask(script, requirements=("EPP-DEST-06",), expectations=expectations)
        assert verdicts.failed == set()
        assert verdicts["EPP-DEST-06"] is Verdict.INCONCLUSIVE

    def test_a_process_that_we_stopped(self, ask):
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY)).drained()
        script.emit(ProcessExited(pid=1, code=-15, asked=True))
        assert ask(script).blamed == set()

    def test_no_answer_after_an_abort(self, ask):
        script, one = started(headers=((b"content-length", b"51"),))
        one.request_headers().aborted()
        script.exchange(headers=((b"content-length", b"51"),)).request().hang("answer to request_headers")
        assert ask(script).failed == {"ENV-22"}

    def test_answers_after_an_abort(self, ask):
        script, one = started()
        one.request_headers().aborted()
        script.exchange().request().answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script)["ENV-22"] is Verdict.PASS

    def test_one_stream_at_a_time(self, ask):
        script = Script(pool=POOL)
        length = ((b"content-length", b"51"),)
        ones = [script.exchange(headers=length).request() for _ in range(4)]
        ones[0].answers(headers_answer(A), *echo(BODY))
        for one in ones[1:]:
            one.hang("answer to request_headers")
        ones[0].drained()
        assert ask(script).failed == {"ENV-21"}

    def test_an_epp_that_answers_headers_only_does_not_mix_streams_up(self, ask):
        """What it leaves unanswered among others it leaves unanswered alone."""
        script = Script(pool=POOL)
        length = ((b"content-length", b"51"),)
        ones = [script.exchange(headers=length).request() for _ in range(4)]
        bodyless = script.exchange(method="GET").request(None).answers(headers_answer(A))
        for one in ones:
            one.answers(headers_answer(A)).hang("answer to request_body")
        bodyless.drained()
        assert ask(script).failed == {"ENV-16"}

    def test_a_stream_that_stays_open(self, ask):
        script, one = started(ending="half-close")
        one.request().answers(headers_answer(A), *echo(BODY))
        one.waited(STILL_OPEN, "expired", 1.0).reset()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == (set(), {"ENV-22"})


def mutated(*options, remove=(), **exchange):
    return answered(headers_answer(A, options=options, remove=remove), *echo(BODY), **exchange)


class TestHeaders:
    def test_value_for_raw_value(self, ask):
        in_value = option(DESTINATION, A, field="value")
        verdicts = ask(answered(headers_answer(None, options=[in_value], metadata=A), *echo(BODY)))
        assert verdicts.blamed == {"ENV-11"}
        assert verdicts.failed == {"ENV-11"}
        others = ask(mutated(option("x-other", "1", field="value")))
        assert (others.failed, others.warned) == (set(), {"ENV-11"})

    def test_both_values(self, ask):
        both = option(DESTINATION, A)
        both.header.value = A
        assert ask(answered(headers_answer(None, options=[both], metadata=A), *echo(BODY))).blamed == {"ENV-11"}

    @pytest.mark.parametrize(
        ("name", "value"),
        [("x", "a\r\nb"), ("x", "a\0"), ("x", "a\x01b"), ("x", "\x7f"), ("", "1"), ("a b", "1"), ("ä", "1")],
    )
    def test_illegal(self, ask, name, value):
        verdicts = ask(mutated(option(name, value)))
        assert verdicts.failed == {"ENV-11"}
        assert "Envoy" in verdicts.finding("ENV-11").hint  # else the requirement's common cause is printed: another

    def test_an_illegal_header_of_an_immediate_response_does_not_fail_the_request(self, ask):
        """Envoy 1.40 sends the error, and leaves out that header and what follows it."""
        script = Script(pool={})
        headers = HeaderMutation(set_headers=[option("a b", b"1")], remove_headers=["c d"])
        script.exchange().request().answers(immediate(503, headers=headers)).drained()
        found = [one for one in ask(script).findings if one.requirement == "ENV-11"]
        assert {one.verdict for one in found} == {Verdict.FAIL}
        assert all("sends the error" in one.hint for one in found)

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize(("name", "failed"), [(":path", {"ENV-11"}), ("x-end", set())])
    def test_pseudo_headers_in_trailers(self, ask, side, name, failed):
        end = trailers_answer(side=side)
        getattr(end, f"{side}_trailers").header_mutation.set_headers.append(option(name, "/v1"))
        made, one = started()
        one.request(BODY, trailers=side == "request").answers(headers_answer(A), *echo(BODY, end=side == "response"))
        if side == "response":
            one.response_headers().answers(headers_answer(side="response"))
            one.body(BODY, side="response", trailers=True).answers(*echo(BODY, end=False, side="response"))
        one.answers(end).drained()
        assert ask(made).failed == failed

    def test_an_empty_value_and_odd_bytes_are_legal(self, ask):
        assert ask(mutated(option("x-empty", ""), option("x-bytes", b"\xff\t"), option("X-Upper", "1"))).blamed == set()

    @pytest.mark.parametrize(
        "flags",
        [{"append_action": HeaderValueOption.ADD_IF_ABSENT}, {"append_action": HeaderValueOption.OVERWRITE_IF_EXISTS}],
    )
    def test_conditional_destination(self, ask, flags):
        sent = ((b"x-gateway-destination-endpoint", b"6.6.6.6:1"),)
        for headers in ((), sent):
            answer = headers_answer(None, options=[option(DESTINATION, A, **flags)], metadata=A)
            assert ask(answered(answer, *echo(BODY), headers=headers)).failed == {"ENV-12"}

    @pytest.mark.parametrize(
        ("action", "client", "warned"),
        [
            ("ADD_IF_ABSENT", b"Bearer client", {"EPP-TRN-01"}),
            ("ADD_IF_ABSENT", None, set()),
            ("OVERWRITE_IF_EXISTS", None, set()),
        ],
    )
    def test_an_action_that_envoy_does_not_read(self, ask, action, client, warned):
        """Real Envoy overwrites, whatever the action is."""
        own = option("authorization", "Bearer epp", append_action=HeaderValueOption.HeaderAppendAction.Value(action))
        sent = ((b"authorization", client),) if client else ()
        assert ask(mutated(own, headers=sent)).blamed == warned

    def test_an_action_that_envoy_does_not_read_in_the_response(self, ask):
        own = option("set-cookie", "b=2", append_action=HeaderValueOption.ADD_IF_ABSENT)
        script, one = started()
        one.request().answers(headers_answer(A), *echo(BODY))
        one.response_headers(headers=((b"set-cookie", b"a=1"),), end=True)
        one.answers(headers_answer(side="response", options=[own])).drained()
        assert ask(script).warned == {"ENV-24"}

    def test_appended_destination(self, ask):
        appended = option(DESTINATION, A)
        appended.append.value = True
        answer = headers_answer(None, options=[appended], metadata=A)
        assert ask(answered(answer, *echo(BODY))).failed == {"ENV-12"}

    def test_protected_headers(self, ask):
        assert ask(mutated(option(":authority", A))).warned == {"ENV-26"}
        assert ask(mutated(option(":authority", "gateway.example"), option(":method", "POST"))).blamed == set()

    @pytest.mark.parametrize("name", [":path", ":Method", "host"])
    def test_protected_headers_are_removed(self, ask, name):
        verdicts = ask(mutated(remove=[name]))
        assert verdicts.blamed == verdicts.warned == {"ENV-26"}
        assert "to be removed" in verdicts.finding("ENV-26").actual

    def test_what_was_not_sent_may_be_removed(self, ask):
        assert ask(mutated(remove=["x-envoy-retry-on"])).blamed == set()
        assert ask(mutated(option(":method", "POST"), remove=[":method"])).blamed == set()

    def test_too_many_headers(self, ask):
        many = [option(f"x-{n}", "1") for n in range(100)]
        assert ask(mutated(*many)).warned == {"ENV-26"}

    @pytest.mark.parametrize("side", ["request", "response"])
    @pytest.mark.parametrize(
        ("options", "remove", "warned"),
        [
            ([option("x-one", "1")] * 99, [f"x-{n}" for n in range(100)], set()),
            ([option("x-one", "1")] * 101, [], {"ENV-26"}),
            ([], [f"x-{n}" for n in range(101)], {"ENV-26"}),
            ([option(f"x-{n}", "1") for n in range(100)], [], {"ENV-26"}),
            ([option("x-long", "1" * 60_000)], [], set()),
            ([option("x-long", "1" * 62_000)], [], {"ENV-26"}),
        ],
    )
    def test_more_than_envoy_takes(self, ask, side, options, remove, warned):
        """Real Envoy answers 500 to each of those that are warned of."""
        script, one = started()
        changes = {"options": options, "remove": remove}
        one.request().answers(headers_answer(A, **(changes if side == "request" else {})), *echo(BODY))
        one.response_headers(end=True)
        one.answers(headers_answer(side="response", **(changes if side == "response" else {}))).drained()
        assert ask(script).blamed == warned

    @pytest.mark.parametrize(
        ("mutation", "warned"),
        [
            (None, set()),
            (HeaderMutation(), set()),
            (HeaderMutation(set_headers=[option("x-more", "1")]), set()),
            (HeaderMutation(remove_headers=["X-End"]), {"EPP-TRN-06"}),
            (HeaderMutation(set_headers=[option("x-end", "2")]), {"EPP-TRN-06"}),
        ],
    )
    def test_the_requests_trailers_are_left_alone(self, ask, mutation, warned):
        script, one = started()
        one.request(BODY, trailers=True).answers(headers_answer(A), *echo(BODY, end=False))
        one.answers(ProcessingResponse(request_trailers=TrailersResponse(header_mutation=mutation))).drained()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == (set(), warned)

    def test_the_requests_headers_are_left_alone(self, ask):
        sent = ((b"authorization", b"Bearer x"), (b"cookie", b"a"), (b"cookie", b"b"), (b"x-mine", b"1"))
        assert ask(mutated(headers=sent)).blamed == set()
        assert ask(mutated(remove=["Authorization"], headers=sent)).warned == {"EPP-TRN-01"}
        assert ask(mutated(option("content-type", "text/plain"), headers=sent)).warned == {"EPP-TRN-02"}
        assert ask(mutated(option(":path", "/other"), headers=sent)).warned == {"EPP-TRN-03"}
        assert ask(mutated(option("cookie", "b"), headers=sent)).warned == {"EPP-TRN-04"}
        assert ask(mutated(remove=["x-mine"], headers=sent)).warned == {"EPP-TRN-06"}
        assert ask(mutated(option("authorization", "Bearer x"), option("x-mine", "1"), headers=sent)).blamed == set()

    @pytest.mark.parametrize(
        ("name", "old", "new", "warned"),
        [
            ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01", f"00-{TRACE}-00f067aa0ba902b7-01", False),
            ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01", f"00-{TRACE[::-1]}-00f067aa0ba902b7-01", True),
            ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01", "", True),
            ("traceparent", "odd", f"00-{TRACE}-00f067aa0ba902b7-01", False),
            ("traceparent", "odd", "", True),
            ("tracestate", "a=1,b=2", "epp=3, a=1,b=2", False),
            ("tracestate", "a=1,epp=2", "epp=3,a=1", False),
            ("tracestate", "a=1,b=2", "epp=3,a=1", True),
            ("tracestate", "a=1,b=2", "a=3,b=4", True),  # one of them at least is another's
            ("baggage", "user=alice,tenant=t1;ttl=5", "tenant=t1;ttl=5, user=alice,epp=2", False),
            ("baggage", "user=alice,tenant=t1", "tenant=t1", True),
            ("baggage", "user=alice,tenant=t1", "user=bob,tenant=t1", True),
        ],
    )
    def test_taking_part_in_a_trace(self, ask, name, old, new, warned):
        """W3C Trace Context and Baggage: the trace goes on with another parent, and with the entries of others."""
        found = ask(mutated(option(name, new), headers=((name.encode(), old.encode()),)))
        assert found.blamed == ({"EPP-TRN-06"} if warned else set())

    def test_response_headers(self, ask):
        for answer, blamed in (
            (headers_answer(side="response", options=[option(":status", "200")]), {"ENV-24"}),
            (headers_answer(side="response", options=[option(":status", "503")]), set()),
            (headers_answer(side="response", options=[option(":status", "503", field="value")]), {"ENV-11"}),
            (headers_answer(side="response", options=[option(":status", "99")]), set()),
            (headers_answer(side="response", options=[option(":status", "OK")]), set()),
            (headers_answer(side="response", remove=["content-type"]), {"ENV-24"}),
            (headers_answer(side="response", options=[option("content-type", "text/html")]), {"ENV-24"}),
            (headers_answer(side="response", options=[option("content-type", "application/json")]), set()),
            (immediate(502), {"ENV-24"}),
        ):
            script, one = started()
            one.request().answers(headers_answer(A), *echo(BODY)).response_headers(status=503, end=True)
            one.answers(answer).drained()
            assert ask(script).blamed == blamed

    def test_what_is_only_recorded(self, ask):
        wait = ProcessingResponse(override_message_timeout=Duration(seconds=1))
        override = headers_answer(A, mode_override=ProcessingMode(response_body_mode=ProcessingMode.NONE))
        verdicts = ask(answered(wait, override, *echo(BODY)))
        assert verdicts.blamed == set()
        assert verdicts["ENV-17"] is verdicts["ENV-18"] is verdicts["ENV-25"] is Verdict.NOT_APPLICABLE


class TestBodies:
    def test_large_chunks(self, ask):
        body = b'{"model": "m", "prompt": "' + b"x" * 200_000 + b'"}'
        for chunks, warned in ((1, {"ENV-08"}), (4, set())):
            script, one = started()
            one.request(body).answers(headers_answer(A), *echo(body, chunks=chunks)).drained()
            verdicts = ask(script)
            assert (verdicts.failed, verdicts.warned) == (set(), warned)

    def test_a_chunk_that_no_grpc_client_takes(self, ask):
        body = b'{"model": "m", "prompt": "' + b"x" * (4 << 20) + b'"}'
        script, one = started()
        one.request(body).answers(headers_answer(A), *echo(body)).drained()
        assert ask(script).failed == {"ENV-08"}

    @pytest.mark.parametrize("got", [BODY[:-1], BODY + b"}", b"", BODY[::-1], BODY.replace(b', "max_tokens": 16', b"")])
    def test_lost_bytes(self, ask, got):
        assert ask(answered(headers_answer(A), *echo(got))).failed == {"ENV-09"}

    @pytest.mark.parametrize(("got", "said"), [(BODY[40:] + BODY[:40], True), (BODY[:-1] + b"?", False)])
    def test_pieces_that_overtook_each_other_are_told_from_lost_ones(self, ask, got, said):
        hint = ask(answered(headers_answer(A), *echo(got))).finding("ENV-09").hint
        assert ("the same bytes in another order" in hint) is said

    def test_a_last_piece_that_the_data_plane_sends_twice(self, ask):
        for got, failed in ((BODY, set()), (BODY[:10], {"ENV-09"})):
            script, one = started()
            one.request_headers().chunk(BODY[:10]).chunk(BODY[10:], end=True).chunk(BODY[10:], end=True)
            one.answers(headers_answer(A), *echo(got)).drained()
            assert ask(script).failed == failed

    @pytest.mark.parametrize("again", [[], [BODY[10:]]], ids=["once", "twice"])
    def test_a_last_piece_sent_twice_is_no_odd_body(self, ask, again):
        def sent(*answers):
            script, one = started()
            one.request_headers().chunk(BODY[:10])
            for piece in (BODY[10:], *again):
                one.chunk(piece, end=True)
            return script, one.answers(*answers)

        script, one = sent(headers_answer(A), *echo(BODY, end=False))
        one.hang("answer to request_body")
        assert ask(script).failed == {"ENV-05"}
        script, one = sent(immediate(400))
        one.drained()
        assert ask(script).failed == {"EPP-DEST-01"}

    def test_json_serialized_again(self, ask):
        serialized = b'{"max_tokens":16.0,"prompt":"\\u0068ello","model":"m"}'
        assert ask(answered(headers_answer(A), *echo(serialized))).blamed == set()

    def test_json_with_another_value(self, ask):
        got = BODY.replace(b'"m"', b'"other"')
        assert ask(answered(headers_answer(A), *echo(got))).warned == {"EPP-TRN-05"}
        assert ask(answered(headers_answer(A), *echo(got)), claims=Claims(body_rewrites=("model",))).blamed == set()

    def test_numbers_that_lose_digits(self, ask):
        body = b'{"model": "m", "prompt": "x", "seed": 12345678901234567890}'
        script, one = started()
        one.request(body).answers(
            headers_answer(A), *echo(body.replace(b"12345678901234567890", b"1.2345678901234567e19"))
        )
        one.drained()
        assert ask(script).warned == {"EPP-TRN-05"}

    def test_bytes_of_another_stream(self, ask):
        script = Script(pool=POOL)
        mine, other = (b'{"model": "m", "prompt": "%s"}' % name * 1 for name in (b"mine" * 9, b"other" * 9))
        one, two = script.exchange(), script.exchange()
        one.request(mine)
        two.request(other).answers(headers_answer(A), *echo(other)).drained()
        one.answers(headers_answer(A), *echo(other)).drained()
        assert ask(script).failed == {"ENV-21"}

    def test_a_response_in_events(self, ask):
        events = b'data: {"id": 1}\n\ndata: [DONE]\n\n'
        for got, failed in ((events, set()), (events.replace(b" ", b""), {"ENV-09"})):
            script, one = started()
            one.request().answers(headers_answer(A), *echo(BODY)).response_headers(content_type="text/event-stream")
            one.answers(headers_answer(side="response")).body(events, side="response")
            one.answers(*echo(got, side="response")).drained()
            assert ask(script).failed == failed

    def test_buffered_bodies(self, ask):
        length = ((b"content-length", b"%d" % len(BODY)),)
        other = b'{"model":"m","prompt":"hello","max_tokens":16}'
        for common, failed in (
            ({}, set()),
            ({"body_mutation": BodyMutation(body=other)}, {"ENV-10"}),
            (
                {
                    "body_mutation": BodyMutation(body=other),
                    "header_mutation": HeaderMutation(set_headers=[option("content-length", str(len(other)))]),
                },
                set(),
            ),
            (
                {
                    "body_mutation": BodyMutation(clear_body=True),
                    "header_mutation": HeaderMutation(remove_headers=["content-length"]),
                },
                {"ENV-09"},
            ),
        ):  # fmt: skip
            script, one = started(mode="BUFFERED", headers=length)
            one.request_headers().answers(headers_answer(A)).body(BODY).answers(body_answer(**common)).drained()
            assert ask(script).failed == failed

    @pytest.mark.parametrize("lengths", [["52"], ["51", "52"], ["x"], ["-1"]])
    def test_content_length(self, ask, lengths):
        assert len(BODY) == 51
        assert ask(mutated(*(option("Content-Length", value) for value in lengths))).failed == {"ENV-10"}

    def test_the_right_content_length(self, ask):
        assert ask(mutated(option("content-length", "51")))["ENV-10"] is Verdict.PASS

    def test_a_replaced_body_in_buffered_mode(self, ask):
        script, one = started(mode="BUFFERED")
        replacing = headers_answer(A)
        replacing.request_headers.CopyFrom(
            HeadersResponse(
                response=CommonResponse(
                    status=CommonResponse.CONTINUE_AND_REPLACE,
                    header_mutation=replacing.request_headers.response.header_mutation,
                    body_mutation=BodyMutation(body=BODY),
                )
            )
        )
        one.request_headers().answers(replacing).drained()
        assert ask(script).blamed == {"ENV-09"}
        assert ask(answered(replacing)).failed == {"ENV-04"}

    @pytest.mark.parametrize("answered", [True, False])
    def test_what_is_answered_after_a_replacement(self, ask, answered):
        """Chunks that came without waiting are dropped with it: Envoy takes an answer to one for spurious."""
        script, one = started(mode="STREAMED", waits=False)
        replacing = headers_answer(A)
        replacing.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
        replacing.request_headers.response.body_mutation.body = BODY
        one.request_headers().body(BODY).answers(replacing, *([body_answer()] * 2 if answered else [])).drained()
        assert ask(script).blamed == ({"ENV-01"} if answered else set())

    def test_what_a_data_plane_sends_after_a_replacement_may_be_answered(self, ask):
        """It should not; but it asked."""
        script, one = started(mode="BUFFERED")
        replacing = headers_answer(A)
        replacing.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
        replacing.request_headers.response.body_mutation.body = BODY
        one.request_headers().answers(replacing).body(BODY).answers(body_answer()).drained()
        assert "ENV-01" not in ask(script).blamed


class TestOddButRight:
    def test_an_immediate_response_with_a_grpc_status(self, ask):
        script = Script(pool={})
        answer = ProcessingResponse(
            immediate_response=ImmediateResponse(status={"code": 503}, grpc_status={"status": 14})
        )  # type: ignore[arg-type]
        script.exchange().request().answers(answer).drained()
        assert ask(script).blamed == set()

    def test_the_deferred_answer_after_everything(self, ask):
        script, one = started()
        one.request_headers().body(BODY, chunks=20).answers(headers_answer(A), *echo(BODY, chunks=3)).drained()
        assert ask(script, "next").blamed == set()
