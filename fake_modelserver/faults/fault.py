"""A fault as a value, and the faults that a pod has at a time."""

from __future__ import annotations

import asyncio
import fnmatch
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fake_modelserver.faults.kinds import KINDS, FaultType, Kind


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: its `type`, and which requests it befalls.

    - `path`: a pattern for paths, as `/v1/*`. Default: every path for what befalls the line or the answer, the page of
      metrics for what befalls the page, the API for what befalls a stream.
    - `after`: so many requests of that path go well first; `count`: then it befalls so many (None: all).
    - `toxicity`: the share of those that it befalls, by chance; `duration`: milliseconds until it ends (None: none).
    - `attributes`: those of its type (`KINDS`), the rest by default. `name` tells it from the others of a pod.

    Raises `ValueError` if a value makes no sense.
    """

    type: FaultType
    path: str | None = None
    after: int = 0
    count: int | None = None
    toxicity: float = 1.0
    duration: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if self.type not in set(FaultType):
            raise ValueError(f"type is {self.type!r}; known: {', '.join(FaultType)}")
        object.__setattr__(self, "type", FaultType(self.type))
        object.__setattr__(self, "name", self.name or self.type.value)
        if self.path is not None and not self.path.startswith(("/", "*")):
            raise ValueError(f"path is {self.path!r}; it begins with / or *")
        if self.after < 0 or (self.count is not None and self.count < 1):
            raise ValueError(f"after is {self.after!r} and count {self.count!r}; they are whole numbers from 0 and 1")
        if not 0 <= self.toxicity <= 1:
            raise ValueError(f"toxicity is {self.toxicity!r}; it is a share from 0 to 1")
        if self.duration is not None and not self.duration > 0:
            raise ValueError(f"duration is {self.duration!r}; it is a number of milliseconds above 0")
        if self.type is FaultType.DOWN and (self.path or self.after or self.count is not None or self.toxicity != 1):
            raise ValueError("the fault down is of the whole pod: it has no path, after, count or toxicity")
        known = self.kind.attributes
        if unknown := sorted(set(self.attributes) - set(known)):
            listed = ", ".join(known) or "none"
            raise ValueError(f"unknown attribute {unknown[0]!r} of {self.type}; known: {listed}")
        checked = {
            name: attribute.check(name, self.attributes.get(name, attribute.default))
            for name, attribute in known.items()
        }
        object.__setattr__(self, "attributes", MappingProxyType(checked))

    def __hash__(self) -> int:
        return hash((self.type, self.name, self.path))

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    @property
    def kind(self) -> Kind:
        """What the fault does."""
        return KINDS[self.type]


@dataclass(slots=True, kw_only=True)
class Active:
    """A fault that a pod has. `since` is when it came (monotonic, seconds); `kept` is what it keeps of that instant.

    `gone` is set when it goes, for the responses that it holds.
    """

    fault: Fault
    since: float
    seen: int = 0
    befell: int = 0
    kept: Any = None
    refreshed: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Faults:
    """The faults of one pod, by name. The later of two that befall one answer is applied to what the first left."""

    def __init__(self, page_path: str, *, seed: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.random = random.Random(seed)
        self._page_path = page_path
        self._clock = clock
        self._active: dict[str, Active] = {}

    def __iter__(self) -> Iterator[Active]:
        return iter(tuple(self._active.values()))

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, name: str) -> bool:
        return name in self._active

    def add(self, fault: Fault) -> Active:
        """Let `fault` come, in the place of one of the same name."""
        now = self._clock()
        self.remove(fault.name)
        active = self._active[fault.name] = Active(fault=fault, since=now, refreshed=now)
        return active

    def remove(self, name: str) -> Fault | None:
        """Let the fault of that name go; it, or None if there is none."""
        active = self._active.pop(name, None)
        if active is None:
            return None
        active.gone.set()
        return active.fault

    def clear(self) -> None:
        """Let all go."""
        for name in tuple(self._active):
            self.remove(name)

    def meet(self, path: str) -> list[Active]:
        """The faults that befall the request for `path` that has just come, which counts for them."""
        now = self._clock()
        found = []
        for active in self:
            fault = active.fault
            if fault.duration is not None and now - active.since >= fault.duration / 1000:
                self.remove(fault.name)
                continue
            if fault.kind.stage == "pod" or not self._matches(fault, path):
                continue
            active.seen += 1
            if active.seen <= fault.after or (fault.count is not None and active.befell >= fault.count):
                continue
            if fault.toxicity < 1 and self.random.random() >= fault.toxicity:
                continue
            active.befell += 1
            found.append(active)
        return found

    def _matches(self, fault: Fault, path: str) -> bool:
        if fault.path is not None:
            return fnmatch.fnmatchcase(path, fault.path)
        match fault.kind.stage:
            case "page":
                return path == self._page_path
            case "stream":
                return path.startswith("/v1/")
        return True
