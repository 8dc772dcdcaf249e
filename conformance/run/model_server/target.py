"""The model server under test while it runs: started if it is ours, watched, restarted, stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from conformance.run.running_target import RunningTarget
from conformance.targets.model_server import ModelServerProfile, server_launch
from ext_proc.record import Event


class ModelServerTarget(RunningTarget):
    """One model server."""

    profile: ModelServerProfile

    def __init__(
        self,
        profile: ModelServerProfile,
        version: str,
        values: Mapping[str, str],
        *,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
    ) -> None:
        super().__init__(profile, values, emit=emit, redact=redact)
        self.url = profile.url
        """Where it serves requests."""
        self._version = version

    async def start(self) -> None:
        """Start it if it is started by the suite; it need not listen yet. Raises `UsageError`."""
        how = server_launch(self.profile, self._version, self.values)
        self.url = how.address
        if self.profile.started_by_us:
            process = await self._run(how)
            self.image = process.image
            self._watched.adopt(process)
            parts = urlsplit(how.address)
            reached = process.reach(parts.netloc)
            self.url = how.address.replace(parts.netloc, reached, 1)
