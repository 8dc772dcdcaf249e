"""Whether an exchange came as slowly as its scenario has it, and was told of the endpoint that the scenario names.

What is due before a piece of a body goes on is in the log: an echo, a pause, other exchanges of an interleaved step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.planning.data_plane import APART, served_of
from conformance.printable import plural
from conformance.report.verify.hints import same
from conformance.report.verify.steps import short
from conformance.report.verify.told import Told
from conformance.scenario.replies import chunks_of
from conformance.scenario.schema import Exchange
from ext_proc.headers import plain
from ext_proc.protocol import SERVED
from ext_proc.record import (
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    ExchangeOpened,
    Message,
    StreamEnded,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
)
from fake_proxy.client import DataArrives, EchoAwaited, HttpRequest, Pause, arrivals
from fake_proxy.echo import echo_of
from fake_proxy.stimulus import ServedMetadata

_EARLY = 0.1
"""Seconds by which a pause may seem shorter than it was."""

_STREAMED = ("STREAMED", "FULL_DUPLEX_STREAMED")


def of_request(sent: HttpRequest, entries: Sequence[Entry], told: Told) -> Iterator[str]:
    """What speaks against the body in `entries` having come piece by piece as the client sent it."""
    echoes, pauses = _due(sent)
    if not echoes and not pauses:
        return
    waits: set[str] = set()
    began, carried = entries[0].t, 0
    for entry in entries:
        if isinstance(entry.event, Wait):
            waits.add(entry.event.what)
        elif (message := told.request_in(entry)) is not None and message.HasField("request_body"):
            carried += len(message.request_body.body)
            missing = [through for through in echoes if through < carried and echo_of("request", through) not in waits]
            if missing:
                yield f"byte {missing[0]} of the body was passed before it was awaited that the EPP let it through"
                return
            paused = max((seconds for begin, seconds in pauses if begin < carried), default=0.0)
            if (after := (entry.t - began) / 1e9) < paused - _EARLY:
                yield f"a piece of the body came after {after:.1f} s, by its scenario after {paused:g} s"
                return


def _due(sent: HttpRequest) -> tuple[list[int], list[tuple[int, float]]]:
    """The bytes that must be let through before more comes, and by beginnings of pieces the pauses up to there."""
    echoes, pauses, begin, paused = [], [], 0, 0.0
    for arrival in arrivals(sent):
        match arrival:
            case DataArrives(data):
                begin += len(data)
            case EchoAwaited(through):
                echoes.append(through)
            case Pause(seconds):
                paused += seconds
                pauses.append((begin, paused))
    return echoes, pauses


def of_response(request: Exchange, opened: ExchangeOpened, entries: Sequence[Entry], told: Told) -> Iterator[str]:
    """What speaks against the response in `entries` having come piece by piece, as the reply of `request` says."""
    reply = request.reply
    least = reply.delay_seconds + (reply.gap_seconds and reply.gap_seconds * max(len(chunks_of(reply)) - 1, 0))
    if least and reply.source == "model-server":
        for entry in entries:
            got = entry.event
            if not isinstance(got, ClientResponse) or got.details != "via_upstream":
                continue
            due = least if got.complete else reply.delay_seconds
            if (after := (entry.t - entries[0].t) / 1e9) < due - _EARLY:
                yield f"the response was over after {after:.1f} s, by its scenario it takes {due:g} s"
    if not reply.lock_step or opened.response_body_mode not in _STREAMED:
        return
    prefix, passed = echo_of("response", None), False
    for entry in entries:
        if isinstance(entry.event, Wait) and entry.event.what.startswith(prefix):
            return
        message = told.request_in(entry)
        if message is not None and message.response_body.body:
            if passed:
                yield "a further piece of the response came before it was awaited that the EPP let the first through"
                return
            passed = True


def interleaved(step: Sequence[Sequence[Entry]]) -> Iterator[str]:
    """What speaks against the exchanges of an interleaved step having waited for each other after their first chunk.

    All but the last ones to come, which are no more than half of them, go on when those are answered, or when no one
    came for a while.
    """
    ends = [entry.seq for entries in step for entry in entries if _over(entry)]
    first_over = min(ends, default=0)
    free = 0
    for entries in step:
        said = [one for one in entries if isinstance(one.event, Message) and one.event.author is Author.DATA_PLANE]
        bodies = [one for one in said if one.event.raw[:1] == b"\x22"]  # type: ignore[attr-defined]
        if len(bodies) > 1 and bodies[-1].seq < first_over:
            free += (bodies[-1].t - said[0].t) / 1e9 < APART - _EARLY
    most = max(1, len(step) // 2)
    if free > most:
        yield f"{plural(free, 'exchange')} of an interleaved step waited for no other, at most {most} may"


def _over(entry: Entry) -> bool:
    """Whether an exchange is over, or on its way to it."""
    event = entry.event
    ended = isinstance(event, ClientResponse | ClientAborted | StreamEnded)
    return ended or (isinstance(event, Wait) and event.outcome == "expired")


def served(
    request: Exchange, entries: Sequence[Entry], told: Told, endpoints: Mapping[str, tuple[str, ...]], namespace: str
) -> Iterator[str]:
    """What speaks against the endpoint that came with the response's headers. An EPP may write over it itself."""
    usual = request.hint_on == "every" and request.metadata_context == "default"
    own = SERVED in request.metadata.get(namespace, {})
    said = (one.event for one in entries if isinstance(one.event, Message) and one.event.author is Author.EPP)
    if not usual or own or any(SERVED.encode() in event.raw for event in said):
        return
    wanted: Any = served_of(request, endpoints)
    asked = {one.event.endpoint for one in entries if isinstance(one.event, UpstreamRequest | UpstreamResponse)}
    for entry in entries:
        message = told.request_in(entry)
        if message is None or not message.HasField("response_headers"):
            continue
        fields = message.metadata_context.filter_metadata[namespace].fields
        found = plain(fields[SERVED]) if SERVED in fields else None
        if wanted is ServedMetadata.ABSENT:
            right = found is None
        elif wanted is ServedMetadata.ACTUAL:
            right = not asked or found in asked  # an answer is in the log when it is whole, maybe after this message
        elif request.served == "other":  # which it is follows from the pool's order
            right = isinstance(found, str) and asked != {found}
        else:
            right = same(found, wanted if isinstance(wanted, str) else plain(wanted))
        if not right:
            yield f"the EPP was told that {short(found)} served, by its scenario {request.served}"
        return
