"""How long a target is waited for: its answer's deadline, also for what it may never do, but that only once.

A machine may stand still for a second or two, and a wait that is over by then accuses whoever was kept from acting. So
every wait that can accuse is as long as that for an answer. A target that lets one run out will do so again and again:
from then on such waits are brief.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conformance.judges.epp.streaming import ECHO
from conformance.scenario.schema import Reply
from ext_proc.record import STILL_OPEN, Entry, Recorder, Wait
from fake_proxy.pace import Pace

BRIEF = 1.0
"""Seconds for what the target has not done before."""


class Patience:
    """The pace of exchanges with one target. `answer`: seconds for an answer; `recorder` has what became of waits."""

    def __init__(self, answer: float, recorder: Recorder) -> None:
        self._answer = answer
        self._let_run_out: set[str] = set()
        recorder.listen(self._heed)

    def pace(self, reply: Reply, hold: Callable[[], Awaitable[None]] | None, deadline: float | None = None) -> Pace:
        """The pace of an exchange in which model servers give `reply`; `hold`: see `Pace`."""
        limit = deadline or self._answer
        echo = self._for(ECHO, limit) + reply.gap_seconds
        return Pace(
            deadline=limit + reply.gap_seconds * (reply.events + 1) + (echo if reply.lock_step else 0),
            lock_step=reply.lock_step,
            echo_timeout=echo,
            ending_timeout=self._for(STILL_OPEN, limit),
            hold=hold,
        )

    def _for(self, what: str, limit: float) -> float:
        return min(BRIEF, limit) if what in self._let_run_out else limit

    def _heed(self, entry: Entry) -> None:
        match entry.event:
            case Wait(what=what, outcome="expired"):
                self._let_run_out.update(one for one in (ECHO, STILL_OPEN) if what.startswith(one))
