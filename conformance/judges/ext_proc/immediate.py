"""ImmediateResponses, streamed or not: complete and final (ENV-15). Those in the place of a response are ENV-24."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.decoded_message import STREAMED_REPLY, DecodedMessage
from conformance.verdict import Finding, Verdict
from ext_proc.headers import is_grpc
from ext_proc.record import Author, StreamEnded

_TOO_MANY = 429
VALID = range(200, 600)
"""Codes that an ImmediateResponse may have."""


@judge_of_exchange("ENV-15", hygiene=True)
def immediate_response(view: ExchangeView) -> Iterator[Finding]:
    """An ImmediateResponse has a valid status, and the stream ends well after it."""
    message = view.stream.immediate
    if message is None or message.response is None or view.stream.offence is not None:
        return
    if message.what == STREAMED_REPLY:
        yield from _streamed(view, message)
        return
    immediate = message.response.immediate_response
    if not immediate.HasField("status") or view.code not in VALID:
        actual = f"code {view.code}" if immediate.HasField("status") else "no status"
        expected = "a status with a code from 200 to 599"
        yield view.fail("ENV-15", expected, actual, at=message, hint="Envoy takes a missing status for 200.")
        return
    if view.code >= 400 and message.grpc_status == 0 and is_grpc(view.request_header("content-type")):
        expected = f"a gRPC status that says what {view.code} does, or none"
        hint = "Leave grpc_status out: the data plane derives it from the code."
        yield view.fail(
            "ENV-15", expected, "gRPC status 0 (OK), which the client takes for success", at=message, hint=hint
        )
        return
    if view.stream.response.complete:
        expected = "no ImmediateResponse once the response is complete"
        hint = "Envoy takes the response away from the client, which may have it already."
        yield view.fail("ENV-15", expected, f"ImmediateResponse {view.code}", at=message, hint=hint)
        return
    if (found := _taken_back(view, message)) is not None:
        yield found
        return
    end = view.conversation.end
    if end is not None and (how := _ends_badly(end[1])):
        expected = "after an ImmediateResponse the stream ends with gRPC status OK"
        yield view.warn("ENV-15", expected, f"it ended with {how}", at=end[0].seq)
    elif view.conversation.drained:
        yield passed("ENV-15")


def _ends_badly(end: StreamEnded) -> str:
    """How the EPP ended the stream, if not with OK; empty if it did, or left that to the data plane."""
    if end.how == "status" and end.status:
        return f"{end.status} {end.message!r}"
    return f"a reset, HTTP/2 code {end.code}" if end.how == "reset" and end.author is Author.EPP else ""


def _streamed(view: ExchangeView, message: DecodedMessage) -> Iterator[Finding]:
    """A StreamedImmediateResponse in its place has a valid status, and an end."""
    if view.code not in VALID:
        expected, actual = "a :status from 200 to 599", f"{view.code or 'none'}"
        yield view.fail("ENV-15", expected, actual, at=message, hint="Envoy answers 502 to a reply without a status.")
    elif not view.stream.reply_ended and view.conversation.aborted is None:
        expected, actual = "the reply has its end of stream", "the stream ended without"
        yield view.fail("ENV-15", expected, actual, at=message, hint="The client gets a reply that is cut short.")
    else:
        yield passed("ENV-15")


def _taken_back(view: ExchangeView, message: DecodedMessage) -> Finding | None:
    """What is wrong with an error after the request was let go to an endpoint.

    Severity follows harm. The client gets the error, so it fails where the client was due a response. It warns where an
    error is excused: the model server has taken a request in vain, or the head of one before the body was answered.
    Under load it is eviction; before the request was answered whole, that warns as well. A 429 while the pool is idle
    is inconclusive, as it is in the place of a pick.
    """
    released, load = view.decided, view.due.load
    if released is None or released is message or view.stream.response.headers is not None:
        return None
    idle = view.due.known and load.idle and not load.blind
    malformed = view.family == 4 and (view.incomprehensible or view.unknown_model)
    if not idle and not malformed and view.stream.request.complete:
        return None
    undecided = Verdict.INCONCLUSIVE if view.code == _TOO_MANY else Verdict.FAIL
    verdict = undecided if idle and not malformed else Verdict.WARN
    return view.fail(
        "ENV-15",
        "no answer that lets the request go before an ImmediateResponse",
        f"ImmediateResponse {view.code} after {released.what} named {view.destination.given}",
        at=message,
        hint="Only eviction under load would be a reason to take a pick back.",
        verdict=verdict,
    )
