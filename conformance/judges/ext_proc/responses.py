"""Responses pass through (ENV-24): nothing takes their place, and the headers by which they are read stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.ext_proc.bodies import answered_body, sent_body
from conformance.judges.registry import judge_of_exchange
from conformance.judges.ruling import Ruling, passed
from conformance.reading.conversation import NONE
from conformance.reading.decoded_message import DecodedMessage, HeaderList
from conformance.reading.destination import counting, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Verdict
from ext_proc.headers import value_of

_STATUS = (":status", "grpc-status")


@judge_of_exchange("ENV-24")
def response(view: ExchangeView) -> Iterator[Ruling]:
    """The response is not replaced, nor broken off; its status (also of gRPC), content type and encoding stay."""
    direction, message, immediate = view.stream.response, view.stream.response.headers_answer, view.stream.immediate
    sent = sent_headers(direction)
    if sent is None:
        return
    if immediate is not None and immediate is not view.decided and not direction.complete:
        expected = f"the response of the model server ({_text(values_of(sent, ':status'))}) is passed on"
        actual = f"ImmediateResponse {view.code} in {'its place' if message is None else 'the midst of it'}"
        # Under load it may be an eviction that met the response on its way.
        verdict = Verdict.FAIL if view.due.load.idle else Verdict.WARN
        yield view.fail("ENV-24", expected, actual, at=immediate, verdict=verdict)
        return
    answers = counting(direction)
    if message is None or any(one.partial for one in answers):
        return
    broken = [ruling for one in answers for ruling in _changed(view, one, sent)]
    if direction.trailers is not None and direction.trailers_answer is not None:
        broken += _changed(view, direction.trailers_answer, direction.trailers.headers or [])
    yield from broken or (passed("ENV-24"),)


def _changed(view: ExchangeView, message: DecodedMessage, sent: HeaderList) -> Iterator[Ruling]:
    """What one answer does to those headers that were `sent` by which the response is read."""
    mutation = message.header_mutation
    if mutation is None:
        return
    stays = _body_stays(view.stream.response)
    for option in mutation.set_headers:
        name, value = option.header.key.lower(), value_of(option.header)
        own = values_of(sent, name)
        expected = f"{name} stays {_text(own) or 'as it is: there is none'}"
        actual = f"it is set to {value.decode('latin-1')[:60]!r}"
        if value in own:
            continue
        if name in _STATUS or (name == "content-encoding" and stays and _codings([value]) != _codings(own)):
            yield view.fail("ENV-24", expected, actual, at=message)
        elif name == "content-type" and own:
            yield view.warn("ENV-24", expected, actual, at=message)
    removed = {name.lower() for name in mutation.remove_headers}
    removed -= {option.header.key.lower() for option in mutation.set_headers}
    for name in ("content-type", "grpc-status", "content-encoding"):
        own = values_of(sent, name)
        if name in removed and (stays and _codings(own) if name == "content-encoding" else own):
            yield view.fail("ENV-24", f"the response keeps its {name}", "it is removed", at=message)


def _body_stays(direction: StreamDirection) -> bool:
    """Whether the body goes on as it was sent; False also where that is not known."""
    got = answered_body(direction)
    return direction.mode == NONE if got is None else got == sent_body(direction)


def _codings(values: Sequence[bytes]) -> list[bytes]:
    """What a body is encoded in, as content-encoding says it; `identity` is nothing."""
    return [value.lower() for value in values if value.lower() not in (b"", b"identity")]


def _text(values: Sequence[bytes]) -> str:
    return b", ".join(values).decode("latin-1")
