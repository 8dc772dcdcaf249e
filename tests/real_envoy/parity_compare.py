"""What an exchange looked like from outside, in a form in which the fake's and the real Envoy's can be equal.

The normalisation is `messages_of`, `request_of` and `response_of`, and nothing else:

- `x-request-id` (unless the client chose it), `x-envoy-upstream-service-time` and `date` become placeholders;
- `metadata_context` and `attributes` are compared as maps, whatever their order;
- pieces of a large body sent at once are compared put together, as their borders are those of socket reads;
- blanks around the values of the client's response, which are no part of them, do not count;
- headers of the model server's request and of the client's response are compared as sorted lists.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parity_model_server import Received

from ext_proc.headers import pairs_of, plain_struct
from ext_proc.messages import ProcessingMode, ProcessingRequest
from ext_proc.record import Author, Entry, HalfClosed, Message, StreamEnded, StreamOpened

_CHANGING = {b"x-envoy-upstream-service-time": b"<ms>", b"x-forwarded-for": b"<our address>"}
_OF_THE_WIRE = frozenset({b"date", b"server", b"transfer-encoding", b"connection"})
_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Observation:
    """One exchange through one data plane."""

    messages: tuple[str, ...]
    """The data plane's messages."""
    head: tuple[tuple[bytes, bytes], ...]
    """Head of the ext_proc stream."""
    ending: tuple[str, ...]
    """How the stream ended, as the EPP saw it."""
    upstream: tuple[object, ...]
    """The attempts that reached a model server, in order."""
    client: tuple[object, ...]
    """Status, headers, body, trailers, and whether it was complete."""


def differences(fake: Observation, real: Observation) -> dict[str, str]:
    """Where the two differ: the field's name and both contents, for a reader."""
    found = {}
    for field in dataclasses.fields(Observation):
        ours, theirs = getattr(fake, field.name), getattr(real, field.name)
        if ours != theirs:
            found[field.name] = f"{field.name} of the fake:\n{_shown(ours)}\n{field.name} of Envoy:\n{_shown(theirs)}"
    return found


def messages_of(entries: Iterable[Entry], *, merged: bool = False) -> tuple[str, ...]:
    """The data plane's messages, as text; with `merged`, neighbouring bodies of one direction as one."""
    lines: list[tuple[str, bytes, bool, str]] = []
    for entry in entries:
        event = entry.event
        if not isinstance(event, Message) or event.author is not Author.DATA_PLANE:
            continue
        message = ProcessingRequest.FromString(event.raw)
        kind = message.WhichOneof("request") or "nothing"
        body, end, rest = b"", False, ""
        match kind:
            case "request_headers" | "response_headers":
                part = getattr(message, kind)
                end, rest = part.end_of_stream, _headers(pairs_of(part.headers))
                if any(header.value for header in part.headers.headers):
                    rest += " [in value]"
            case "request_body" | "response_body":
                part = getattr(message, kind)
                body, end = part.body, part.end_of_stream
            case "request_trailers" | "response_trailers":
                rest = _headers(pairs_of(getattr(message, kind).trailers))
        rest += _common(message)
        if merged and kind.endswith("body") and lines and lines[-1][0] == kind:
            _, before, _, rest = lines.pop()
            body = before + body
        lines.append((kind, body, end, rest))
    return tuple(f"{kind} {_short(body)} end={end}{rest}" for kind, body, end, rest in lines)


def _common(message: ProcessingRequest) -> str:
    """What every message may carry."""
    found = ""
    if message.HasField("metadata_context"):
        forwarded = message.metadata_context.filter_metadata
        found += f" metadata={ {name: _sorted(plain_struct(forwarded[name])) for name in sorted(forwarded)} }"
    for name in sorted(message.attributes):
        found += f" attributes={name}:{_sorted(plain_struct(message.attributes[name]))}"
    if message.HasField("protocol_config"):
        config = message.protocol_config
        modes = [
            ProcessingMode.BodySendMode.Name(mode) for mode in (config.request_body_mode, config.response_body_mode)
        ]
        found += f" config={modes}{config.send_body_without_waiting_for_header_response}"
    return found + (" observability" if message.observability_mode else "")


def stream_of(entries: Sequence[Entry]) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[str, ...]]:
    """Head and ending of the ext_proc stream."""
    head: tuple[tuple[bytes, bytes], ...] = ()
    ending: list[str] = []
    for entry in entries:
        match entry.event:
            case StreamOpened(headers=headers):
                head += headers
            case HalfClosed(author=Author.DATA_PLANE):
                ending.append("half-closed by the data plane")
            case StreamEnded(author=author, how=how, status=status, code=code):
                ending.append(f"{how} by {author}, status {status}, code {code}")
    return tuple(_plain(head)), tuple(ending)


def request_of(got: Received) -> tuple[object, ...]:
    """A model server's view."""
    headers = [pair for pair in _plain(got.headers) if pair[0] != b"x-envoy-expected-rq-timeout-ms"]
    body = _short(bytes(got.body))
    return (got.endpoint, got.method, got.target, sorted(headers), body, sorted(got.trailers), got.complete)


def response_of(
    status: int | None,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    trailers: Iterable[tuple[bytes, bytes]],
    complete: bool,
) -> tuple[object, ...]:
    """The client's view."""
    plain = [(name, value.strip(b" \t")) for name, value in _plain(headers)]
    kept = [pair for pair in plain if pair[0] not in _OF_THE_WIRE and pair != (b"content-length", b"0")]
    return (status, sorted(kept), _short(body), sorted(trailers), complete)


def _plain(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    out = []
    for key, value in headers:
        name = key.lower()
        generated = name == b"x-request-id" and _UUID.fullmatch(value)
        out.append((name, b"<uuid>" if generated else _CHANGING.get(name, value)))
    return out


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    return "".join(f"\n    {name.decode()}: {value!r}" for name, value in _plain(pairs)) + "\n   "


def _short(body: bytes) -> str:
    if len(body) <= 200:
        return repr(body)
    import hashlib

    return f"<{len(body)} bytes {hashlib.sha256(body).hexdigest()[:12]}>"


def _sorted(value: object) -> object:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "\n".join(f"  {item}" for item in value) or "  (none)"
    return f"  {value!r}"
