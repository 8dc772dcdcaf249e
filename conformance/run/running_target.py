"""What the targets of every role have alike: started, watched, started again on another port, stopped."""

from __future__ import annotations

import asyncio
from abc import ABC
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from conformance.errors import TargetUnreachableError
from conformance.run.watched import DYING, HURRY, Watched
from conformance.targets.bridge import Bridge
from conformance.targets.fixed_address import claim
from conformance.targets.gateway import AnyProfile
from conformance.targets.image import start_container
from conformance.targets.launch import Launch
from conformance.targets.listening import may_listen
from conformance.targets.process import start_process
from conformance.targets.running import Running, port_was_taken
from ext_proc.record import Event

PORT_TRIES = 4
"""How often a target is started, each time on another port, when somebody else was quicker to take its port."""


class RunningTarget(ABC):
    """The system under test. `values` fill placeholders of the profile, `emit` gets the events of its process."""

    profile: AnyProfile

    def __init__(
        self,
        profile: AnyProfile,
        values: Mapping[str, str],
        *,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
    ) -> None:
        self.profile = profile
        self.values = values
        self.image: str | None = None
        """The digest of the image that it runs; None for a process."""
        self._redact = redact
        self._starting = False
        self._watched = Watched(emit, redact, excused=lambda: self._starting and self.lost_its_port)

    @property
    def crashed(self) -> bool:
        """True from the moment it ended by itself until it is started again."""
        return self._watched.crashed

    @property
    def absent(self) -> bool:
        """Whether it can't be asked although it did not end: it did not come up when it was started again."""
        return False

    @property
    def output(self) -> str:
        """The last lines of its output."""
        return self._watched.output

    @property
    def lost_its_port(self) -> bool:
        """Whether it ended because somebody else took the port that the suite had chosen for it."""
        chosen = "{port}" in self.profile.address and "port" not in self.values
        return chosen and self._watched.process is not None and port_was_taken(self._watched.process)

    async def stop(self, *, hurry: bool = False) -> None:
        """Stop it if it is ours. Idempotent."""
        await self._watched.stop(HURRY if hurry else self.profile.timeouts.stop)

    def withheld(self, seconds: float, ago: float = 0.0) -> float:
        """Of so many seconds, which ended `ago` seconds ago: those in which it could have run and got no processor."""
        return self._watched.withheld(seconds, ago)

    async def given_time_to_end(self, patience: float = DYING) -> None:
        """A connection broke: if the process is ending, its end must be in the log before the episode is judged."""
        await self._watched.given_time_to_end(patience)

    async def given_time_to_find_its_port_taken(self, address: str, until: float) -> None:
        """What answers at `address` is no such target. If another process took its port, it ends when it finds out,
        before the loop's time `until`, by which it must be ready."""
        process = self._watched.process
        others = process is not None and not may_listen(process.pid, address)
        left = until - asyncio.get_running_loop().time() if others else 0.0
        await self._watched.given_time_to_end(max(left, DYING))

    async def explain_end(self) -> TargetUnreachableError:
        """Why a process that is not running any more ended, in words."""
        return await self._watched.explain_end()

    async def on_a_free_port(self, start: Callable[[], Awaitable[None]]) -> None:
        """`start`, which starts it and waits until it is ready; again where it lost its port meanwhile."""
        for left in reversed(range(PORT_TRIES)):
            self._starting = True
            try:
                await start()
                return
            except TargetUnreachableError:
                if not self.lost_its_port or not left:
                    raise
                await self.stop()
            finally:
                self._starting = False

    async def _run(
        self, how: Launch, *, folders: Mapping[Path, str] | None = None, bridge: Bridge | None = None
    ) -> Running:
        """Start the process, or the container, which sees `folders` besides its own and the run's scratch folder."""
        folder = Path(self.profile.start.workdir) if self.profile.start.workdir else None
        if how.image is None:
            if "{" not in self.profile.address:
                await claim(how.address.rpartition("//")[2])
            return await start_process(how.command, env=how.env, cwd=folder, redact=self._redact)
        seen = {folder: "ro"} if folder else {}
        return await start_container(
            how.image,
            how.command,
            env=how.env,
            bridge=bridge,
            folders={**seen, **(folders or {}), Path(self.values["workdir"]): "rw"},
            workdir=folder,
            redact=self._redact,
        )
