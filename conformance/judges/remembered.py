"""Judging with a memory: a conversation that was judged before, under another id, is not judged again.

Judges are pure. They read order, and of time only whether a message came late after an answer (`LATE`). So two
exchanges get the same findings that differ in their names only, and in what no judge reads of what was said:

- their own `x-request-id`, wherever it stands. The id of another exchange is never masked;
- the order in which a message has the entries of a map, which is none;
- the digest of a message that was not kept whole;
- in headers of the data plane, when a response was made and how long it took (`VARYING`), unless an answer of the EPP
  names that header.

That is not taken on trust: an exchange is remembered only if the judges say the same of it with other values in these
places.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import uuid
from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from conformance.evidence.episode import Context, Episode
from conformance.judges import Role, Rules, judge
from conformance.judges.ext_proc.answering import LATE
from conformance.verdict import NEGATIVE, Finding, Verdict
from ext_proc.messages import HeaderMap, ProcessingRequest, ProcessingResponse
from ext_proc.record import Author, Entry, Event, HalfClosed, Message, StreamEnded, StreamOpened

_OWN = re.compile(rb"x-request-id[\x12\x1a]\x24([0-9a-zA-Z-]{36})")
"""A header map's entry on the wire: the value, or the raw value, is a field of 36 bytes."""

VARYING = {
    "x-envoy-upstream-service-time": (re.compile(rb"[0-9]{1,9}"), b"000000000"),
    "date": (
        re.compile(rb"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"),
        b"Thu, 01 Jan 1970 00:00:00 GMT",
    ),
}
"""Headers whose values no judge reads, if they have this form, and a value of the same form in their place."""

_SHORT = 4096
"""Bytes of a message that is taken apart: longer ones, that is bodies, are compared as they are."""

_REMEMBERED = (StreamOpened, Message, HalfClosed, StreamEnded)
"""What an exchange may consist of: waits hang on time, and the rest is seldom the same twice."""

_TELLING = NEGATIVE


class RememberedVerdicts:
    """Judges episodes of one exchange each by `context` and `rules`, for `roles`. `limit`: bytes that it remembers;
    beyond, everything is forgotten and learned again.

    What was found wrong is judged each time, so that each finding names the exchange it is about.
    """

    def __init__(
        self, context: Context, rules: Rules, roles: Sequence[Role] = (), *, limit: int = 32 * 1024 * 1024
    ) -> None:
        self.found = 0
        """Exchanges whose findings were remembered."""
        self.judged = 0
        """Exchanges that were judged."""
        self._context = context
        self._rules = rules
        self._roles = tuple(roles)
        self._limit = limit
        self._size = 0
        self._mask = str(uuid.uuid4()).encode()  # said by no side, as it is told to none
        self._known: dict[tuple[object, ...], tuple[Finding, ...]] = {}

    def judge(self, episode: Episode) -> tuple[Finding, ...]:
        """The findings on `episode`: what the judges say of it."""
        own = _own_id(episode) or self._mask
        key = self._key(episode, own)
        if key is not None and key in self._known:
            self.found += 1
            return self._known[key]
        self.judged += 1
        findings = self._ask(episode)
        if key is not None and not any(one.verdict in _TELLING for one in findings):
            self._learn(key, episode, own, findings)
        return findings

    def _ask(self, episode: Episode) -> tuple[Finding, ...]:
        return judge(episode, self._context, self._rules, roles=self._roles)

    def _key(self, episode: Episode, own: bytes) -> tuple[object, ...] | None:
        """All that is said in the exchange, without the names of this one; None if it is not to be remembered."""
        streams: dict[str, int] = {}
        parts: list[object] = []
        answered = episode.entries[0].t if episode.entries else 0
        varying = _varying(episode)
        for entry in episode.entries:
            event = entry.event
            if not isinstance(event, _REMEMBERED):
                return None
            parts.append(type(event))
            parts.append(streams.setdefault(event.stream, len(streams)))
            if isinstance(event, Message):
                said = _alike(event.author, event.raw.replace(own, self._mask), varying)
                late = entry.t - answered > LATE
                parts += (event.author, said, len(event.raw), event.size, event.truncated, late)
                answered = entry.t if event.author is Author.EPP else answered
            elif isinstance(event, HalfClosed):
                parts.append(event.author)
            elif isinstance(event, StreamOpened):
                parts += (event.headers, event.epp)
            else:
                parts += (event.author, event.how, event.status, event.message, event.code)
                parts += (event.headers, event.trailers)
        return tuple(parts)

    def _learn(self, key: tuple[object, ...], episode: Episode, own: bytes, findings: tuple[Finding, ...]) -> None:
        varying = _varying(episode)
        masked = Episode(id=episode.id, entries=tuple(_masked(episode.entries, own, self._mask, varying)))
        if _said(self._ask(masked)) != _said(findings):
            return
        size = sum(len(part) for part in key if isinstance(part, bytes)) + 200 * len(key)
        if self._size + size > self._limit:
            self._known.clear()
            self._size = 0
        if size <= self._limit:
            self._size += size
            self._known[key] = findings


def _own_id(episode: Episode) -> bytes | None:
    """The id that the data plane gave the request; None if it has none of the usual form."""
    for entry in episode.entries:
        if isinstance(entry.event, Message):
            found = _OWN.search(entry.event.raw) if entry.event.author is Author.DATA_PLANE else None
            return found[1] if found is not None else None
    return None


def _varying(episode: Episode) -> frozenset[str]:
    """The headers of which no judge reads the value: none that an answer names."""
    answers = (entry.event for entry in episode.entries if isinstance(entry.event, Message))
    said = b"\n".join(one.raw for one in answers if one.author is Author.EPP).lower()
    return frozenset(name for name in VARYING if name.encode() not in said)


@functools.lru_cache(maxsize=1024)
def _alike(author: Author, raw: bytes, varying: frozenset[str]) -> bytes:
    """A message in the form that all have which say the same to judges; as it is, if it is none, or a long one."""
    if len(raw) > _SHORT:
        return raw
    try:
        if author is Author.EPP:
            return ProcessingResponse.FromString(raw).SerializeToString(deterministic=True)
        message = ProcessingRequest.FromString(raw)
    except DecodeError:
        return raw
    kind = message.WhichOneof("request")
    if kind in ("request_headers", "response_headers"):
        _mask(getattr(message, kind).headers, varying)
    return message.SerializeToString(deterministic=True)


def _mask(headers: HeaderMap, varying: frozenset[str]) -> None:
    for header in headers.headers:
        name = header.key.lower()
        if name in varying:
            form, other = VARYING[name]
            if form.fullmatch(header.raw_value):
                header.raw_value = other[: len(header.raw_value)]
            if form.fullmatch(header.value.encode()):
                header.value = other[: len(header.value)].decode()


def _masked(entries: Sequence[Entry], own: bytes, other: bytes, varying: frozenset[str]) -> Iterator[Entry]:
    for entry in entries:
        event: Event = entry.event
        if isinstance(event, Message):
            raw = _alike(event.author, event.raw.replace(own, other), varying)
            event = dataclasses.replace(event, raw=raw, sha256=event.sha256 and "0" * 64)
        yield Entry(entry.seq, entry.t, event)


def _said(findings: Sequence[Finding]) -> list[tuple[str, Verdict]]:
    return sorted((one.requirement, one.verdict) for one in findings)
