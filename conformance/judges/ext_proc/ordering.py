"""The order and the kinds of answers (ENV-01 to ENV-05).

The offence is found where the stream is followed (`conformance.reading.stream_state`); here it becomes a finding, and
what was kept becomes a pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.ordering import Offence
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding


@judge_of_exchange("ENV-01", "ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-15", "ENV-19", hygiene=True)
def order_of_answers(view: ExchangeView) -> Iterator[Finding]:
    """Each answer is of a kind, in a place and of a form that Envoy accepts there."""
    stream = view.stream
    if stream.offence is not None:
        yield _offence(view, stream.offence)
    if (extra := stream.needless) is not None:
        expected = ("the answer has the name of a message that was sent",)
        hint = "Envoy ignores it behind the end of a full-duplex body only; elsewhere it fails the request."
        yield view.warn("ENV-01", expected, f"{extra.what}, where none was sent", at=extra.seq, hint=hint)
    if not stream.answers:
        return
    yield passed("ENV-01")
    yield passed("ENV-02")
    for direction in (stream.request, stream.response):
        yield from _seen_to_hold(direction)


def _offence(view: ExchangeView, found: Offence) -> Finding:
    if found.requirement == "ENV-04" and not _mode_was_told(view) and not _always(view):
        actual = f"{found.actual}, without a protocol_config"
        hint = "Without it only an endpoint picker of one body mode knows what is expected."
        return view.warn("ENV-19", found.expected, actual, at=found.entry.seq, hint=hint)
    return view.fail(found.requirement, found.expected, found.actual, at=found.entry.seq, hint=found.hint)


def _always(view: ExchangeView) -> bool:
    """Whether the EPP breaks ENV-04 also where it was told the mode."""
    told = (one for one in view.siblings if _mode_was_told(one))
    return any(one.stream.offence is not None and one.stream.offence.requirement == "ENV-04" for one in told)


def _mode_was_told(view: ExchangeView) -> bool:
    first = view.conversation.first
    return first is None or first.request is None or first.request.HasField("protocol_config")


def _seen_to_hold(direction: StreamDirection) -> Iterator[Finding]:
    if direction.headers_answer is not None and (direction.body_answers or direction.trailers_answer):
        yield passed("ENV-03")
    if direction.body_answers:
        yield passed("ENV-04")
    if direction.duplex and (direction.finish is not None or direction.trailers_answer is not None):
        yield passed("ENV-05")
