"""Responses pass through (ENV-24): nothing takes their place, and their headers and trailers stay.

A loss of those by which a response is read fails, that of any other is a warning. A header is kept if each item of its
list is still there: an EPP may add items, and join several lines to one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.ext_proc.bodies import answered_body, sent_body
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.conversation import NONE
from conformance.reading.decoded_message import DecodedMessage, HeaderList
from conformance.reading.destination import apply, header_list, may_count, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Verdict
from ext_proc.headers import is_final_status, value_of
from ext_proc.protocol import PREFIX

_DROPPED = (429, 503)
"""Codes by which requests are dropped."""

_STATUS = (":status", "grpc-status")
_READ_BY = ("content-type", "grpc-status", "content-encoding")

_OF_THE_BODY = ("content-length", "content-md5", "content-digest", "repr-digest", "digest", "etag", "accept-ranges")
_OF_THE_CONNECTION = (
    *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    *("date", "server", "x-request-id"),
)
_LEFT_OUT = frozenset({*_STATUS, *_READ_BY, *_OF_THE_BODY, *_OF_THE_CONNECTION})
"""Headers that are judged by themselves, that change with a body which the EPP may rewrite, or that belong to a
connection or a data plane."""

_OWN = (":", PREFIX, "endpoint-load-metrics")
"""How names begin that are no client's: those of the protocol, and reports of load that model servers make to it."""


@judge_of_exchange("ENV-24")
def response(view: ExchangeView) -> Iterator[Finding]:
    """The response is not replaced, nor broken off; its status (also of gRPC), content type and encoding stay."""
    direction, message, immediate = view.stream.response, view.stream.response.headers_answer, view.stream.immediate
    sent = sent_headers(direction)
    if sent is None:
        return
    if immediate is not None and immediate is not view.decided and not direction.complete:
        expected = f"the response of the model server ({_text(values_of(sent, ':status'))}) is passed on"
        actual = f"ImmediateResponse {view.code} in {'its place' if message is None else 'the midst of it'}"
        verdict = Verdict.WARN if _maybe_evicted(view) else Verdict.FAIL
        yield view.fail("ENV-24", expected, actual, at=immediate, verdict=verdict)
        return
    answers = may_count(direction)
    if message is None or any(one.partial for one in answers):
        return
    broken = [finding for one in answers for finding in _changed(view, one, sent)]
    broken += _lost(view, answers[-1], "header", sent, header_list(direction, late=True))
    trailers, answer = direction.trailers, direction.trailers_answer
    if trailers is not None and trailers.headers and answer is not None and answer.header_mutation is not None:
        broken += _changed(view, answer, trailers.headers)
        broken += _lost(view, answer, "trailer", trailers.headers, apply(answer.header_mutation, trailers.headers))
    yield from broken or (passed("ENV-24"),)


def _maybe_evicted(view: ExchangeView) -> bool:
    """Whether an error may be an eviction that met the response on its way: under load, or where the load is not known
    and it is an error by which requests are dropped."""
    unknown = not view.due.known and view.stream.request.headers is not None
    return not view.due.load.idle or (unknown and view.code in _DROPPED)


def _changed(view: ExchangeView, message: DecodedMessage, sent: HeaderList) -> Iterator[Finding]:
    """What one answer does to those headers that were `sent` by which the response is read."""
    mutation = message.header_mutation
    if mutation is None:
        return
    stays = _body_stays(view.stream.response)
    removed = {name.lower() for name in mutation.remove_headers}
    for option in mutation.set_headers:
        name, value = option.header.key.lower(), value_of(option.header)
        if name in _STATUS or name == "content-encoding":
            value = option.header.raw_value  # Envoy reads no other: with `value` alone they arrive empty
        if name == ":status" and not is_final_status(value):
            continue  # Envoy leaves it as it is
        own = values_of(sent, name)
        added = bool(option.append.value and own and name not in removed and not name.startswith(":"))
        expected = f"{name} stays {_text(own) or 'as it is: there is none'}"
        shown = repr(value.decode("latin-1")[:60])
        actual = f"{shown} is added to it" if added else f"it is set to {shown}"
        if value in own and not added:
            continue
        coded = name == "content-encoding" and stays
        if name in _STATUS or (coded and _codings([*own, value] if added else [value]) != _codings(own)):
            yield view.fail("ENV-24", expected, actual, at=message)
        elif name == "content-type" and own:
            yield view.warn("ENV-24", expected, actual, at=message)
    removed -= {option.header.key.lower() for option in mutation.set_headers}
    for name in _READ_BY:
        own = values_of(sent, name)
        if name in removed and (stays and _codings(own) if name == "content-encoding" else own):
            yield view.fail("ENV-24", f"the response keeps its {name}", "it is removed", at=message)


def _lost(
    view: ExchangeView, message: DecodedMessage, what: str, sent: HeaderList, left: HeaderList | None
) -> Iterator[Finding]:
    """What else was `sent` and is not `left`."""
    if left is None or left is sent:
        return
    for name in dict.fromkeys(name for name, _ in sent):
        if name in _LEFT_OUT or name.startswith(_OWN):
            continue
        old, new = values_of(sent, name), values_of(left, name)
        if Counter(_items(name, old)) - Counter(_items(name, new)):
            actual = f"the {what} {name} was {_text(old)!r}, is {repr(_text(new)) if new else 'gone'}"
            yield view.warn("ENV-24", f"the response keeps its {what} {name}", actual, at=message)


def _items(name: str, values: Sequence[bytes]) -> Sequence[bytes]:
    """The items of all lines. Those of set-cookie can't be put together (RFC 9110, section 5.3): each is one."""
    return values if name == "set-cookie" else [item.strip() for value in values for item in value.split(b",")]


def _body_stays(direction: StreamDirection) -> bool:
    """Whether the body goes on as it was sent; False also where that is not known."""
    got = answered_body(direction)
    return direction.mode == NONE if got is None else got == sent_body(direction)


def _codings(values: Sequence[bytes]) -> list[bytes]:
    """What a body is encoded in, as content-encoding says it; `identity` is nothing."""
    return [value.lower() for value in values if value.lower() not in (b"", b"identity")]


def _text(values: Sequence[bytes]) -> str:
    return b", ".join(values).decode("latin-1")
