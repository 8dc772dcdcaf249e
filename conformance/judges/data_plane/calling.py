"""Endpoint Picker Protocol (DP-EXTP-01): the EPP is asked about each request, with messages as ext_proc has them.

What is said on the wire is judged wherever it was observed. Whether the EPP was asked at all needs the client's side.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.conversation import DUPLEX, STREAMED
from conformance.judges.case import Scene
from conformance.judges.registry import judge_of_relay, judge_of_scene
from conformance.judges.relay import Asked, Attempt, Relay
from conformance.judges.ruling import Nature, Ruling, held, moot, violation
from conformance.said import REQUEST, RESPONSE, Said
from conformance.verdict import Verdict
from ext_proc.record import Author, header

EXTP = "DP-EXTP-01"
FIRST = "request_headers"


@judge_of_relay(EXTP)
def asked(relay: Relay) -> Iterator[Ruling]:
    """A stream for the request, and on it what the request is, in order."""
    for one in relay.asked:
        found = next(_wire(one, relay), None)
        if found is not None:
            yield found
            return
    if relay.asked:
        yield held(EXTP)
    elif relay.opened is not None:
        yield _unasked(relay)


@judge_of_scene(EXTP, role="data-plane")
def alive(scene: Scene) -> Iterator[Ruling]:
    """The process of the gateway does not end by itself."""
    if scene.crash is None:
        return
    exited = scene.crash.exited
    how = f"signal {-exited.code}" if exited.code < 0 else f"exit code {exited.code}"
    last = exited.output.strip()[-300:]
    yield violation(
        EXTP,
        "the process stays alive",
        f"the process ended with {how}" + (f"; its last words: {last}" if last else ""),
        exchange=None,
        seq=scene.crash.entry.seq,
        nature=Nature.CRASH,
    )


# -- whether the EPP was asked -----------------------------------------------------------------------------------------


def _unasked(relay: Relay) -> Ruling:
    expected = "an ext_proc stream to the EPP for this request"
    if relay.epps_down:
        return moot(EXTP, "the EPP did not listen")
    if not relay.attempts and (relay.aborted or relay.status is None):
        return moot(EXTP, "the client went away, or was not answered")
    if not relay.attempts and (relay.status or 0) >= 400:
        actual = f"none; the gateway itself answered {relay.status}"
        hint = "Does its route take this request?" if (relay.status or 0) < 500 else "Could it not reach the EPP?"
        return relay.fail(EXTP, expected, actual, verdict=Verdict.INCONCLUSIVE, hint=hint)
    stray = _stray(relay.scene)
    if stray is not None:
        actual = f"a stream that names no request ({stray}), which may be this one's"
        hint = "Forward the client's headers to the EPP: by one of them the suite knows its requests."
        return relay.fail(EXTP, expected, actual, verdict=Verdict.INCONCLUSIVE, hint=hint)
    hint = "Is ext_proc switched off for this route, method or connection?"
    return relay.fail(EXTP, expected, f"none; {relay.describe()}", hint=hint)


def _stray(scene: Scene) -> str | None:
    """A stream that belongs to no request of a client."""
    return next((one.exchange for one in scene.relays if one.opened is None and one.asked), None)


# -- what was said -----------------------------------------------------------------------------------------------------


def _wire(one: Asked, relay: Relay) -> Iterator[Ruling]:
    """What is wrong with the data plane's messages on one stream."""
    for entry, broken in one.conversation.malformed:
        if broken.author is Author.DATA_PLANE:
            yield relay.fail(EXTP, "gRPC messages", f"bytes that are none: {broken.reason}", at=entry.seq)
    said = [message for message in one.conversation.said if message.author is Author.DATA_PLANE]
    ended: dict[str, Said] = {}
    seen: set[str] = set()
    for number, message in enumerate(said):
        if message.problem:
            yield relay.fail(EXTP, "a ProcessingRequest", f"bytes that are none: {message.problem}", at=message)
            return
        if message.opaque or message.what is None:
            return  # of what the schema does not know nothing can be told
        if number == 0 and message.what != FIRST:
            yield relay.fail(EXTP, f"{FIRST} first", f"the first message is {message.what}", at=message)
            return
        yield from _sequence(relay, message, ended, seen)
        yield from _contents(relay, message, first=number == 0)
        seen.add(message.what)
        if message.ends and message.side is not None:
            ended[message.side] = message
    yield from _ends(one, relay, ended, seen)
    yield from _after_the_end(one, relay, said)


def _sequence(relay: Relay, message: Said, ended: dict[str, Said], seen: set[str]) -> Iterator[Ruling]:
    side = message.side or REQUEST
    if side in ended:
        end = ended[side]
        expected = f"nothing of the {side} after its end (#{end.seq}, {end.what})"
        yield relay.fail(EXTP, expected, f"{message.what}", at=message)
    elif message.part == "headers" and message.what in seen:
        expected = f"one {message.what} on a stream, and a stream for each request"
        yield relay.fail(EXTP, expected, "another", at=message)
    elif message.part != "headers" and f"{side}_headers" not in seen:
        yield relay.fail(EXTP, f"{side}_headers before {message.what}", "no headers before", at=message)


def _contents(relay: Relay, message: Said, *, first: bool) -> Iterator[Ruling]:
    request = message.request
    if request is None or message.what is None:
        return
    part = getattr(request, message.what)
    if message.part in ("headers", "trailers"):
        fields = part.headers.headers if message.part == "headers" else part.trailers.headers
        upper = next((one.key for one in fields if one.key != one.key.lower()), None)
        if upper is not None:
            hint = "HttpHeaders: names of headers are in lower case, so that EPPs need not fold them."
            yield relay.fail(EXTP, "names of headers in lower case", f"{upper!r}", at=message, hint=hint)
    if not first and request.HasField("protocol_config"):
        yield relay.fail(EXTP, "protocol_config on the first message only", f"on {message.what}, too", at=message)
    if message.what == FIRST and message.ends and (size := _body_of(relay)):
        actual = f"end_of_stream is true, and the request has a body ({size})"
        yield relay.fail(EXTP, "end_of_stream on the headers of a request without a body only", actual, at=message)


def _body_of(relay: Relay) -> str:
    """What tells that the client's request has a body; empty if nothing does."""
    if relay.opened is None:
        return ""
    length = header(relay.opened.headers, b"content-length") or b""
    arrived = next((len(attempt.request.body) for attempt in relay.attempts if attempt.request.body), 0)
    if length.isdigit() and int(length):
        return f"content-length {int(length)}"
    return f"{arrived} bytes arrived at the model server" if arrived else ""


def _ends(one: Asked, relay: Relay, ended: dict[str, Said], seen: set[str]) -> Iterator[Ruling]:
    """Each direction that was complete has its end. Without it an EPP waits for the rest for ever."""
    conversation = one.conversation
    answered_itself = any(said.what == "immediate_response" for said in conversation.said)
    if one.left_early or answered_itself or relay.opened is None or relay.aborted or one.flow.offence is not None:
        return
    served = relay.final
    modes = {REQUEST: conversation.request_mode, RESPONSE: conversation.response_mode}
    for side, mode in modes.items():
        if mode not in (DUPLEX, STREAMED) or side in ended or f"{side}_headers" not in seen:
            continue
        lane = one.flow.lane(side)
        if lane.replaced or (mode == STREAMED and _trailers(served, side)):  # which that mode may leave out
            continue
        hung = relay.expired and mode == DUPLEX and side == REQUEST
        given_up = side == REQUEST and not one.flow.answers  # on an EPP that said nothing: it failed open
        if (served is not None and not given_up) or hung:
            expected = f"end_of_stream on the last message of the {side} body, or {side}_trailers"
            actual = f"the {side} was complete, and the stream ended without either"
            last = lane.bodies[-1] if lane.bodies else lane.headers
            yield relay.fail(EXTP, expected, actual, at=last, hint="An EPP that waits for all of it waits for ever.")


def _trailers(served: Attempt | None, side: str) -> bool:
    if served is None:
        return False
    sent = served.request.trailers if side == REQUEST else served.response.trailers if served.response else ()
    return bool(sent)


def _after_the_end(one: Asked, relay: Relay, said: list[Said]) -> Iterator[Ruling]:
    """An ImmediateResponse ends the conversation: it does not come back as a response to be processed."""
    if not any(message.what == "immediate_response" for message in one.conversation.said):
        return
    decision = one.immediate
    if decision is None or decision.response is None:
        return
    code = decision.response.immediate_response.status.code
    for message in said:
        if message.seq < decision.seq or message.what != "response_headers" or message.request is None:
            continue
        fields = message.request.response_headers.headers.headers
        status = next((f.raw_value.decode("latin-1") or f.value for f in fields if f.key == ":status"), "")
        if status == str(code):
            expected = f"nothing more on the stream: the EPP ended it with an ImmediateResponse at #{decision.seq}"
            yield relay.fail(EXTP, expected, f"response_headers with its own status {status}", at=message)
