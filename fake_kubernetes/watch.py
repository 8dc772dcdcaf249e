"""Watches: what an open watch is sent, and the knowledge of how far each one is.

A watch walks the store's log from its start. It sends what its selection sees of each change (an object that enters
the selection is ADDED, one that leaves it DELETED), and its position is the resource version up to which the kernel
has taken everything. `Watches.delivered` waits on those positions: it is how the suite knows that a change has
reached an EPP without asking the EPP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Literal

from fake_kubernetes.errors import ExpiredError
from fake_kubernetes.faults import Faults
from fake_kubernetes.kinds import Kind
from fake_kubernetes.log import Delivery, WatchRecord
from fake_kubernetes.media import Form
from fake_kubernetes.selectors import ObjectSelection
from fake_kubernetes.store import Change, Store, encode
from fake_kubernetes.views import render, render_bookmark

__all__ = ["OpenWatch", "WatchOptions", "Watches"]

Send = Callable[[bytes], Awaitable[None]]
Ending = Literal["timeout", "dropped", "expired", "disconnected"]

PIECE = 4096
"""Bytes that are sent at once, as a real server's buffer holds: an event ends anywhere in one, and so may a character
begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a watch starts and goes on.

    `start` is the resource version after which changes are sent; None means: first the present objects as ADDED, then
    all changes. `mark_initial_end` sends the bookmark that tells a WatchList client that it has the whole list.
    `bookmarks` allows the periodic ones. `timeout` is seconds until the watch is ended politely.
    """

    start: int | None
    mark_initial_end: bool = False
    bookmarks: bool = False
    timeout: float
    form: Form = Form.PLAIN
    include_object: str = "Metadata"


class _Signal:
    """Wakes everyone who waits at the moment; there is nothing to forget, so that no wake-up is lost or kept."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def notify(self) -> None:
        if self._future is not None:
            self._future.set_result(None)
            self._future = None

    async def wait(self) -> None:
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._future)


class Watches:
    """The open watches of one emulator."""

    def __init__(self, store: Store, *, bookmark_interval: float, on_delivery: Callable[[Delivery], None]) -> None:
        self.store = store
        self.faults = Faults()
        self.bookmark_interval = bookmark_interval
        self.on_delivery = on_delivery
        self.open: set[OpenWatch] = set()
        self.signal = _Signal()
        self._progress = _Signal()
        self._listed: dict[Kind, int] = {}

    def drop(self, ending: Ending = "dropped") -> int:
        """Cut the connection of every open watch, or end it as at its `timeout`; return how many there were."""
        for watch in self.open:
            watch.stopped = ending
        self.signal.notify()
        return len(self.open)

    def bookmark(self) -> None:
        """Have a bookmark sent to every open watch that allows them, before any further change."""
        for watch in self.open:
            watch.bookmark_due = watch.record.position >= 0
        self.signal.notify()

    def opened(self, watch: OpenWatch) -> None:
        """Note that a watch is open; from here on it counts, and no longer the list that its client began with."""
        self.open.add(watch)
        self._listed.pop(watch.record.kind, None)

    def listed(self, kind: Kind, resource_version: int) -> None:
        """Note that a list of `kind` at this resource version was answered."""
        self._listed[kind] = max(resource_version, self._listed.get(kind, 0))
        self.progressed()

    def progressed(self) -> None:
        """Look again at who waits in `delivered`."""
        self._progress.notify()

    async def delivered(self, resource_version: int, timeout: float, kinds: Collection[Kind] | None) -> bool:
        """See `Emulator.delivered`."""
        if kinds is None:
            kinds = {change.kind for change in self._log_at(resource_version)}
        try:
            async with asyncio.timeout(timeout):
                while not self._is_delivered(resource_version, kinds):
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    def _log_at(self, resource_version: int) -> list[Change]:
        try:
            changes = self.store.since(resource_version - 1)
        except ExpiredError:
            return []
        return [change for change in changes if change.resource_version == resource_version]

    def _is_delivered(self, resource_version: int, kinds: Collection[Kind]) -> bool:
        positions: dict[Kind, int] = {}
        for watch in self.open:
            kind, position = watch.record.kind, watch.record.position
            positions[kind] = min(position, positions.get(kind, position))
        if not kinds:  # the change is forgotten, or numbers nothing: all that is watched must be past it
            return bool(positions) and min(positions.values()) >= resource_version
        return all(positions.get(kind, self._listed.get(kind, -1)) >= resource_version for kind in kinds)


class OpenWatch:
    """One open watch of one client."""

    def __init__(
        self,
        watches: Watches,
        record: WatchRecord,
        selection: ObjectSelection,
        options: WatchOptions,
        *,
        user_agent: str,
    ) -> None:
        self.record = record
        self.stopped: Ending | None = None
        self.bookmark_due = False
        self._watches = watches
        self._selection = selection
        self._options = options
        self._user_agent = user_agent
        if options.start is not None:
            record.position = options.start

    async def run(self, send: Send) -> None:
        """Send events until the time is over or the history gone; raise ConnectionAbortedError to have it cut."""
        self._watches.opened(self)
        try:
            ending: Ending = "disconnected"
            ending = await self._follow(send)
        finally:
            self.record.ended = ending
            self._watches.open.discard(self)
            self._watches.progressed()
        if ending == "dropped":
            raise ConnectionAbortedError("the watch was dropped by a fault")

    async def _follow(self, send: Send) -> Ending:
        now = asyncio.get_running_loop().time
        deadline = now() + self._options.timeout
        next_bookmark = now() + self._watches.bookmark_interval if self._options.bookmarks else deadline
        while now() < deadline:
            if self.stopped:
                return self.stopped
            if self._watches.faults.paused:
                await self._wake(deadline - now())
                continue
            try:
                position, events = self._initial() if self.record.position < 0 else self._changes()
            except ExpiredError as error:
                await self._send(send, [_Event("ERROR", 0, error.body())])
                return "expired"
            if self._options.bookmarks and self.bookmark_due:
                self.bookmark_due = False
                events.insert(0, self._bookmark(self.record.position))
            elif not events and self._options.bookmarks and now() >= next_bookmark:
                events = [self._bookmark(position)]
            if events:
                if self._watches.faults.delay:
                    await asyncio.sleep(self._watches.faults.delay)
                await self._send(send, events)
                next_bookmark = now() + self._watches.bookmark_interval if self._options.bookmarks else deadline
            if position != self.record.position:
                self.record.position = position
                self._watches.progressed()
            elif not events:  # else something may have come while they were sent
                await self._wake(min(deadline, next_bookmark) - now())
        return "timeout"

    async def _wake(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._watches.signal.wait()
        except TimeoutError:
            pass

    async def _send(self, send: Send, events: list[_Event]) -> None:
        lines = b"".join(b'{"type":"%b","object":%b}\n' % (event.type.encode(), event.object) for event in events)
        for at in range(0, len(lines), PIECE):
            await send(lines[at : at + PIECE])
        t = time.monotonic()
        for event in events:
            delivery = Delivery(
                t=t,
                type=event.type,
                resource_version=event.resource_version,
                kind=self.record.kind,
                namespace=event.namespace,
                name=event.name,
                user_agent=self._user_agent,
            )
            self.record.events.append(delivery)
            self._watches.on_delivery(delivery)

    def _initial(self) -> tuple[int, list[_Event]]:
        position = self._watches.store.resource_version
        events = [
            self._event("ADDED", change, change.encoded, change.resource_version)
            for change in self._watches.store.list(self.record.kind, self._selection.namespace)
            if self._selection.matches(change.object)
        ]
        if self._options.mark_initial_end:
            events.append(self._bookmark(position, initial_events_end=True))
        return position, events

    def _changes(self) -> tuple[int, list[_Event]]:
        changes = self._watches.store.since(self.record.position)
        position = changes[-1].resource_version if changes else self.record.position
        seen = (self._seen(change) for change in changes if change.kind == self.record.kind)
        return position, [event for event in seen if event is not None]

    def _seen(self, change: Change) -> _Event | None:
        before = change.previous is not None and self._selection.matches(change.previous)
        after = change.type != "DELETED" and self._selection.matches(change.object)
        if after:
            return self._event("MODIFIED" if before else "ADDED", change, change.encoded, change.resource_version)
        if not before:
            return None
        encoded = change.encoded
        if change.type != "DELETED" and change.previous is not None:
            # It left the selection: the client gets the state it knew, at the version of the change.
            metadata = change.previous["metadata"] | {"resourceVersion": str(change.resource_version)}
            encoded = encode(change.previous | {"metadata": metadata})
        return self._event("DELETED", change, encoded, change.resource_version)

    def _event(self, event_type: str, change: Change, encoded: bytes, resource_version: int) -> _Event:
        options = self._options
        rendered = render(self.record.kind, encoded, options.form, include_object=options.include_object)
        return _Event(event_type, resource_version, rendered, change.namespace, change.name)

    def _bookmark(self, position: int, *, initial_events_end: bool = False) -> _Event:
        rendered = render_bookmark(
            self.record.kind, position, self._options.form, initial_events_end=initial_events_end
        )
        return _Event("BOOKMARK", position, rendered)


@dataclass(frozen=True, slots=True)
class _Event:
    type: str
    resource_version: int
    object: bytes
    namespace: str = ""
    name: str = ""
