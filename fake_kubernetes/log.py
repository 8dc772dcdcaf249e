"""What was asked of the emulator, and what watchers were sent: the facts that settling and explanations rest on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fake_kubernetes.kinds import Kind

__all__ = ["Delivery", "RequestRecord", "WatchRecord"]

KEPT_REQUESTS = 20_000
KEPT_DELIVERIES = 5_000  # of one watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One watch event that the kernel took for a client. `t` is time.monotonic() seconds.

    `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; the last two have no name. `resource_version` is that of the
    change, or of the bookmark; for the objects a watch starts with it is each object's own; for ERROR it is 0.
    """

    t: float
    type: str
    resource_version: int
    kind: Kind
    namespace: str = ""
    name: str = ""
    user_agent: str = ""


@dataclass(slots=True, kw_only=True)
class WatchRecord:
    """The life of one watch. `position` is the resource version up to which all was sent; -1 before the first."""

    kind: Kind
    namespace: str | None
    position: int = -1
    events: deque[Delivery] = field(default_factory=lambda: deque(maxlen=KEPT_DELIVERIES))
    ended: Literal["", "timeout", "dropped", "expired", "disconnected"] = ""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One HTTP request. `t` is time.monotonic() seconds at arrival; `status` is None until it is answered."""

    number: int
    t: float = field(default_factory=time.monotonic)
    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    accept: str
    status: int | None = None
    message: str = ""
    """Why it was refused; empty when it was not."""
    watch: WatchRecord | None = None

    def __str__(self) -> str:
        """Return one line for a report: `GET /api/v1/pods?watch=true -> 200, 3 events`."""
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        line = f"{self.method} {self.path}{'?' + query if query else ''} -> {self.status or 'not answered'}"
        if self.watch is not None:
            sent = len(self.watch.events)
            line += f", {sent} event{'' if sent == 1 else 's'}, {self.watch.ended or 'open'}"
        return line + (f" ({self.message})" if self.message else "")
