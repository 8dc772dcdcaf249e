"""Whether the pods of an episode showed the load that its scenario gives them: judges of shedding read it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.evidence.episode import Episode, GaugesShown
from conformance.report.verify.steps import short
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import Step


def problems(
    pool: Pool, steps: Sequence[Step], episode: Episode, begun: Sequence[tuple[str, int, int]]
) -> Iterator[str]:
    """What speaks against the gauges in the log when each exchange began: its name, step and first entry in `begun`.

    What a pod showed at first may be what it showed in the scenario before; the log says only what changes.
    """
    pools = list(itertools.accumulate(steps, _after, initial=pool))
    shown = {pod.name: pod.shown for pod in pool.pods}
    events = deque((entry.seq, event) for entry, event in episode.of(GaugesShown))
    for name, step, first in begun:
        while events and events[0][0] < first:
            event = events.popleft()[1]
            shown[event.pod] = {gauge: _plain(value) for gauge, value in event.values.items()}
        for pod in pools[step].pods:
            if shown.get(pod.name) != pod.shown:
                found = short(shown.get(pod.name))
                yield f"{name}: pod {pod.name} showed {found} in it, in its scenario {short(pod.shown)}"


def _after(pool: Pool, step: Step) -> Pool:
    pool = pool if step.pool is None else pool.after(step.pool)
    loads = step.gauges or {}
    pods = (pod.changed(loads[pod.name]) if pod.name in loads else pod for pod in pool.pods)
    return pool.model_copy(update={"pods": tuple[Pod, ...](pods)})


def _plain(value: Any) -> Any:
    """Lists of adapters are tuples in a scenario."""
    return tuple(value) if isinstance(value, list) else value
