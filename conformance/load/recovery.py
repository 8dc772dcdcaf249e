"""What came of each trouble: exchanges that were lost to it, violations during and after it, and when it was over.

An exchange belongs to a trouble if it ended after that had begun, and before the next one began. The target has
recovered with the first conformant exchange, in the order in which they began, after which none failed and none was
lost.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from conformance.load.trouble import Kind

_CLOSE, _CLOSER = 0.02, 0.05
"""Conformant exchanges are kept in mind that are so many seconds apart, or by this share of the time that has passed:
one that fails later, but began before, moves the time of recovery by no more."""

_RECENT = 8
"""Troubles, the latest, that a connection may have been lost to of which it is said only now, or of which another
process may still say that an exchange failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleBegan:
    """Trouble begins at `at`, a monotonic time. `limit`: seconds in which it must be recovered from."""

    number: int
    kind: Kind
    at: float
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleEnded:
    """It is over; a target that was killed is started again now."""

    number: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIsBack:
    """A target that was killed takes requests again, at `address`."""

    number: int
    at: float
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStaysAway:
    """A target that was killed can't be started again; `why` in words."""

    number: int
    why: str


TroubleEvent: TypeAlias = TroubleBegan | TroubleEnded | TargetIsBack | TargetStaysAway


@dataclass(slots=True, kw_only=True)
class Aftermath:
    """What came of one trouble. Times are monotonic. `lost`: exchanges that were lost to it; `during`
    and `after`: exchanges that broke a requirement and had begun before it ended, and after."""

    number: int
    kind: Kind
    begun: float
    limit: float | None = None
    ended: float | None = None
    back: float | None = None
    """When a target that was killed took requests again."""
    closed: float | None = None
    """When another trouble began after its end: from then on exchanges belong to that."""
    problem: str = ""
    """Why the target could not be started again."""
    lost: int = 0
    during: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    last_bad: float = -math.inf
    """When the exchange began that failed, or was lost, and began last."""
    good: list[tuple[float, float]] = field(default_factory=list)
    """When exchanges began, and were decided, that began after that and after the end, and were conformant."""

    @property
    def recovered(self) -> float | None:
        """Seconds from its end until the target had recovered; None: it has not."""
        return max(0.0, self.good[0][1] - self.ended) if self.good and self.ended is not None else None

    @property
    def untried(self) -> bool:
        """Whether it is over, and no exchange that began then tells what had become of the target."""
        return self.ended is not None and not self.good and self.last_bad < self.ended and not self.problem

    def exceeded(self, now: float) -> bool:
        """Whether it was not recovered from within the limit, as far as is known at `now`."""
        if self.limit is None or self.ended is None:
            return False
        if self.problem:
            return True
        if self.last_bad < self.ended:
            return False  # nothing went wrong that began after it
        seen = self.closed if self.closed is not None else now
        taken = self.recovered if self.recovered is not None else seen - self.ended
        return taken > self.limit

    def unsettled(self, now: float) -> bool:
        """Whether it has a limit, and at `now` nothing tells yet whether it is recovered from within that."""
        return self.limit is not None and self.recovered is None and not self.problem and not self.exceeded(now)

    def count(self, began: float, decided: float, over: float, broken: Collection[str], times: int = 1) -> None:
        """Count an exchange that broke these requirements, or none; with -1, take it back."""
        if over < self.begun:
            return
        if broken:
            found = self.during if self.ended is None or began < self.ended else self.after
            for one in broken:
                found[one] += times
            self._bad(began)
        elif times > 0 and self.ended is not None and began >= self.ended and began > self.last_bad:
            self._good(began, decided, self.ended)

    def lose(self, began: float, over: float) -> bool:
        """Count an exchange whose connection broke at `over`, if that was due to a killed target."""
        if self.kind != "kill-target" or over < self.begun or (self.back is not None and over > self.back):
            return False
        self.lost += 1
        self._bad(began)
        return True

    def include(self, parts: Iterable[Aftermath]) -> None:
        """Make the counts those of all `parts`, of the same trouble in several processes."""
        self.lost, self.during, self.after, self.last_bad = 0, Counter(), Counter(), -math.inf
        good = self.good[:1]  # what was the first is the first until one is known to have failed later
        for part in parts:
            self.lost += part.lost
            self.during += part.during
            self.after += part.after
            self.last_bad = max(self.last_bad, part.last_bad)
            good += part.good
        self.good = sorted({one for one in good if one[0] > self.last_bad})

    def plain(self, start: float) -> dict[str, Any]:
        """As JSON, in seconds after `start`, the beginning of the load."""
        return {
            "kind": self.kind,
            "second": round(self.begun - start, 3),
            "seconds": round(self.ended - self.begun, 3) if self.ended is not None else None,
            "recoveredAfter": round(self.recovered, 3) if self.recovered is not None else None,
            "untried": self.untried,
            "limit": self.limit,
            "lost": self.lost,
            "violations": {"during": +self.during, "after": +self.after},
            "problem": self.problem or None,
        }

    def _good(self, began: float, decided: float, ended: float) -> None:
        """Keep the exchange in mind. The latest always is, until the next if that is close to the one before it."""
        good = self.good
        if good and began <= good[-1][0]:
            return
        if len(good) > 1 and began < good[-2][0] + max(_CLOSE, _CLOSER * (good[-2][0] - ended)):
            del good[-1]
        good.append((began, decided))

    def _bad(self, began: float) -> None:
        self.last_bad = max(self.last_bad, began)
        self.good = [one for one in self.good if one[0] > self.last_bad]


class Troubles:
    """All trouble of a load: which goes on, and what came of each. `heed` gets what happens."""

    def __init__(self) -> None:
        self.all: list[Aftermath] = []
        self.now: set[Kind] = set()
        """What goes on."""
        self.killed: int | None = None
        """The number of the trouble that killed the target, until it takes requests again."""
        self.gone = False
        """Whether it can't be started again."""
        self.open: list[Aftermath] = []
        """Those that exchanges may belong to."""
        self._closed: deque[Aftermath] = deque()
        self._changed: dict[int, Aftermath] = {}
        self._parts: dict[int, dict[int, Aftermath]] = {}

    def heed(self, event: TroubleEvent) -> None:
        """Something happened."""
        match event:
            case TroubleBegan(number=number, kind=kind, at=at, limit=limit):
                self._begin(Aftermath(number=number, kind=kind, begun=at, limit=limit))
            case TroubleEnded(number=number, at=at):
                self.all[number].ended = at
                self.now = {one.kind for one in self.open if one.ended is None}
            case TargetIsBack(number=number, at=at):
                self.all[number].back = at
                self.killed = None if self.killed == number else self.killed
            case TargetStaysAway(number=number, why=why):
                self.all[number].problem = why
                self.gone = True

    def count(self, began: float, decided: float, over: float, broken: Collection[str], times: int = 1) -> None:
        """Count an exchange for those that it belongs to (see `Aftermath.count`)."""
        for one in self.open:
            one.count(began, decided, over, broken, times)
            self._changed[one.number] = one

    def lose(self, began: float, over: float) -> bool:
        """Count an exchange whose connection broke, if that was due to trouble."""
        for one in self.all[: -_RECENT - 1 : -1]:
            if one.lose(began, over):
                self._changed[one.number] = one
                return True
        return False

    def changed(self) -> Sequence[Aftermath]:
        """Those that exchanges were counted for since this was asked last: hours of trouble are not told each time."""
        changed, self._changed = self._changed, {}
        return tuple(changed.values())

    def include(self, process: int, parts: Iterable[Aftermath]) -> None:
        """Take the counts of another process, by its number, for those of it that changed."""
        for part in parts:
            everywhere = self._parts.setdefault(part.number, {})
            everywhere[process] = part
            self.all[part.number].include(everywhere.values())

    @property
    def away(self) -> bool:
        """Whether the target was killed, and takes no requests yet."""
        return self.killed is not None

    @property
    def lost(self) -> int:
        """Exchanges that were lost to all of it."""
        return sum(one.lost for one in self.all)

    def _begin(self, one: Aftermath) -> None:
        assert one.number == len(self.all), "they are numbered as they begin"
        for other in self.open:
            if other.ended is not None and (other.kind != "kill-target" or other.back is not None):
                other.closed = one.begun
                self._closed.append(other)
        self.open = [*(other for other in self.open if other.closed is None), one]
        while self._closed and self._closed[0].number < one.number - _RECENT:
            other = self._closed.popleft()
            for each in (other, *self._parts.get(other.number, {}).values()):
                del each.good[1:]
        self.all.append(one)
        self.now = self.now | {one.kind}
        self.killed = one.number if one.kind == "kill-target" else self.killed
