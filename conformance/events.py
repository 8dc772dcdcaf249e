"""What the engine says while it works. Terminal, report, JUnit and pytest are handlers of these events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.evidence.episode import Context, Episode
from conformance.outcome import Anomaly, RunOutcome, ScenarioResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Root of the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStarted(RunEvent):
    """The scenarios of one protocol version begin; `total` are planned."""

    version: str
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(RunEvent):
    """What is being done or waited for now, for people: starting the target, a pool change, a scrape."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFinished(RunEvent):
    """A scenario instance is judged: its result with its evidence. `episode` is None if nothing was sent."""

    result: ScenarioResult
    episode: Episode | None = None
    context: Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalySeen(RunEvent):
    """Something worth knowing that is no finding."""

    anomaly: Anomaly


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEvent):
    """Everything is over and cleaned up."""

    outcome: RunOutcome


Handler = Callable[[RunEvent], None]


class InTurn:
    """Tells a handler of one version after the other, though the next may begin before the last results of one."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._open: dict[str, list[RunEvent]] = {}
        """Versions that have begun and are not over, with what waits to be told; of the first, nothing does."""
        self._over: set[str] = set()

    def __call__(self, event: VersionStarted | ScenarioFinished) -> None:
        """Tell of it now, or when the version's turn comes. A version that is not open has no turn to wait for."""
        version = event.version if isinstance(event, VersionStarted) else event.result.version
        if isinstance(event, VersionStarted):
            self._open[version] = []
        if next(iter(self._open), version) == version or version not in self._open:
            self._handler(event)
        else:
            self._open[version].append(event)

    def end(self, version: str) -> None:
        """A version has all its results: the next one has its turn, once those before have ended too."""
        self._over.add(version)
        while self._open and next(iter(self._open)) in self._over:
            self._next()

    def end_all(self) -> None:
        """Nothing more comes of any version: tell what waits."""
        while self._open:
            self._next()

    def _next(self) -> None:
        del self._open[next(iter(self._open))]
        if self._open:
            first = next(iter(self._open))
            waiting, self._open[first] = self._open[first], []
            for event in waiting:
                self._handler(event)
