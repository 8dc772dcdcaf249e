"""What the engine says while it works. Terminal, report, JUnit and pytest are handlers of these events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.episode import Context, Episode
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
class ScenarioStarted(RunEvent):
    """A scenario instance begins."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFinished(RunEvent):
    """A scenario instance is judged. `episode` is None if nothing was sent."""

    version: str
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
