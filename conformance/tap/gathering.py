"""The record cut into exchanges: what the tap emits, gathered until a stream is over, hangs, or is given up.

Bounded in every direction: exchanges open at a time, bytes they hold, and how long nothing may happen on one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from conformance.reading.owed import owed_answer
from ext_proc.record import Entry, Message, StreamEnded, StreamOpened
from ext_proc.relay import RecordingEnded

OVERHEAD = 400
"""Bytes that an entry takes beside those of its message, about."""

Reason = Literal["ended", "silent", "cut", "idle", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The entries of one exchange, and why there are no more of them.

    `ended`: its stream did. `silent`: the EPP owes an answer for `seconds`, our own lateness not counted. `cut`: a
    limit of the recording, as `note` tells. `idle`: nothing happened for long. `stopped`: the tap was stopped. `size`
    is what they hold in memory, about.
    """

    exchange: str
    entries: tuple[Entry, ...]
    reason: Reason
    size: int = 0
    seconds: float = 0.0
    note: str = ""
    late: float = 0.0
    """Seconds that our own loop was late meanwhile, of an exchange that took longer than the EPP has for an answer."""


@dataclass(slots=True)
class _Open:
    began: float
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    latest: float = 0.0
    asked: float = -1.0  # the `latest` at which it was last asked whether an answer is owed
    owes: bool = False


class Gathering:
    """A listener of the tap's recorder. `done` gets each exchange once.

    `deadline` is how many seconds the EPP has for an answer, `patience` how many nothing may happen before an exchange
    is given up. `clock` gives seconds, `late` those in which our own loop stood still since a time: they are not the
    EPP's silence.
    """

    def __init__(
        self,
        done: Callable[[Gathered], None],
        clock: Callable[[], float],
        *,
        deadline: float = 10.0,
        patience: float = 300.0,
        max_exchanges: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
        late: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        self.bytes = 0
        """What the open exchanges hold, about."""
        self._done = done
        self._clock = clock
        self._deadline = deadline
        self._patience = patience
        self._max_exchanges = max_exchanges
        self._max_bytes = max_bytes
        self._late = late
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def has_room(self) -> bool:
        """Whether another exchange may be recorded."""
        return len(self._open) < self._max_exchanges and self.bytes < self._max_bytes

    def __call__(self, entry: Entry) -> None:
        """Take an entry of the record."""
        event = entry.event
        name = event.exchange
        if name is None:
            return
        found = self._open.get(name)
        if found is None:
            if not isinstance(event, StreamOpened):
                return  # what comes after an exchange was given up
            found = self._open[name] = _Open(began=self._clock())
        found.latest = self._clock()
        if isinstance(event, RecordingEnded):
            self._close(name, "cut", note=event.reason)
            return
        size = OVERHEAD
        if isinstance(event, Message):
            size += len(event.raw)
        found.entries.append(entry)
        found.size += size
        self.bytes += size
        if isinstance(event, StreamEnded):
            self._close(name, "ended")
        elif self.bytes > self._max_bytes:
            self._close(name, "cut", note=f"all open exchanges together held more than {self._max_bytes} bytes")

    def look(self) -> None:
        """Find the exchanges that wait too long. To be called now and then."""
        now = self._clock()
        for name, found in list(self._open.items()):
            quiet = now - found.latest
            if quiet < min(self._deadline, self._patience):
                continue
            waited = quiet - self._late(found.latest)
            if waited >= self._deadline and _owes(found):
                self._close(name, "silent", seconds=waited)
            elif quiet >= self._patience:
                self._close(name, "idle", seconds=waited)

    def stop(self) -> None:
        """Give up whatever is open."""
        for name in list(self._open):
            self._close(name, "stopped")

    def _close(self, name: str, reason: Reason, *, seconds: float = 0.0, note: str = "") -> None:
        found = self._open.pop(name)
        self.bytes -= found.size
        long = self._clock() - found.began >= self._deadline  # else it is not asked
        self._done(
            Gathered(
                exchange=name,
                entries=tuple(found.entries),
                reason=reason,
                size=found.size,
                seconds=seconds,
                note=note,
                late=self._late(found.began) if long else 0.0,
            )
        )


def _owes(found: _Open) -> bool:
    """Whether the EPP owes an answer. The record is read once for each silence, however often it is asked."""
    if found.asked != found.latest:
        found.asked, found.owes = found.latest, owed_answer(found.entries) is not None
    return found.owes
