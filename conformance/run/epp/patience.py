"""How long a target is waited for: its answer's deadline, also for what it may never do, but that only once.

A machine may stand still for a second or two, and a wait that is over by then accuses what was kept from acting. So
every wait that can accuse is as long as that for an answer. A target that lets one run out will do so again and again:
from then on such waits are brief. So are those for answers, once the same was left out a few times, or its stream ended
instead and the exchange came to nothing; but never briefer than what the target has been seen to need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from conformance.judges.epp.streaming import ECHO
from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.scenario.schema import Reply
from ext_proc.record import STILL_OPEN, Author, Entry, Message, Recorder, StreamEnded, Wait
from fake_proxy.pace import PATIENCE, Pace

BRIEF = 1.0
"""Seconds for what the target has not done before."""


UNANSWERED = 3
"""So many times is a full wait spent on the same answer."""

ROOM = 4
"""How many times as long as its slowest answer a target is given then."""


class Patience:
    """The pace of exchanges with one target. `answer`: seconds for an answer; `recorder` has what became of waits.

    `told` gets, once, that waits for answers are shortened; those of a target that `queues` are not.
    """

    def __init__(self, answer: float, recorder: Recorder, told: Callable[[str], None], *, queues: bool = False) -> None:
        self._answer = answer
        self._told = told
        self._let_run_out: set[str] = set()
        self._unanswered: Counter[str] = Counter()
        self._queues = queues
        self.starting = False
        """The target has just been started: what it leaves out may be answered when it is ready."""
        self._asked: dict[str | None, int] = {}
        """When each exchange's last message was sent that is not answered yet."""
        self._cut: set[str | None] = set()
        """Exchanges whose stream ended before that: of what then does not come, the target is the cause as well."""
        self._slowest = 0.0
        recorder.listen(self._heed)

    def pace(
        self,
        reply: Reply,
        hold: Callable[[], Awaitable[None]] | None,
        deadline: float | None = None,
        *,
        pauses: float = 0.0,
        withheld: Callable[[float], float] = lambda _: 0.0,
    ) -> Pace:
        """The pace of an exchange in which model servers give `reply`, and the client pauses for so many seconds.

        `hold`, `withheld`: see `Pace`.
        """
        limit = usual = deadline or self._answer
        if self.shortened:
            limit = min(limit, max(BRIEF, ROOM * self._slowest))
        echo = self._for(ECHO, limit) + reply.gap_seconds
        expected = pauses + reply.pause + (echo if reply.lock_step else 0)
        return Pace(
            deadline=limit + expected,
            whole=PATIENCE * (usual + expected),  # one that answers is not silent, however many messages there are
            lock_step=reply.lock_step,
            echo_timeout=echo,
            ending_timeout=self._for(STILL_OPEN, limit),
            hold=hold,
            withheld=withheld,
        )

    @property
    def shortened(self) -> bool:
        """Whether the target has left the same answer out again and again."""
        return max(self._unanswered.values(), default=0) >= UNANSWERED and not self._queues

    def _for(self, what: str, limit: float) -> float:
        return min(BRIEF, limit) if what in self._let_run_out else limit

    def _heed(self, entry: Entry) -> None:
        match entry.event:
            case Message(author=Author.DATA_PLANE, exchange=exchange):
                self._asked[exchange] = entry.t
            case Message(exchange=exchange) if (asked := self._asked.pop(exchange, None)) is not None:
                self._slowest = max(self._slowest, (entry.t - asked) / 1e9)
            case StreamEnded(exchange=exchange, author=author):
                if self._asked.pop(exchange, None) is not None and author is not Author.DATA_PLANE:
                    self._cut.add(exchange)
            case Wait(what=what, outcome="expired", exchange=exchange):
                self._let_run_out.update(one for one in (ECHO, STILL_OPEN) if what.startswith(one))
                counts = what.startswith(AWAITED_ANSWER) or exchange in self._cut
                if counts and not (self.shortened or self.starting):
                    self._unanswered[what] += 1
                    brief = min(self._answer, max(BRIEF, ROOM * self._slowest))
                    if self.shortened and brief < self._answer:
                        text = f"the {what} did not come {UNANSWERED} times: from then on the suite waited"
                        self._told(f"{text} {brief:.1f} s for answers, and not {self._answer:g} s")
