"""What was particular about an exchange, and the requirement that is about it.

A stream that is left without an answer, or a process that dies, is put down to what was particular about the stimulus:
a hang on a subset of the wrong type is EPP-SUB-10, one on an ordinary request ENV-16. Each row is a requirement and a
question; the first that answers yes decides. Requirements that are not part of the version are passed over.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.evidence.episode import UnreadConnection
from conformance.judges.exchange_view import ExchangeView, Shape
from conformance.reading.conversation import NONE
from conformance.reading.decoded_message import DecodedMessage, has_unknown
from conformance.reading.endpoints import canonical, parse

MANY_HEADERS = 60
MANY_ITEMS = 100
MANY_STREAMS = 2
MANY_CHUNKS = 8
LARGE_BODY = 64 * 1024


def garbled(view: ExchangeView) -> bool:
    """Bytes of the data plane that are no message."""
    return view.stream.garbled


def odd_hint(view: ExchangeView) -> bool:
    """A subset hint of the wrong type."""
    return view.hint.kind == "wrong-type"


def odd_items(view: ExchangeView) -> bool:
    """A subset hint with odd items, or very many."""
    return view.hint.set and (not view.hint.plain or len(view.hint.items) > MANY_ITEMS)


def odd_served(view: ExchangeView) -> bool:
    """A served endpoint that is not the first of those picked, or none although a model server answered; where the same
    kind of response was answered with the usual one: else the EPP may answer no such response."""
    kind = view.response_header("content-type")
    return _odd_served(view) and any(
        _answered_like(one, view) and one.response_header("content-type") == kind
        for one in view.siblings
        if one.stream.response.headers is not None and not _odd_served(one)
    )


def _odd_served(view: ExchangeView) -> bool:
    served = view.served
    if served is None or not view.stream.response.headers or local_reply(view):
        return False
    if not served.present:
        return bool(view.conversation.upstream_responses)
    if not isinstance(served.value, str) or parse(served.value).canonical is None:
        return True
    return view.picks[:1] != (canonical(served.value),)


def odd_protocol_config(view: ExchangeView) -> bool:
    """No protocol_config on the first message, or bodies that do not wait for the answer to the headers; where with the
    usual one a request with as much to answer was answered, and none of the same kind was not: else the EPP may answer
    no such request."""
    if not _odd_config(view):
        return False
    usual = [one for one in view.siblings if not _odd_config(one)]
    return any(_answered_like(one, view) and _with_trailers(one) is _with_trailers(view) for one in usual) and not any(
        one.stream.missing is not None and _kind(one) == _kind(view) for one in usual
    )


def _odd_config(view: ExchangeView) -> bool:
    first = view.conversation.first
    if first is None or first.request is None:
        return False
    config = first.request.protocol_config
    return not first.request.HasField("protocol_config") or config.send_body_without_waiting_for_header_response


def _kind(view: ExchangeView) -> tuple[Shape, bool]:
    return view.shape, _with_trailers(view)


def _with_trailers(view: ExchangeView) -> bool:
    return view.stream.request.trailers is not None


def unknown_input(view: ExchangeView) -> bool:
    """Unknown fields, attributes, typed metadata, many headers, or header bytes outside of ASCII."""
    return any(message.opaque or _unknown(message) for message in view.conversation.asked)


def _unknown(message: DecodedMessage) -> bool:
    request = message.request
    if request is None:
        return False
    if request.attributes or request.metadata_context.typed_filter_metadata or has_unknown(request):
        return True
    if message.part != "headers":
        return False
    headers = getattr(request, message.what or "").headers.headers
    return len(headers) > MANY_HEADERS or not all(one.raw_value.isascii() for one in headers)


def local_reply(view: ExchangeView) -> bool:
    """A response of the data plane's own: no attempt at a model server brought one."""
    tried = view.conversation.upstream_responses
    return bool(tried) and all(one.outcome != "response" and one.status is None for one in tried)


def early_response(view: ExchangeView) -> bool:
    """Response headers on a stream without a request, or before the request was complete or answered. In mode NONE, and
    where the EPP asked to be shown no more of the request, its end is not shown: the answer is all that is awaited."""
    response, request = view.stream.response.headers, view.stream.request
    if response is None:
        return False
    if request.headers is None:
        return True
    answered = request.release
    if answered is None or answered.seq > response.seq:
        return True
    if request.end is None:
        return request.mode != NONE and not request.replaced
    return request.end.seq > response.seq


def aborted(view: ExchangeView) -> bool:
    """The client went away."""
    return view.conversation.aborted is not None


def after_an_abort(view: ExchangeView) -> bool:
    """An exchange before it was aborted."""
    return view.follows_an_abort


def crowded(view: ExchangeView) -> bool:
    """Other streams of the scenario were open at the same time, and some exchange with as much to answer was answered:
    else the EPP never answers such a request."""
    return len(view.overlapping) >= MANY_STREAMS and any(
        _answered_like(one, view) for one in view.siblings if one.stream.request.end is not None
    )


def beside_unread(view: ExchangeView) -> bool:
    """The EPP had a connection of which nothing was read, and answered an exchange with as much to answer before."""
    return any(
        one.stream.answers
        and _answered_like(one, view)
        and one.conversation.span[1] < entry.seq < view.conversation.span[0]
        for entry, _ in view.facts.episode.of(UnreadConnection)
        for one in view.siblings
    )


def _answered_like(one: ExchangeView, view: ExchangeView) -> bool:
    """Whether `one` was answered, with as much to answer as `view`."""
    return one.stream.missing is None and one.stream.offence is None and one.bodyless is view.bodyless


def without_length(view: ExchangeView) -> bool:
    """A full-duplex request body of which the headers do not say the length."""
    direction = view.stream.request
    return direction.duplex and bool(direction.bodies) and view.request_header("content-length") is None


def demanding_body(view: ExchangeView) -> bool:
    """A request body in many messages, or a large one."""
    bodies = view.stream.request.bodies
    return len(bodies) > MANY_CHUNKS or sum(message.size for message in bodies) > LARGE_BODY


def odd_body(view: ExchangeView) -> bool:
    """A request body that is no inference request."""
    return view.shape is Shape.ODD


Row = tuple[str, Callable[[ExchangeView], bool]]

STIMULI: tuple[Row, ...] = (
    ("ENV-27", garbled),
    ("EPP-SUB-10", odd_hint),
    ("EPP-SUB-11", odd_items),
    ("ENV-19", odd_protocol_config),
    ("ENV-26", unknown_input),
)
"""What is particular about the request as a whole: it decides before what the answer lacks."""

RESPONSES: tuple[Row, ...] = (("EPP-SRVD-01", odd_served), ("ENV-23", early_response), ("ENV-23", local_reply))
"""The same for the response."""

CIRCUMSTANCES: tuple[Row, ...] = (
    ("EPP-STRM-03", without_length),
    ("ENV-21", beside_unread),
    ("ENV-22", after_an_abort),
    ("ENV-21", crowded),
)
"""What explains a silence that nothing else explains."""


def first(view: ExchangeView, rows: tuple[Row, ...]) -> str | None:
    """The first requirement of the version whose question is answered with yes."""
    return next((requirement for requirement, ask in rows if _asked(view, requirement) and ask(view)), None)


def _asked(view: ExchangeView, requirement: str) -> bool:
    """Before `next`, streaming is an option: what only informs explains nothing."""
    return view.facts.effect(requirement) in ("fail", "warn")
