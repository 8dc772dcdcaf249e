"""One exchange in words: who said what, in order, decoded for people, with the message at fault marked.

A view for readers only. It limits what it shows (long bodies, long runs of chunks) and says so; the evidence is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.episode import (
    Episode,
    HarnessTrouble,
    HealthProbe,
    PoolState,
    ProcessExited,
    ProcessStarted,
    Unmet,
)
from conformance.said import Said, decode
from ext_proc import headers as wire
from ext_proc.messages import HeaderMutation, ProcessingMode
from ext_proc.record import (
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Headers,
    Malformed,
    Message,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
)

SUMMARY = 180
"""Longest summary of a line, in characters."""

BODY = 400
"""How much of a body is shown, in bytes."""

CLIENT, MODEL_SERVER, SUITE, TARGET = "client", "model server", "suite", "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that happened. `t` is milliseconds since the record began; `details` are the rest, one fact each.

    `who` is `data-plane`, `epp`, `client`, `model server`, `suite` or `target`. `count` messages were taken together.
    """

    seq: int
    t: float
    who: str
    what: str
    summary: str = ""
    details: tuple[str, ...] = ()
    marked: bool = False
    count: int = 1


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
        elif isinstance(event, ProcessStarted | ProcessExited) and first <= entry.seq:
            shown[entry.seq] = entry
    if pool_before is not None:
        shown[pool_before.seq] = pool_before
    lines = [replace(line, marked=line.seq == mark) for _, entry in sorted(shown.items()) for line in _line(entry)]
    return _shortened(_merged(lines), limit)


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
            merged[-1] = replace(last, count=last.count + 1, summary=line.summary, details=line.details)
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
            summary=_cut(printable(summary), SUMMARY),
            details=tuple(printable(detail) for detail in details),
        )


Described = tuple[str, str, str, tuple[str, ...]]


def _described(entry: Entry) -> Described | None:
    match entry.event:
        case Message() as event:
            return _message(decode(entry, event))
        case ExchangeOpened() as opened:
            modes = f"body modes: request {opened.request_body_mode}, response {opened.response_body_mode}"
            notes = tuple(f"{name}: {_json(value)}" for name, value in opened.note.items())
            summary = f"{opened.method} {opened.path} (HTTP/{opened.http})"
            return CLIENT, "HTTP request", summary, (modes, *notes, *_headers(opened.headers))
        case StreamOpened() as stream:
            return "data-plane", "opens a stream", f"on connection {stream.connection}", _headers(stream.headers)
        case Malformed() as bad:
            summary = f"{bad.reason} ({len(bad.raw)} bytes)"
            return bad.author.value, "malformed bytes", summary, (f"hex: {_hex(bad.raw)}",)
        case HalfClosed() as closed:
            return closed.author.value, "half-closes", "", ()
        case StreamEnded() as end:
            return _stream_ended(end)
        case UpstreamRequest() as request:
            summary = f"attempt {request.attempt} to {request.endpoint}, {len(request.body)} bytes of body"
            return "data-plane", "upstream request", summary, (*_headers(request.headers), *_body(request.body))
        case UpstreamResponse() as response:
            status = f"{response.status}, {len(response.body)} bytes" if response.status is not None else ""
            summary = f"{response.outcome} {status}".strip()
            details = (*_headers(response.headers), *_body(response.body))
            return MODEL_SERVER, f"answers ({response.endpoint})", summary, details
        case ClientResponse() as answer:
            cut = "" if answer.complete else f", cut short {answer.details}".rstrip()
            summary = f"{answer.status if answer.status is not None else 'none'}, {len(answer.body)} bytes{cut}"
            details = (*((f"details: {answer.details}",) if answer.details else ()), *_headers(answer.headers))
            return CLIENT, "HTTP response", summary, (*details, *_body(answer.body))
        case event:
            return _other(event)


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
            return TARGET, "process ends", f"{how}, {why}", tuple(event.output.splitlines()[-12:])
        case HealthProbe():
            status = event.serving or f"gRPC status {event.grpc_status}"
            return SUITE, "health check", f"{event.service or '(whole server)'}: {status}", ()
        case HarnessTrouble(what=what):
            return SUITE, "trouble of our own", what, ()
        case Unmet(what=what):
            return SUITE, "not met", what, ()
        case _:
            return None


def _pod_state(pod: Any) -> str:
    states = [
        *(() if pod.ready else ("not ready",)),
        *(("terminating",) if pod.terminating else ()),
        *(() if pod.selected else ("not selected",)),
    ]
    return f" ({', '.join(states)})" if states else ""


def _stream_ended(end: StreamEnded) -> Described:
    who = end.author.value if end.author else SUITE
    fields = (*_headers(end.headers), *_headers(end.trailers))
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


# -- messages ----------------------------------------------------------------------------------------------------------


def _message(said: Said) -> Described:
    who = said.author.value
    if said.problem:
        raw = said.entry.event.raw if isinstance(said.entry.event, Message) else b""
        return who, "no valid message", f"{said.size} bytes: {said.problem}", (f"hex: {_hex(raw)}",)
    if said.partial:
        return who, said.what or "message", f"{said.size} bytes, kept in part", ()
    what = said.what or ("unknown member" if said.opaque else "empty message")
    if said.request is not None:
        return who, what, *_request(said)
    return who, what, *_response(said)


def _request(said: Said) -> tuple[str, tuple[str, ...]]:
    message = said.request
    assert message is not None
    details: list[str] = []
    facts: list[str] = []
    if said.part == "headers":
        http = getattr(message, said.what or "")
        pairs = wire.pairs_of(http.headers)
        by_name = dict(pairs)
        pseudo = (b":status",) if said.side == "response" else (b":method", b":path")
        facts.append(" ".join(_text(by_name[name]) for name in pseudo if name in by_name))
        details += _headers(pairs)
        details += [f"attributes {name}: {_json(wire.plain_struct(http.attributes[name]))}" for name in http.attributes]
    elif said.part == "body":
        facts.append(f"{len(said.body)} bytes")
        details += _body(said.body)
    elif said.part == "trailers":
        details += _headers(wire.pairs_of(getattr(message, said.what or "").trailers))
        facts.append("; ".join(details[:3]))
    if said.ends and said.part != "trailers":
        facts.append("end of stream")
    spaces = message.metadata_context.filter_metadata
    metadata = [
        f"metadata {leaf}" for name in sorted(spaces) for leaf in _leaves(name, wire.plain_struct(spaces[name]))
    ]
    if said.part == "headers":
        facts += metadata
    details += metadata
    details += [f"typed metadata {name}" for name in sorted(message.metadata_context.typed_filter_metadata)]
    if message.HasField("protocol_config"):
        config, mode = message.protocol_config, ProcessingMode.BodySendMode.Name
        details.append(
            f"protocol_config: request body {mode(config.request_body_mode)}, "
            f"response body {mode(config.response_body_mode)}"
        )
    return ", ".join(fact for fact in facts if fact), tuple(details)


def _response(said: Said) -> tuple[str, tuple[str, ...]]:
    message = said.response
    assert message is not None
    facts: list[str] = []
    details: list[str] = []
    if said.what == "immediate_response":
        immediate = message.immediate_response
        facts.append(f"HTTP status {immediate.status.code}")
        if immediate.details:
            facts.append(f"details {immediate.details!r}")
        if immediate.HasField("grpc_status"):
            details.append(f"grpc_status: {immediate.grpc_status.status}")
        details += _body(immediate.body)
    if said.header_mutation is not None:
        mutations = list(_mutations(said.header_mutation))
        mutations.sort(key=lambda text: "x-gateway-" not in text)
        facts += mutations[:2]
        if len(mutations) > 2:
            facts.append(f"{len(mutations) - 2} more header mutations")
        details += mutations
    if said.common is not None:
        _common(said, facts, details)
    if message.HasField("dynamic_metadata"):
        spaces = wire.plain_struct(message.dynamic_metadata)
        metadata = [f"metadata {leaf}" for name, space in spaces.items() for leaf in _leaves(name, space)]
        facts += metadata[:2]
        details += metadata
    if message.HasField("mode_override"):
        details.append("mode_override is set")
    if message.HasField("override_message_timeout"):
        facts.append("asks for more time")
    return ", ".join(facts) or "no change", tuple(details)


def _common(said: Said, facts: list[str], details: list[str]) -> None:
    common = said.common
    assert common is not None
    if common.status:
        facts.append("CONTINUE_AND_REPLACE" if common.status == 1 else f"status {common.status}")
    if common.clear_route_cache:
        details.append("clear_route_cache")
    if not common.HasField("body_mutation"):
        return
    kind = common.body_mutation.WhichOneof("mutation")
    match kind:
        case "streamed_response":
            streamed = common.body_mutation.streamed_response
            facts.append(f"streamed body, {len(streamed.body)} bytes")
            if streamed.end_of_stream or streamed.end_of_stream_without_message:
                facts.append("end of stream")
            details += _body(streamed.body)
        case "body":
            facts.append(f"body replaced, {len(common.body_mutation.body)} bytes")
            details += _body(common.body_mutation.body)
        case "clear_body":
            facts.append("body cleared")
        case _:
            facts.append("a body mutation without content, or of an unknown kind")


_ACTIONS = {0: "sets", 1: "adds if absent", 2: "overwrites", 3: "overwrites if present"}


def _mutations(mutation: HeaderMutation) -> Iterator[str]:
    for option in mutation.set_headers:
        header = option.header
        field = "" if header.raw_value or not header.value else " (in `value`)"
        action = _ACTIONS.get(option.append_action, f"action {option.append_action}")
        yield f"{action} {header.key}: {_text(wire.value_of(header))}{field}"
    for name in mutation.remove_headers:
        yield f"removes {name}"


# -- values ------------------------------------------------------------------------------------------------------------


def _headers(pairs: Headers) -> tuple[str, ...]:
    return tuple(f"{_text(name)}: {_cut(_text(value), 300)}" for name, value in pairs)


def _body(body: bytes) -> tuple[str, ...]:
    if not body:
        return ()
    more = f" … ({len(body)} bytes)" if len(body) > BODY else ""
    return (f"body: {_text(body[:BODY])}{more}",)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _hex(data: bytes) -> str:
    return data[:64].hex(" ") + (" …" if len(data) > 64 else "")


def _leaves(path: str, value: Any) -> Iterator[str]:
    """What a struct holds, one `namespace / key: value` for each."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(f"{path} / {name}", item)
    else:
        yield f"{path}: {value if isinstance(value, str) else _json(value)}"


def _json(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def printable(text: str) -> str:
    """Control characters, which could drive a terminal, as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
