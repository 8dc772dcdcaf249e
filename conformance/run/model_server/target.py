"""The model server under test while it runs: started if it is ours, watched, restarted, stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from conformance.errors import TargetUnreachableError
from conformance.run.watched import HURRY, Watched
from conformance.targets.image import start_container
from conformance.targets.launch import Launch
from conformance.targets.model_server import ModelServerProfile, server_launch
from conformance.targets.process import start_process
from conformance.targets.running import Running
from ext_proc.record import Event


class ModelServerTarget:
    """One model server. `emit` gets the events of its process; `values` fill placeholders of the profile."""

    def __init__(
        self,
        profile: ModelServerProfile,
        version: str,
        values: Mapping[str, str],
        *,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
    ) -> None:
        self.profile = profile
        self.image: str | None = None
        """The digest of the image that it runs."""
        self.url = profile.url
        """Where it serves requests."""
        self._version = version
        self._values = values
        self._redact = redact
        self._watched = Watched(emit, redact)

    @property
    def crashed(self) -> bool:
        """True from the moment it ended by itself until it is started again."""
        return self._watched.crashed

    @property
    def output(self) -> str:
        """The last lines of its output."""
        return self._watched.output

    async def start(self) -> None:
        """Start it if it is started by the suite; it need not listen yet. Raises `UsageError`."""
        how = server_launch(self.profile, self._version, self._values)
        self.url = how.address
        if self.profile.started_by_us:
            process = await self._started(how)
            self.image = process.image
            self._watched.adopt(process)
            parts = urlsplit(how.address)
            reached = process.reach(parts.netloc)
            self.url = how.address.replace(parts.netloc, reached, 1)

    async def stop(self, *, hurry: bool = False) -> None:
        """Stop it if the suite started it. Idempotent."""
        await self._watched.stop(HURRY if hurry else self.profile.timeouts.stop)

    async def given_time_to_end(self) -> None:
        """A connection broke: if the process is ending, its end must be in the log before anybody judges."""
        await self._watched.given_time_to_end()

    async def explain_end(self) -> TargetUnreachableError:
        """Why a server that is not running any more ended, in words."""
        return await self._watched.explain_end()

    async def _started(self, how: Launch) -> Running:
        folder = Path(self.profile.start.workdir) if self.profile.start.workdir else None
        if how.image is None:
            return await start_process(how.command, env=how.env, cwd=folder, redact=self._redact)
        folders = {Path(self._values["workdir"]): "rw"} | ({folder: "ro"} if folder else {})
        return await start_container(
            how.image,
            how.command,
            env=how.env,
            bridge=None,
            folders=folders,
            workdir=folder,
            redact=self._redact,
        )
