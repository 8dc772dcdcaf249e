"""Whether model servers answered an exchange as its scenario has it, and whether the EPP was told of that answer."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence

from conformance.reading.decoded_message import STREAMED_REPLY, DecodedMessage, decode
from conformance.reading.stream_direction import streams_end
from conformance.report.verify.steps import short
from conformance.report.verify.told import Told
from conformance.scenario.replies import FAILING, chunks_of, headers_of, pairs
from conformance.scenario.schema import ClientRequest, Exchange, Reply, Request
from ext_proc.headers import pairs_of
from ext_proc.record import (
    RESPONSE_TOO_LARGE,
    UNROUTED,
    Author,
    ClientResponse,
    Entry,
    Headers,
    Message,
    UpstreamResponse,
    header,
)
from fake_proxy.config import ProxyConfig

_UNANSWERED = ("local-reply", "refused", "never")


def problems(request: ClientRequest, entries: Sequence[Entry], told: Told | None) -> Iterator[str]:
    """What speaks against the answers in `entries` being those to `request`.

    `told` is what our own data plane told the EPP under test; None if there was another.
    """
    answers = [one.event for one in entries if isinstance(one.event, UpstreamResponse)]
    got = next((one.event for one in entries if isinstance(one.event, ClientResponse)), None)
    whole = got is not None and got.complete and got.details == "via_upstream" and not _cut_by_the_epp(entries, told)
    failing = request.fail_first if isinstance(request, Exchange) else 0
    for answer in answers:
        if answer.outcome == "response" and answer.attempt <= failing:
            if answer.status != FAILING:
                yield f"attempt {answer.attempt} was answered with {answer.status}, by its scenario with {FAILING}"
        elif answer.outcome == "response":
            yield from _answer(answer, request.reply, whole=whole and answer is answers[-1])
            least = request.reply.delay_seconds if isinstance(request, Request) else 0.0
            if answer.delay != least:
                yield f"a model server answered after {answer.delay:g} s, by its scenario it takes {least:g} s"
    if told is not None:
        yield from _told(told, answers)
    if got is not None and not any(one.what in ("immediate_response", STREAMED_REPLY) for one in _said(entries)):
        yield from _given_up(request, got, routable=told is not None or bool(answers))


def _given_up(request: ClientRequest, got: ClientResponse, *, routable: bool) -> Iterator[str]:
    """What speaks against `got` being the data plane's answer in the place of a model server's: judges ask no more."""
    limit, size = ProxyConfig().buffer_limit, sum(map(len, chunks_of(request.reply)))
    for_nothing = {UNROUTED: routable or got.status != 503, RESPONSE_TOO_LARGE: size <= limit}
    if for_nothing.get(got.details):
        yield f"its client got no response of a model server ({got.details}), and nothing in it is a reason"


def _answer(answer: UpstreamResponse, reply: Reply, *, whole: bool) -> Iterator[str]:
    """Of an answer that is not `whole`, only a part may have been read."""
    if reply.source in _UNANSWERED:
        yield f"a model server answered with {answer.status}, by its scenario none does"
        return
    if reply == Reply():
        return  # by itself
    if reply.cut:
        yield "a model server's answer has its end, and by its scenario is cut"
    headers, trailers, body = headers_of(reply), pairs(reply.trailers or ()), b"".join(chunks_of(reply))
    if answer.status != reply.status:
        yield f"a model server answered with {answer.status}, by its scenario with {reply.status}"
    if not _within(headers, answer.headers):
        yield f"a model server answered with the headers {short(answer.headers)}, by its scenario with {short(headers)}"
    if not whole or (answer.size is not None and answer.size != len(answer.body)):
        return
    if answer.trailers != trailers:
        yield f"a model server's answer has the trailers {short(answer.trailers)}, by its scenario {short(trailers)}"
    generated = reply.size is not None and reply.split is None  # by whom it comes from
    if len(answer.body) != len(body) if generated else _plain(answer.body, reply) != _plain(body, reply):
        yield f"a model server answered {short(answer.body)}, by its scenario {short(body)}"


def _cut_by_the_epp(entries: Sequence[Entry], told: Told | None) -> bool:
    """Whether the EPP ended the response before it was told of its end: what the model server goes on with is lost."""
    if told is None or any(
        one.response_headers.end_of_stream or one.response_body.end_of_stream or one.HasField("response_trailers")
        for one in told.messages
    ):
        return False
    return any(one.side == "response" and streams_end(one) for one in _said(entries))


def _said(entries: Sequence[Entry]) -> Iterator[DecodedMessage]:
    return (
        decode(one, one.event) for one in entries if isinstance(one.event, Message) and one.event.author is Author.EPP
    )


def _within(wanted: Headers, found: Headers) -> bool:
    """Whether all of `wanted` is in `found`, in this order."""
    left = iter(found)
    return all(one in left for one in wanted)


def _plain(body: bytes, reply: Reply) -> bytes:
    """A body without its compression, which may be another elsewhere."""
    if not reply.gzip:
        return body
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body


def _told(told: Told, answers: Sequence[UpstreamResponse]) -> Iterator[str]:
    """What the EPP was told of the last answer."""
    if not answers or answers[-1].outcome != "response":
        return
    last, pieces, ended = answers[-1], [], False
    for message in told.messages:
        match message.WhichOneof("request"):
            case "response_headers":
                status = header(pairs_of(message.response_headers.headers), b":status") or b""
                if status != str(last.status).encode():
                    yield f"the EPP was told of a response {short(status)}, the model server gave {last.status}"
                if message.response_headers.end_of_stream and (last.body or last.trailers):
                    yield "the EPP was told of a response without a body, and the model server's had more"
            case "response_body":
                pieces.append(message.response_body.body)
                ended = ended or message.response_body.end_of_stream
            case "response_trailers":
                trailers = pairs_of(message.response_trailers.trailers)
                if trailers != last.trailers:
                    yield f"the EPP was told the trailers {short(trailers)}, not {short(last.trailers)}"
    body = b"".join(pieces)
    if not last.body.startswith(body) or (ended and body != last.body):
        yield f"the EPP was told the body {short(body)}, the model server's was {short(last.body)}"
    if ended and last.trailers:
        yield "the EPP was told of the end of a response's body that trailers end"
