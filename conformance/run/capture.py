"""Which entries of a runner's log belong to an episode: its own exchanges, and what concerns all while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from conformance.evidence.episode import Episode
from ext_proc.record import Entry, Event, Message, Recorder, shortened

LIMIT = 64 * 1024 * 1024
"""Bytes of messages kept whole in one episode; later messages keep their beginning, length and digest."""

UNNAMED = "epp-"
"""What the names begin with that the scripted EPP gives to streams of which it can't tell the request."""

KEPT = 512
"""Bytes kept of a message beyond the limit."""


class Capture:
    """Collects an episode. `before` are entries that were true already: the pool, the load, the process.

    With `strays` it has the exchanges of others, too: those that no one gave a name. While it is entered, it is one of
    those that are `under_way`.
    """

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        before: Iterable[Entry],
        *,
        strays: bool = False,
        under_way: set[Capture] | None = None,
    ) -> None:
        self._recorder = recorder
        self._under_way = set[Capture]() if under_way is None else under_way
        self._prefix = f"{name}."
        self._name = name
        self._strays = strays
        self._entries = list(before)
        self._bytes = 0
        self._count = 0
        self._stop = recorder.listen(self._take)

    def __enter__(self) -> Self:
        self._under_way.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._under_way.discard(self)
        self._stop()

    def exchange(self) -> str:
        """The id of the episode's next exchange."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def remark(self, event: Event) -> None:
        """Add something that concerns this episode and no other that runs meanwhile."""
        self._entries.append(self._recorder.stamp(event))

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries of the log that belong to this episode under other names."""
        self._entries = sorted([*self._entries, *entries], key=lambda entry: entry.seq)

    def episode(self) -> Episode:
        """What was collected until now."""
        return Episode(id=self._name, entries=tuple(self._entries))

    def _take(self, entry: Entry) -> None:
        event = entry.event
        wanted = (self._prefix, UNNAMED) if self._strays else self._prefix
        if not (event.exchange is None or event.exchange.startswith(wanted)):
            return
        if isinstance(event, Message):
            self._bytes += len(event.raw)
            if self._bytes > LIMIT and len(event.raw) > KEPT:
                entry = Entry(entry.seq, entry.t, shortened(event, KEPT))
        self._entries.append(entry)
