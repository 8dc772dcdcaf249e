"""Accusations that come too early: the target followed a change where it was polled, and not yet where it was judged.

A target may be several workers that each read the pool for themselves, behind one port or a balancer. Connections, or
the streams of one, lead to any of them, and nothing tells which were polled. All must have followed when the
convergence time is over. What an earlier state of the pool explains until then is no finding: the scenario is run again
with all that time given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from conformance.evidence.episode import Context, Episode, PodFact, PoolState
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import ACCUSING, Finding, Verdict
from ext_proc.record import Entry, Recorder


class Early:
    """Remembers the pool of one target. `left`: in so many seconds it must have followed the last change anywhere."""

    def __init__(self, recorder: Recorder, left: Callable[[], float]) -> None:
        self._recorder = recorder
        self._left = left
        self.again: set[str] = set()
        """Work that was accused too early: when it is run again, the target gets all its time."""
        self._states: list[tuple[Entry, PoolState, int]] = []
        """Each with the time of the log at which it must have been followed anywhere."""
        recorder.listen(self._hear)

    def begun(self, pods: tuple[PodFact, ...]) -> None:
        """The target was started and answers; another worker of it may have read no pool yet."""
        states = PoolState(phase="asked", pods=()), *(PoolState(phase=one, pods=pods) for one in ("asked", "effective"))
        for state in states:
            self._hear(self._recorder.stamp(state))

    def accused(self, work: str, episode: Episode, context: Context, findings: Sequence[Finding]) -> bool:
        """Whether `work` is accused too early in `findings`: once at most, as it is to be run again then."""
        found = work not in self.again and self._explains(episode, context, findings)
        if found:
            self.again.add(work)
        return found

    def _explains(self, episode: Episode, context: Context, findings: Sequence[Finding]) -> bool:
        """Whether an earlier pool explains what an exchange is accused of, and no `fail` stays then."""
        if not _accused(findings):
            return False
        states, early = self._late(episode)
        accused = {one for one in _accused(findings) if one[1] in early}
        if not accused:
            return False
        rest = [entry for entry in episode.entries if not isinstance(entry.event, PoolState)]
        late = dataclasses.replace(episode, entries=tuple(sorted([*states, *rest], key=lambda entry: entry.seq)))
        expected = {name: one for name, one in context.expectations.items() if name not in early}
        stay = judge(late, dataclasses.replace(context, expectations=expected), Catalogue.load())
        return not any(one.verdict is Verdict.FAIL for one in stay) and not accused <= _accused(stay)

    def _late(self, episode: Episode) -> tuple[list[Entry], set[str]]:
        """The states of the pool, each effective when it was so anywhere; and the exchanges begun before that."""
        begun: dict[str, int] = {}
        for entry in episode.entries:
            if entry.event.exchange is not None:
                begun.setdefault(entry.event.exchange, entry.seq)
        states: list[Entry] = []
        early: set[str] = set()
        changes = [entry for entry, state, _ in self._states if state.phase == "asked"]
        for entry, state, due in self._states:
            if state.phase != "effective":
                states.append(entry)
                continue
            after = [one for one in changes if one.seq > entry.seq][:1]
            later = (one.seq for one in (*after, *episode.entries) if one.seq > entry.seq and one.t >= due)
            changed, anywhere = after[0].seq if after else math.inf, min(later, default=math.inf)
            early |= {name for name, seq in begun.items() if entry.seq < seq < min(anywhere, changed)}
            if anywhere <= changed and anywhere < math.inf:  # else the next change came before
                states.append(dataclasses.replace(entry, seq=int(anywhere)))
        return states, early

    def _hear(self, entry: Entry) -> None:
        if isinstance(entry.event, PoolState):
            self._states.append((entry, entry.event, entry.t + int(self._left() * 1e9)))


def _accused(findings: Sequence[Finding]) -> set[tuple[str, str | None]]:
    """What is wrong, and in which exchange."""
    return {(one.requirement, one.exchange) for one in findings if one.verdict in ACCUSING}
