"""Judging with a memory: a conversation that was judged before, under another id, is not judged again.

Judges are pure and read order, not time. So two exchanges that differ in their names, and in nothing but their own
`x-request-id` in what was said, get the same findings. That is not taken on trust: an exchange is remembered only if
the judges say the same of it with another id in its place. The id of another exchange is never masked.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator, Sequence

from conformance.evidence.episode import Context, Episode
from conformance.judges import Role, Rules, judge
from conformance.verdict import Finding, Verdict
from ext_proc.record import Author, Entry, Event, HalfClosed, Message, StreamEnded, StreamOpened

_OWN = re.compile(rb"x-request-id[\x12\x1a]\x24([0-9a-zA-Z-]{36})")
"""A header map's entry on the wire: the value, or the raw value, is a field of 36 bytes."""

_REMEMBERED = (StreamOpened, Message, HalfClosed, StreamEnded)
"""What an exchange may consist of: waits hang on time, and the rest is seldom the same twice."""

_TELLING = (Verdict.FAIL, Verdict.WARN, Verdict.ERROR, Verdict.INCONCLUSIVE)


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
        own = _own_id(episode)
        key = self._key(episode, own) if own is not None else None
        if key is not None and key in self._known:
            self.found += 1
            return self._known[key]
        self.judged += 1
        findings = self._ask(episode)
        if key is not None and own is not None and not any(one.verdict in _TELLING for one in findings):
            self._learn(key, episode, own, findings)
        return findings

    def _ask(self, episode: Episode) -> tuple[Finding, ...]:
        return judge(episode, self._context, self._rules, roles=self._roles)

    def _key(self, episode: Episode, own: bytes) -> tuple[object, ...] | None:
        """All that is said in the exchange, without the names of this one; None if it is not to be remembered."""
        streams: dict[str, int] = {}
        parts: list[object] = []
        for entry in episode.entries:
            event = entry.event
            if not isinstance(event, _REMEMBERED):
                return None
            parts.append(type(event))
            parts.append(streams.setdefault(event.stream, len(streams)))
            if isinstance(event, Message):
                parts += (event.author, event.raw.replace(own, self._mask), event.size, event.sha256)
            elif isinstance(event, HalfClosed):
                parts.append(event.author)
            elif isinstance(event, StreamOpened):
                parts += (event.headers, event.epp)
            else:
                parts += (event.author, event.how, event.status, event.message, event.code)
                parts += (event.headers, event.trailers)
        return tuple(parts)

    def _learn(self, key: tuple[object, ...], episode: Episode, own: bytes, findings: tuple[Finding, ...]) -> None:
        masked = Episode(id=episode.id, entries=tuple(_renamed(episode.entries, own, self._mask)))
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


def _renamed(entries: Sequence[Entry], own: bytes, other: bytes) -> Iterator[Entry]:
    for entry in entries:
        event: Event = entry.event
        if isinstance(event, Message) and own in event.raw:
            event = dataclasses.replace(event, raw=event.raw.replace(own, other))
        yield Entry(entry.seq, entry.t, event)


def _said(findings: Sequence[Finding]) -> list[tuple[str, Verdict]]:
    return sorted((one.requirement, one.verdict) for one in findings)
