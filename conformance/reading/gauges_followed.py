"""Whether the load that pods' metrics show moves the picks of an endpoint picker, as far as an episode tells.

A scenario that `needs` engines shows one pod busy and another idle, and then the other way round. What the busy pod
gets of the picks in both halves says whether its gauges count for the target. Few picks of many can't be chance; a
target that sends everything to one pod, whatever it shows, can't be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from conformance.evidence.episode import Episode, GaugesShown, PoolState
from conformance.outcome import GaugeFollowed
from conformance.scenario.schema import Scenario
from ext_proc.record import UpstreamRequest

Gauge = Literal["queue", "kv", "ranks"]

ENOUGH = 8
"""Picks of a half, at least: of fewer nothing can be told."""

FEW, MANY = 1 / 8, 1 / 4
"""Up to this share of the picks for the busy pod they have moved away; from the other on they have not. Picks made
evenly at random come below the first once in 100,000 times."""

FULL = 0.9
"""A KV cache in use to this share is that of a busy pod."""


@dataclass(slots=True)
class _Half:
    """The picks while one pod was busy, by pod."""

    picks: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> int:
        return sum(self.picks.values())


def gauges_followed(scenario: Scenario, episode: Episode) -> tuple[GaugeFollowed, ...]:
    """What an episode of a scenario that `needs` engines tells, one for each gauge; () for other scenarios."""
    engine = next((pod.engine for pod in scenario.pool.pods if pod.engine), None)
    if engine is None or "engines" not in scenario.needs:
        return ()
    found = _halves(episode)
    return tuple(_judged(engine, gauge, halves) for gauge, halves in found.items())


def _halves(episode: Episode) -> dict[Gauge, dict[str, _Half]]:
    """By gauge, and by the one pod whose gauge shows it busy, the picks meanwhile."""
    pods: dict[str, str] = {}
    busy: dict[str, Gauge] = {}
    found: dict[Gauge, dict[str, _Half]] = {}
    for entry in episode.entries:
        match entry.event:
            case PoolState(pods=facts):
                pods |= {endpoint: fact.name for fact in facts for endpoint in fact.endpoints}
                for gone in busy.keys() - {fact.name for fact in facts}:  # a pod of the scenario before
                    del busy[gone]
            case GaugesShown(pod=pod, values=values):
                busy.pop(pod, None)
                if (gauge := _busy(values)) is not None:
                    busy[pod] = gauge
            case UpstreamRequest(endpoint=endpoint, attempt=1) if len(busy) == 1:
                [(pod, gauge)] = busy.items()
                half = found.setdefault(gauge, {}).setdefault(pod, _Half())
                picked = pods.get(endpoint, endpoint)
                half.picks[picked] = half.picks.get(picked, 0) + 1
            case _:
                pass
    return found


def _busy(values: Mapping[str, object]) -> Gauge | None:
    """Which gauge shows a pod busy; None if it is idle."""
    queue, kv = values.get("queue"), values.get("kv")
    if values.get("course") == "at-odds":
        return "ranks"
    if isinstance(queue, int) and queue > 0:
        return "queue"
    return "kv" if isinstance(kv, float) and kv >= FULL else None


def _judged(engine: str, gauge: Gauge, halves: Mapping[str, _Half]) -> GaugeFollowed:
    busy = {pod: half.picks.get(pod, 0) for pod, half in halves.items()}
    picks = sum(half.all for half in halves.values())
    followed, why = _told(halves, busy, sum(busy.values()), picks)
    return GaugeFollowed(engine=engine, gauge=gauge, followed=followed, busy=sum(busy.values()), picks=picks, why=why)


def _told(
    halves: Mapping[str, _Half], busy: Mapping[str, int], all_busy: int, picks: int
) -> tuple[Literal["yes", "no", "unclear"], str]:
    if len(halves) < 2 or any(half.all < ENOUGH for half in halves.values()):
        return "unclear", "too few requests reached a pod"
    if all_busy > (1 - FEW) * picks:
        return "unclear", "picks moved to the busy pod"
    idle = {pod: sum(other.picks.get(pod, 0) for name, other in halves.items() if name != pod) for pod in halves}
    if any(busy[pod] + idle[pod] < FEW * half.all for pod, half in halves.items()):
        return "unclear", "one pod got nearly every request"
    if all_busy <= FEW * picks:
        return "yes", ""
    if all_busy >= MANY * picks and all(busy[pod] >= FEW * half.all for pod, half in halves.items()):
        return "no", ""
    return "unclear", "the busy pod got fewer picks, and not few"
