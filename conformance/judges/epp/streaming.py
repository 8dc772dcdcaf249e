"""Streaming (EPP-STRM-01, 02): full-duplex bodies are taken, and event streams are passed on event by event.

Before `next` both are an option and only recorded. Whether events are held back is told by the waits for the echo of
each piece, which are in the log with how they ended. Where only the older `value` field tells that these are events, it
is a warning (ENV-11 has the reading).
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.ext_proc.bodies import is_event_stream
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.decoded_message import DecodedMessage
from conformance.reading.stream_state import StopKind
from conformance.verdict import Finding

ECHO = "echo of response"


@judge_of_exchange("EPP-STRM-01", "EPP-STRM-02")
def streaming(view: ExchangeView) -> Iterator[Finding]:
    """Bodies go through in full duplex; the next event is sent only after the one before came back."""
    request = view.stream.request
    if request.duplex and request.bodies and request.complete and view.answer is AnswerKind.ENDPOINT:
        yield passed("EPP-STRM-01")
    if is_event_stream(view.response_header("content-type")):
        yield from _events(view)


def _events(view: ExchangeView) -> Iterator[Finding]:
    stream = view.stream
    waits = [(entry, wait) for entry, wait in view.conversation.waits if wait.what.startswith(ECHO)]
    expired = [(entry, wait) for entry, wait in waits if wait.outcome == "expired"]
    stopped = stream.stop is not None and stream.stop.kind is not StopKind.CANCELLED and stream.missing is not None
    if stream.offence is not None or stopped:
        return  # that is the finding
    if expired:
        entry, wait = expired[0]
        expected = "each event comes back before the next one is sent"
        actual = f"{wait.what}: none within {wait.seconds:.1f} s"
        if _only_in_value(stream.response.headers):
            hint = "The content-type was in `value`, which EPPs should read where `raw_value` is empty."
            yield view.warn("EPP-STRM-02", expected, actual, at=entry.seq, hint=hint)
            return
        hint = "Answer each response body message of an event stream at once; keep a copy if the usage is needed."
        yield view.fail("EPP-STRM-02", expected, actual, at=entry.seq, hint=hint)
    elif waits:
        yield passed("EPP-STRM-02")


def _only_in_value(message: DecodedMessage | None) -> bool:
    if message is None or message.request is None:
        return False
    headers = message.request.response_headers.headers.headers
    return any(one.key.lower() == "content-type" and one.value and not one.raw_value for one in headers)
