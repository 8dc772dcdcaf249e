"""Whether the EPPs that a gateway asked said what its scenario has them say, no more, no less and no sooner.

What is due follows from what the gateway told them: the scripted EPP's own player plays the scenario's script once more
on the messages of the log. A gateway may end a stream early, open several, or none: then less is due.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from conformance.planning.epp_scripts import LATE, in_turn, played, scripts_of
from conformance.report.verify.hidden import Hidden
from conformance.report.verify.hints import ANY
from conformance.report.verify.steps import short
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import Request
from ext_proc.http2.transport import Transport
from ext_proc.inbox import Received
from ext_proc.messages import ProcessingResponse
from ext_proc.record import (
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    HalfClosed,
    Headers,
    Malformed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
)
from ext_proc.server import ServedStream
from fake_epp import Script
from fake_epp.player import Player

_EARLY = 0.05
"""Seconds by which a pause may seem shorter than it was."""

_SECOND = 1_000_000_000

_UNKNOWN = re.compile(rf"(?:\\000){{1,{len(ANY)}}}{NOBODY}(?::\d*)?")
"""An endpoint that only the run knew, in a message as text."""

Heard: TypeAlias = Message | Malformed | HalfClosed
"""What comes from a gateway."""


def problems(
    request: Request,
    repeat: int,
    entries: Sequence[Entry],
    endpoints: Mapping[str, tuple[str, ...]],
    namespace: str,
    hidden: Hidden,
    *,
    ended_early: bool,
) -> Iterator[str]:
    """What speaks against the EPPs in `entries` having played the scripts of `request`, of which this is the so many'th
    `repeat`. References stand for `endpoints`, destinations are said in `namespace`.

    `ended_early`: something is in the log that ends a scenario, be it the suite's own trouble.
    """
    scripts = scripts_of(in_turn(request, repeat))
    over = next((one.seq for one in entries if isinstance(one.event, ClientResponse | ClientAborted)), None)
    for opened in [one.event for one in entries if isinstance(one.event, StreamOpened)]:
        own = [one for one in entries if getattr(one.event, "stream", None) == opened.stream]
        said = scripts.get(opened.epp)
        if said is None:
            yield f"a stream was taken by an EPP {short(opened.epp)}, which no gateway has"
            continue
        stream = _Stream(own, entries[-1].t)
        if stream.first is None or stream.kept_in_part:
            continue  # an exchange is told by its first message
        script = played(said, endpoints, namespace)
        found = _compared(stream, script, endpoints, hidden, whole=not ended_early)
        # Once the client has its answer, nothing is scripted for a request any more.
        late = over is not None and stream.first.seq > over
        if found and not (late and not _compared(stream, Script(), endpoints, hidden, whole=not ended_early)):
            yield f"the {opened.epp} EPP {found}"


class _Stream:
    """What is in the log of one stream: what the EPP heard and said of it, until when it was open."""

    def __init__(self, entries: Sequence[Entry], last: int) -> None:
        self.heard = [one for one in entries if _is_of(one.event, Author.DATA_PLANE) and _is_heard(one.event)]
        self.said = [one for one in entries if _is_of(one.event, Author.EPP)]
        self.first = next((one for one in self.heard[:1] if isinstance(one.event, Message)), None)
        self.kept_in_part = any(isinstance(one.event, Message) and one.event.truncated for one in entries)
        self.until = next((one.t for one in entries if isinstance(one.event, StreamEnded)), last)


def _is_of(event: Event, author: Author) -> bool:
    return getattr(event, "author", None) is author


def _is_heard(event: Event) -> bool:
    return isinstance(event, Message | Malformed | HalfClosed)


def _compared(
    stream: _Stream, script: Script, endpoints: Mapping[str, tuple[str, ...]], hidden: Hidden, *, whole: bool
) -> str:
    """What is wrong with what the EPP said on a stream; empty if nothing is. `whole`: nothing may be missing of it."""
    due = _due(stream.heard, script)
    for number, entry in enumerate(stream.said):
        if number >= len(due):
            return f"said {_words(entry.event)}, by its scenario nothing more"
        one = due[number]
        if not _alike(entry.event, one.event, endpoints, hidden):
            return f"said {_words(entry.event)}, by its scenario {_words(one.event)}"
        if entry.seq < one.after:
            return f"said {_words(entry.event)} before it was told what that is the answer to"
        if entry.t < one.t - _EARLY * _SECOND:
            return f"said {_words(entry.event)} {(one.t - entry.t) / _SECOND:.1f} s before its scenario does"
    missing = next(iter(due[len(stream.said) :]), None)
    if whole and missing is not None and missing.t + LATE * _SECOND < stream.until:
        return f"did not say {_words(missing.event)}, as by its scenario"
    return ""


def _alike(found: Event, due: Event, endpoints: Mapping[str, tuple[str, ...]], hidden: Hidden) -> bool:
    if isinstance(found, StreamEnded) and isinstance(due, StreamEnded):
        return (found.how, found.status, found.code) == (due.how, due.status, due.code)
    if not isinstance(found, Message) or not isinstance(due, Message):
        return False
    if found.raw == due.raw or hidden.in_body(due.raw, found.raw):
        return True
    try:
        has, wanted = ProcessingResponse.FromString(found.raw), ProcessingResponse.FromString(due.raw)
    except DecodeError:
        return False
    return bool(has == wanted) or _but_for_the_unknown(has, wanted, endpoints)


def _but_for_the_unknown(
    has: ProcessingResponse, wanted: ProcessingResponse, endpoints: Mapping[str, tuple[str, ...]]
) -> bool:
    """Whether a message is what it must be, but for endpoints that only the run knew: none of a pool."""
    texts = _UNKNOWN.split(text_format.MessageToString(wanted))
    match = re.fullmatch(r"([\w.:\[\]]+)".join(map(re.escape, texts)), text_format.MessageToString(has))
    known = {one for every in endpoints.values() for one in every}
    return match is not None and len(texts) > 1 and known.isdisjoint(match.groups())


def _words(event: Event) -> str:
    if isinstance(event, StreamEnded):
        code = event.status if event.how == "status" else event.code
        return f"the end of the stream ({event.how} {code})"
    if not isinstance(event, Message):
        return "what is no message"
    try:
        message = ProcessingResponse.FromString(event.raw)
    except DecodeError:
        return f"what is no message: {short(event.raw)}"
    return short(text_format.MessageToString(message, as_one_line=True))


# -- the script, once more ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Due:
    """What an EPP does: after which entry of the log, and at which of its times, if it is never late."""

    event: Event
    after: int
    t: int


def _due(heard: Sequence[Entry], script: Script) -> list[_Due]:
    """All that the EPP does on a stream on which it has `heard` this, but for what nothing has caused yet."""
    stream = _Replayed(heard)
    play = stream.play(script)
    try:
        while True:
            play.send(None)  # nothing that it waits for takes time
    except StopIteration:
        return stream.due


class _Nowhere:
    """The connection of a stream that no one reads."""

    number = 0

    def send_headers(self, stream: int, headers: Headers, *, end: bool = False) -> None:
        """Nothing."""

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Nothing."""

    def reset(self, stream: int, code: int) -> None:
        """Nothing."""

    async def drain(self, stream: int) -> None:
        """All has left."""


class _Replayed(ServedStream):
    """A stream on which comes what came in the log, at its time."""

    def __init__(self, heard: Sequence[Entry]) -> None:
        self.due: list[_Due] = []
        self._coming = iter(heard)
        self._last: Heard | None = None
        self._seq, self._now = 0, 0
        recorder = Recorder(lambda: self._now)
        super().__init__(cast(Transport, _Nowhere()), 0, (), ("", recorder), end=False)
        recorder.listen(lambda entry: self.due.append(_Due(entry.event, self._seq, self._now)))

    async def play(self, script: Script) -> None:
        """Play a script to the end of what came, whose first is a message."""
        first = self._next()
        assert isinstance(first, Message), "by it the exchange is known"
        await Player(self, script, sleep=self._sleep).play(first.raw)
        if isinstance(self._last, HalfClosed):
            self.end()  # as a server does when its handler returns

    def __aiter__(self) -> AsyncIterator[Received]:
        return self._rest()

    async def _rest(self) -> AsyncIterator[Received]:
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Heard | None:
        entry = next(self._coming, None)
        if entry is None:
            return None
        self._seq, self._now = entry.seq, max(self._now, entry.t)
        self._last = cast(Heard, entry.event)
        return self._last

    async def _sleep(self, seconds: float) -> None:
        self._now += round(seconds * _SECOND)
