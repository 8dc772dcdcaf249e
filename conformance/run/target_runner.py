"""One target with everything around it, whatever its role, on which scenarios are executed."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from conformance.evidence.episode import Context, Episode, ProcessExited, ProcessStarted
from conformance.evidence.redaction import Redactor
from conformance.outcome import Anomaly
from conformance.planning.data_plane import DataPlaneChoice
from conformance.run.capture import Capture
from conformance.run.engine import LagMeter
from conformance.run.limits import Throttle
from conformance.run.running_target import RunningTarget
from conformance.run.scratch import ScratchFolder
from conformance.scenario.pool import Pool
from conformance.targets.gateway import AnyProfile
from conformance.verdict import Finding
from ext_proc.record import Entry, Recorder

PARTING = 0.1
"""Seconds for which a target is watched after its last piece of work: what goes on after an exchange may end it."""


class TargetRunner(ABC):
    """One target of one protocol version. Use as an async context manager: entering starts it and passes the gate.

    `values` fills placeholders of the profile; `number` tells the runners of one session apart; `lag` measures how late
    the loop runs; `status` gets what is waited for, for people, and `anomaly` what is worth knowing and
    no finding; `data_plane` carries the scenarios of an EPP.
    """

    at_a_time = 1
    """Pieces of work of one batch in flight together."""
    strays = False
    """Whether an episode has what names no exchange of the suite's, too."""

    target: RunningTarget

    def __init__(
        self,
        profile: AnyProfile,
        version: str,
        values: Mapping[str, str],
        *,
        seed: int,
        lag: LagMeter,
        status: Callable[[str], None],
        redactor: Redactor | None = None,
        number: int = 0,
        data_plane: DataPlaneChoice | None = None,
        anomaly: Callable[[Anomaly], None] = lambda _: None,
    ) -> None:
        self.profile = profile
        self.version = version
        self.seed = seed
        self.lag = lag
        self.status = status
        self.anomaly = anomaly
        self.redactor = redactor or Redactor()
        self.recorder = Recorder(redact=self.redactor.event)
        self.throttle = Throttle(profile.limits, status)
        self.data_plane = data_plane or DataPlaneChoice()
        self._number = number
        self.folder = ScratchFolder()
        self._values = {**values, "workdir": str(self.folder.work)}
        self._episodes = itertools.count(1)
        self.hangs = 0
        """How often the target was started again because it answered nothing, and then answered."""
        self.never_responds = False
        """Starting it again was of no use for that."""
        self.given_up = False
        """It was started again after a start that failed, and did not come up then either."""
        self._standing: dict[object, Entry] = {}
        """What is true of target and surroundings now, and belongs to every episode that begins."""
        self._under_way: set[Capture] = set()
        self._unseen: list[Entry] = []
        """Ends of the target by itself that no episode has yet."""
        self.recorder.listen(self._remember)

    def noting(self, code: str) -> Callable[[str], None]:
        """A function that tells of an anomaly of this `code`, given its text."""
        return lambda text: self.anomaly(Anomaly(code=code, text=text))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException as problem:
            await self.close(hurry=isinstance(problem, asyncio.CancelledError))
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- life ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def start(self) -> None:
        """Start everything, and pass the gate: a plain request must get through. Raises `IncompleteError`."""

    @abstractmethod
    async def restart_target(self) -> None:
        """Stop the target, start it again, and pass the gate."""

    @abstractmethod
    async def close(self, *, hurry: bool = False) -> None:
        """Stop everything. Nothing is left but files for `scratch.clear`: no process, no port. Idempotent.

        With `hurry` the target gets no time to end by itself.
        """

    @property
    def crashed(self) -> bool:
        """Whether the target ended by itself and was not started again."""
        return self.target.crashed

    @property
    def image(self) -> str | None:
        """The digest of the image that the target runs; None for a process."""
        return self.target.image if hasattr(self, "target") else None

    @property
    def reads_no_metrics(self) -> bool:
        """Whether the target was given time to read its pods' metrics, and never did."""
        return False

    # -- work ----------------------------------------------------------------------------------------------------------

    def kept_from(self, seconds: float, ago: float = 0.0) -> float:
        """Of so many seconds, which ended `ago` seconds ago, at most: those in which the target got no processor, and
        those in which our own loop stood still, as the target may have."""
        return min(seconds, self.target.withheld(seconds, ago) + self.lag.lately(seconds, ago))

    async def prepare(self, pool: Pool) -> None:  # noqa: B027 - a role may share one pool among all
        """Make the pool that a batch starts from."""

    async def responds(self) -> bool:
        """Whether the target still answers a plain request, as far as one is due an answer."""
        return True

    async def relieve(self) -> None:  # noqa: B027
        """Take away what made the target hang and may do so again: the scenario that needed it is over."""

    async def ends(self) -> tuple[Entry, ...]:
        """After the last piece of work, as no other will have them: the ends of the target by itself since then."""
        await self.target.given_time_to_end(PARTING)
        return tuple(filter(is_end, self.take_unseen()))

    def early(self, work: str, episode: Episode, context: Context, findings: Sequence[Finding]) -> bool:  # noqa: ARG002
        """Whether what `findings` accuse the target of in a piece of work was seen before it had the time that it is
        due. Then it is run again, with that time given. True once at most for each."""
        return False

    async def check(self) -> None:  # noqa: B027
        """After a piece of work: raises `IncompleteError` if a target that is not ours can't be reached any more."""

    def forget_standing(self) -> None:
        """Keep nothing for a next episode: there is none."""
        self._standing.clear()

    # -- the log -------------------------------------------------------------------------------------------------------

    def capture(self, *, counts: bool = True) -> Capture:
        """A new episode, which begins with what is true now, and with what came of the target since the last one. Where
        it does not count, the next one has that, too."""
        unseen = self.take_unseen()
        if not counts:
            self.put_back(unseen)
        before = {entry.seq: entry for entry in (*self._standing.values(), *unseen)}
        name = f"{self._number}-{next(self._episodes)}"
        found = (before[number] for number in sorted(before))
        return Capture(self.recorder, name, found, strays=self.strays, under_way=self._under_way)

    def take_unseen(self) -> list[Entry]:
        """What no episode has yet and one must have."""
        unseen, self._unseen = self._unseen, []
        return unseen

    def put_back(self, entries: Iterable[Entry]) -> None:
        """The episode that had these will not count: the next one gets the ends of the target among them."""
        self._unseen += [entry for entry in entries if is_end(entry) and entry not in self._unseen]

    def _remember(self, entry: Entry) -> None:
        match entry.event:
            case ProcessStarted():
                self._standing["process"] = entry
            case ProcessExited() if is_end(entry) and not self._under_way:  # it is a finding of the next scenario
                self._unseen.append(entry)


def is_end(entry: Entry) -> bool:
    """Whether a target ended by itself."""
    return isinstance(entry.event, ProcessExited) and not entry.event.asked
