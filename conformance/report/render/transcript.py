"""One exchange in words: who said what, in order, decoded for people, with the message at fault marked.

A view for readers only. It limits what it shows (long bodies, long runs of chunks) and says so; the evidence is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.evidence.episode import (
    Episode,
    EppConduct,
    HarnessTrouble,
    HealthProbe,
    PodConduct,
    PoolState,
    ProcessExited,
    ProcessStarted,
    StartAttempt,
    Unmet,
    UnreadConnection,
)
from conformance.evidence.model_server import LoadPhase, MetricsPage
from conformance.printable import plural, printable
from conformance.reading.conversation import conversations
from conformance.reading.crash import cause_of
from conformance.reading.decoded_message import decode
from conformance.reading.destination import Destination
from conformance.reading.endpoints import canonical, parse_list
from conformance.reading.stream_state import follow
from conformance.report.render import server_events
from conformance.report.render.messages import (
    Described,
    body_lines,
    cut,
    header_lines,
    hex_of,
    in_words,
    json_of,
)
from ext_proc.protocol import DESTINATION_NAMESPACE
from ext_proc.record import (
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Malformed,
    Message,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
    body_length,
)

SUMMARY = 180
"""Longest summary of a line, in characters."""

RAW = 512
"""Bytes of a message that are shown raw."""

CLIENT, MODEL_SERVER, SUITE, TARGET = "client", "model server", "suite", "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that happened. `t` is milliseconds since the record began; `details` are the rest, one fact each.

    `who` is `data-plane`, `epp`, `client`, `model server`, `suite` or `target`. `count` messages were taken together.
    `raw` is the hex of a message's bytes, as far as it is shown; of several messages, of the last.
    """

    seq: int
    t: float
    who: str
    what: str
    summary: str = ""
    details: tuple[str, ...] = ()
    marked: bool = False
    count: int = 1
    raw: str = ""


def transcript(
    episode: Episode, exchange: str | None = None, mark: int | None = None, *, limit: int = 60
) -> tuple[Line, ...]:
    """The lines of `exchange`, with the pool it found and what befell the target meanwhile.

    Without an exchange it is that of the entry `mark`, or the last one before it, or the first. `mark` is the `seq` of
    the entry to mark. Of more than `limit` lines the middle ones are left out, never the marked one.
    """
    name = exchange if exchange in episode.exchanges else _exchange_of(episode, mark)
    entries = episode.exchanges.get(name, ()) if name is not None else ()
    shown = {entry.seq: entry for entry in entries}
    first, last = (entries[0].seq, entries[-1].seq) if entries else (0, 0)
    pool_before: Entry | None = None
    for entry in episode.entries:
        event = entry.event
        if entry.seq == mark or (isinstance(event, HarnessTrouble | Unmet) and event.exchange is None):
            shown[entry.seq] = entry
        elif isinstance(event, PoolState) and event.phase != "delivered":
            if entry.seq < first or not entries:
                pool_before = entry
            elif entry.seq < last:
                shown[entry.seq] = entry
        elif isinstance(event, ProcessStarted | ProcessExited):
            if first <= entry.seq:
                shown[entry.seq] = entry
        elif isinstance(event, MetricsPage | LoadPhase) or (
            isinstance(event, PodConduct | EppConduct) and entry.seq < last
        ):
            shown[entry.seq] = entry
    if pool_before is not None:
        shown[pool_before.seq] = pool_before
    lines = [replace(line, marked=line.seq == mark) for _, entry in sorted(shown.items()) for line in _line(entry)]
    lines = _with_own_choices(lines, entries)
    return _shortened(_merged(lines), limit)


def _with_own_choices(lines: list[Line], entries: Sequence[Entry]) -> list[Line]:
    """`lines`, where an attempt went to an endpoint that no answer of the EPP names with the reason."""
    if not any(isinstance(entry.event, Message) and entry.event.author is Author.EPP for entry in entries):
        return lines
    named = {canonical(one) for one in _named(entries)}
    astray = {
        entry.seq: entry.event.endpoint
        for entry in entries
        if isinstance(entry.event, UpstreamRequest) and canonical(entry.event.endpoint) not in named
    }
    why = "none was taken from the EPP's answers" if named else "the EPP named none"
    return [
        replace(line, summary=f"{line.summary} (the data plane's own choice: {why})") if line.seq in astray else line
        for line in lines
    ]


def _named(entries: Sequence[Entry]) -> Iterator[str]:
    """Every endpoint that an answer of the EPP names, in the header or in metadata."""
    for conversation in conversations(Episode(id="", entries=tuple(entries))):
        found = Destination(conversation=conversation, stream=follow(conversation), namespace=DESTINATION_NAMESPACE)
        settings = (one.value for one in (*found.settings, *found.late_settings))
        for value in (*settings, *(one.value for one in found.metadata_entries)):
            yield from parse_list(value).endpoints if isinstance(value, str) else ()


def _exchange_of(episode: Episode, mark: int | None) -> str | None:
    name = next(iter(episode.exchanges), None)
    for entry in episode.entries:
        if mark is None or entry.seq > mark:
            break
        name = entry.event.exchange or name
    return name


def _merged(lines: list[Line]) -> list[Line]:
    """Runs of body chunks by one author as one line."""
    merged: list[Line] = []
    for line in lines:
        last = merged[-1] if merged else None
        body = line.what.endswith("_body") and not line.marked
        if last and body and not last.marked and (last.who, last.what) == (line.who, line.what):
            merged[-1] = replace(line, seq=last.seq, t=last.t, count=last.count + 1)
        else:
            merged.append(line)
    return [
        replace(line, summary=f"×{line.count}, last: {line.summary}") if line.count > 1 else line for line in merged
    ]


def _shortened(lines: list[Line], limit: int) -> tuple[Line, ...]:
    if len(lines) <= limit:
        return tuple(lines)
    keep = set(range(min(4, limit // 3)))
    middle = next((index for index, line in enumerate(lines) if line.marked), 0)
    start = max(0, min(middle - (limit - len(keep)) * 2 // 3, len(lines) - (limit - len(keep))))
    keep |= set(range(start, start + limit - len(keep)))
    shown: list[Line] = []
    skipped = 0
    for index, line in enumerate(lines):
        if index in keep:
            shown.append(line)
            continue
        skipped += 1
        if index + 1 in keep or index + 1 == len(lines):
            shown.append(Line(seq=line.seq, t=line.t, who="", what="…", summary=f"{skipped} more, not shown"))
            skipped = 0
    return tuple(shown)


# -- events ------------------------------------------------------------------------------------------------------------


def _line(entry: Entry) -> Iterator[Line]:
    found = _described(entry)
    if found is not None:
        who, what, summary, details = found
        yield Line(
            seq=entry.seq,
            t=round(entry.t / 1e6, 1),
            who=who,
            what=what,
            summary=cut(printable(summary), SUMMARY),
            details=tuple(printable(detail) for detail in details),
            raw=hex_of(entry.event.raw, RAW) if isinstance(entry.event, Message | Malformed) else "",
        )


def _described(entry: Entry) -> Described | None:
    match entry.event:
        case Message() as event:
            return in_words(decode(entry, event))
        case ExchangeOpened() as opened:
            modes = f"body modes: request {opened.request_body_mode}, response {opened.response_body_mode}"
            known = (modes,) if opened.request_body_mode else ()
            notes = tuple(f"{name}: {json_of(value)}" for name, value in opened.note.items())
            summary = f"{opened.method} {opened.path} (HTTP/{opened.http})"
            return CLIENT, "HTTP request", summary, (*known, *notes, *header_lines(opened.headers))
        case StreamOpened() as stream:
            return "data-plane", "opens a stream", f"on connection {stream.connection}", header_lines(stream.headers)
        case Malformed() as bad:
            summary = f"{bad.reason} ({plural(len(bad.raw), 'byte')})"
            return bad.author.value, "malformed bytes", summary, (f"hex: {hex_of(bad.raw)}",)
        case HalfClosed() as closed:
            return closed.author.value, "half-closes", "", ()
        case StreamEnded() as end:
            return _stream_ended(end)
        case UpstreamRequest() as request:
            summary = f"attempt {request.attempt} to {request.endpoint}, {plural(body_length(request), 'byte')} of body"
            return (
                "data-plane",
                "upstream request",
                summary,
                (*header_lines(request.headers), *body_lines(request.body)),
            )
        case UpstreamResponse() as response:
            status = (
                f"{response.status}, {plural(body_length(response), 'byte')}" if response.status is not None else ""
            )
            summary = f"{response.outcome} {status}".strip()
            details = (*header_lines(response.headers), *body_lines(response.body))
            return MODEL_SERVER, f"answers ({response.endpoint})", summary, details
        case ClientResponse() as answer:
            cut = "" if answer.complete else f", cut short {answer.details}".rstrip()
            why = f" ({answer.details})" if answer.complete and answer.details not in ("", "via_upstream") else ""
            status = str(answer.status) if answer.status is not None else "none"
            summary = f"{status}, {plural(body_length(answer), 'byte')}{cut}{why}"
            details = (*((f"details: {answer.details}",) if answer.details else ()), *header_lines(answer.headers))
            return CLIENT, "HTTP response", summary, (*details, *body_lines(answer.body))
        case event:
            return _other(event)


_CONDUCT = {
    "serves": "serves",
    "refuses": "refuses connections",
    "resets": "resets connections with a request",
    "503": "answers 503",
}


def _other(event: Event) -> Described | None:
    match event:
        case ClientAborted():
            return CLIENT, "goes away", f"at {event.point}", ()
        case Wait(what=what, outcome=outcome, seconds=seconds):
            return SUITE, "waits", f"{what}: {outcome} after {seconds:g} s", ()
        case PoolState():
            pods = tuple(f"{pod.name}: {', '.join(pod.endpoints)}{_pod_state(pod)}" for pod in event.pods)
            eligible = sum(pod.eligible for pod in event.pods)
            summary = f"{eligible} of {len(event.pods)} eligible ({event.phase}): {'; '.join(pods[:6])}"
            return SUITE, "pool", summary, pods if len(pods) > 3 else ()
        case ProcessStarted():
            return TARGET, "process starts", f"pid {event.pid}", (" ".join(event.command),) if event.command else ()
        case ProcessExited():
            why = "as asked" if event.asked else "by itself"
            how = f"signal {-event.code}" if event.code < 0 else f"exit code {event.code}"
            return TARGET, "process ends", f"{how}, {why}", _last_words(event.output)
        case PodConduct(pod=pod, conduct=conduct):
            return SUITE, "pod", f"{pod} {_CONDUCT[conduct]}", ()
        case EppConduct(epp=epp, up=up):
            return SUITE, "scripted EPP", f"the {epp} one {'listens' if up else 'does not listen'}", ()
        case HealthProbe():
            status = event.serving or f"gRPC status {event.grpc_status}"
            return SUITE, "health check", f"{event.service or '(whole server)'}: {status}", ()
        case StartAttempt():
            how = "it starts" if event.started else "it does not start"
            details = (*event.configuration.splitlines(), *_last_words(event.output))
            return SUITE, "starts a copy", how, details
        case UnreadConnection(stalled=stalled):
            return (
                SUITE,
                "reads nothing",
                f"of a connection, which {'is' if stalled else 'was not seen to be'} stalled",
                (),
            )
        case HarnessTrouble(what=what):
            return SUITE, "trouble of our own", what, ()
        case Unmet(what=what):
            return SUITE, "not met", what, ()
        case _:
            return server_events.described(event)


def _last_words(output: str) -> tuple[str, ...]:
    """The end of what a process printed; or what it died of, and the beginning of a longer stack behind that: there
    most languages name the place at fault."""
    lines = [line.replace("\t", "    ") for line in output.splitlines()]
    last, cause = lines[-6:], cause_of(lines)
    if not cause or cause[0] in last:
        return tuple(last)
    at = max(number for number, line in enumerate(lines) if line == cause[-1])
    stack = [line for line in lines[at + 1 :] if line]
    return (*cause, *stack[:6], *(("…",) if len(stack) > 6 else ()))


def _pod_state(pod: Any) -> str:
    states = [
        *(() if pod.ready else ("not ready",)),
        *(("terminating",) if pod.terminating else ()),
        *(() if pod.selected else ("not selected",)),
    ]
    return f" ({', '.join(states)})" if states else ""


def _stream_ended(end: StreamEnded) -> Described:
    who = end.author.value if end.author else SUITE
    fields = (*header_lines(end.headers), *header_lines(end.trailers))
    match end.how:
        case "status":
            return who, "ends the stream", f"gRPC status {end.status} {end.message}".rstrip(), fields
        case "reset":
            return who, "resets the stream", f"HTTP/2 error code {end.code}", fields
        case "refused":
            return who, "refuses the stream", end.message, fields
        case "lost":
            return who, "connection lost", end.message, fields
        case _:
            return who, "answers no gRPC", end.message, fields
