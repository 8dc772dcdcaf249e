"""ImmediateResponses: complete and final (ENV-15). Those in the place of a response are ENV-24."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.registry import judge_of_exchange
from conformance.judges.ruling import Ruling, passed

VALID = range(200, 600)
"""Codes that an ImmediateResponse may have."""


@judge_of_exchange("ENV-15", hygiene=True)
def immediate_response(view: ExchangeView) -> Iterator[Ruling]:
    """An ImmediateResponse has a valid status, and the stream ends well after it."""
    message = view.stream.immediate
    if message is None or message.response is None or view.stream.offence is not None:
        return
    immediate = message.response.immediate_response
    if not immediate.HasField("status") or view.code not in VALID:
        actual = f"code {view.code}" if immediate.HasField("status") else "no status"
        expected = "a status with a code from 200 to 599"
        yield view.fail("ENV-15", expected, actual, at=message, hint="Envoy takes a missing status for 200.")
        return
    if view.stream.response.complete:
        expected = "no ImmediateResponse once the response is complete"
        hint = "Envoy takes the response away from the client, which may have it already."
        yield view.fail("ENV-15", expected, f"ImmediateResponse {view.code}", at=message, hint=hint)
        return
    released = view.decided if view.decided is not message and view.stream.response.headers is None else None
    if released is not None and view.due.known and view.due.load.idle and not view.due.load.blind:
        expected = "no answer that lets the request go before an ImmediateResponse"
        hint = "Only eviction under load would be a reason to take a pick back."
        yield view.warn(
            "ENV-15", expected, f"ImmediateResponse {view.code} after {released.what}", at=message, hint=hint
        )
        return
    end = view.conversation.end
    if end is not None and end[1].how == "status" and end[1].status:
        expected = "after an ImmediateResponse the stream ends with gRPC status OK"
        yield view.warn("ENV-15", expected, f"it ended with {end[1].status} {end[1].message!r}", at=end[0].seq)
    elif view.conversation.drained:
        yield passed("ENV-15")
