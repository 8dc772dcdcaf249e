"""Whether the pods of an episode showed the load that its scenario gives them: judges of shedding read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from conformance.evidence.episode import Episode, GaugesShown
from conformance.report.verify.steps import short
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import Step


def problems(pool: Pool, done: Sequence[Step], episode: Episode, before: int) -> Iterator[str]:
    """What speaks against the gauges that the log has before entry `before`, when these steps were `done`.

    What a pod showed at first may be what it showed in the scenario before; the log says only what changes.
    """
    first = {pod.name: pod.shown for pod in pool.pods}
    found = {event.pod: dict(event.values) for entry, event in episode.of(GaugesShown) if entry.seq < before}
    for pod in _after(pool, done).pods:
        shown = found.get(pod.name, first.get(pod.name, {}))
        if (plain := {name: _plain(value) for name, value in shown.items()}) != pod.shown:
            yield f"pod {pod.name} showed {short(plain)} in it, in its scenario {short(pod.shown)}"


def _after(pool: Pool, done: Sequence[Step]) -> Pool:
    for step in done:
        pool = pool if step.pool is None else pool.after(step.pool)
        loads = step.gauges or {}
        pods = (pod.changed(loads[pod.name]) if pod.name in loads else pod for pod in pool.pods)
        pool = pool.model_copy(update={"pods": tuple[Pod, ...](pods)})
    return pool


def _plain(value: Any) -> Any:
    """Lists of adapters are tuples in a scenario."""
    return tuple(value) if isinstance(value, list) else value
