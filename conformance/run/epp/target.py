"""The target while it runs: started if it is ours, reached, found ready, watched, restarted, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from conformance.errors import TargetUnreachableError
from conformance.printable import quoted
from conformance.run.running_target import RunningTarget
from conformance.targets.bridge import Bridge
from conformance.targets.launch import Launch, launch
from conformance.targets.listening import listening
from conformance.targets.profile import Profile, Tls
from ext_proc.channel import Channel, dial
from ext_proc.health import health_check
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.errors import ConnectFailed, ConnectionRefused, ConnectTimedOut, UnusableFiles
from ext_proc.http2.tls import ClientTls
from ext_proc.messages import HealthCheckResponse
from ext_proc.record import Event

RETRY = 0.05
"""Seconds between attempts to reach a target that is starting."""


class Target(RunningTarget):
    """One endpoint picker."""

    profile: Profile

    def __init__(
        self,
        profile: Profile,
        version: str,
        values: Mapping[str, str],
        *,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
        bridge: Bridge | None = None,
    ) -> None:
        super().__init__(profile, values, emit=emit, redact=redact)
        self.version = version
        self.starts = 0
        self._bridge = bridge
        self._launch: Launch | None = None
        self._channel: Channel | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The command line it was started with; empty if it was not started by us."""
        return self._launch.command if self._launch else ()

    @property
    def address(self) -> str:
        """host:port of its ext_proc service."""
        return self._reach(self._launch.address) if self._launch else self.profile.address

    @property
    def absent(self) -> bool:
        """See `RunningTarget`."""
        return self._channel is None and not self.crashed

    @property
    def channel(self) -> Channel:
        """Connections to it."""
        if self._channel is None:
            raise TargetUnreachableError("the target is not running")
        return self._channel

    async def start(self) -> None:
        """Start it if it is ours, and connect. Raises `TargetUnreachableError` or `UsageError`."""
        self._launch = launch(self.profile, self.version, self.values)
        self.starts += 1
        if self.profile.started_by_us:
            written = ("endpointsFile", "kubeconfig", "reporterConfig")
            folders = {Path(self.values[name]).parent: "ro" for name in written if name in self.values}
            process = await self._run(self._launch, folders=folders, bridge=self._bridge)
            self.image = process.image
            self._watched.adopt(process)
        self._channel = await self._connect()

    async def stop(self, *, hurry: bool = False) -> None:
        """Disconnect, and stop it if it is ours. Idempotent."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        await super().stop(hurry=hurry)

    async def kill(self) -> None:
        """End its process at once and unasked, as a kernel without memory does; connections to it break by themselves.
        `stop` before it is started again."""
        await self._watched.stop(0)

    def another(self, values: Mapping[str, str], emit: Callable[[Event], object]) -> Target:
        """A second target, started as this one is, but for `values` of placeholders."""
        values = {**self.values, **values}
        return Target(self.profile, self.version, values, emit=emit, redact=self._redact, bridge=self._bridge)

    async def fresh_channel(self, connection: Callable[[], Http2Connection] = Http2Connection) -> Channel:
        """A new connection, which the caller closes; `connection` makes its state."""
        return await self._dial(connections=1, connection=connection)

    async def health_channel(self) -> Channel:
        """A connection to where health is served, which the caller closes."""
        address = self._launch.health_address if self._launch else None
        if address is None:
            return await self._dial(connections=1)
        return await dial(self._reach(address), timeout=self.profile.timeouts.answer)

    async def serving(self) -> None:
        """Wait until its health service says so, if that is what makes it ready. Raises `TargetUnreachableError`."""
        ready, timeouts = self.profile.ready, self.profile.timeouts
        if ready.rule != "health":
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + (timeouts.start if self.profile.started_by_us else timeouts.answer)
        said = ""
        while said != "SERVING":
            if loop.time() > until:
                text = f"its health service does not say that {ready.service or 'the server'!r} is serving: {said}"
                raise TargetUnreachableError(text, hint="`ready` in its profile says that it must, and which service")
            await self._watched.unless_it_ends(asyncio.sleep(RETRY))
            said = await self._health(ready.service)

    async def _health(self, service: str) -> str:
        """What its health service says of a service, or why it says nothing."""
        try:
            channel = await self.health_channel()
            try:
                health = await health_check(channel, service, timeout=self.profile.timeouts.answer)
            finally:
                await channel.close()
        except (ConnectFailed, TimeoutError) as problem:
            return str(problem) or "no answer in time"
        if health.status is None:
            return f"gRPC status {health.grpc_status}"
        return HealthCheckResponse.ServingStatus.Name(health.status)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _reach(self, address: str) -> str:
        process = self._watched.process
        return process.reach(address) if process is not None else address

    async def _connect(self) -> Channel:
        """Connect; while a target that the suite started is not ready yet, refusals and silence are waited out.

        The time in which it could have run and got no processor is not counted.
        """
        loop = asyncio.get_running_loop()
        began, patience = loop.time(), self.profile.timeouts.start
        until = began + patience
        while True:
            try:
                return await self._watched.unless_it_ends(self._dial(connections=self.profile.connect.connections))
            except ConnectFailed as problem:
                ours = self._watched.process is not None
                if not (ours and isinstance(problem, ConnectionRefused | ConnectTimedOut)):
                    if not isinstance(problem, UnusableFiles):  # nothing was asked
                        await self.given_time_to_find_its_port_taken(self.address, until)
                    if self.crashed:
                        raise await self.explain_end() from problem
                    raise TargetUnreachableError(f"{problem.where}: {problem.what}", hint=problem.hint) from problem
                waited = loop.time() - began
                if waited - self.withheld(waited) >= patience:
                    raise TargetUnreachableError(
                        f"{problem.where}: {problem.what} after {patience:g} s"
                        f"{self._elsewhere()}; the target's last output:\n{quoted(self.output or '(none)')}",
                        hint="check the address it listens on, or raise timeouts.start",
                    ) from problem
                await self._watched.unless_it_ends(asyncio.sleep(RETRY))

    def _elsewhere(self) -> str:
        """Where it listens instead, if it does."""
        process = self._watched.process
        found = listening(process.pid) if process is not None and process.pid else ()
        return (
            f": it listens on {', '.join(found)}, not on {self.address}" if found and self.address not in found else ""
        )

    async def _dial(self, *, connections: int, connection: Callable[[], Http2Connection] = Http2Connection) -> Channel:
        return await dial_target(self.profile, self.address, connections=connections, connection=connection)


async def dial_target(
    profile: Profile,
    address: str,
    *,
    connections: int,
    connection: Callable[[], Http2Connection] = Http2Connection,
) -> Channel:
    """Connect to the target of `profile` at `address`, as it says. Raises a `ConnectFailed`."""
    connect = profile.connect
    return await dial(
        address,
        tls=client_tls(profile.tls),
        authority=connect.authority,
        metadata=[(name.lower().encode(), value.encode()) for name, value in connect.metadata.items()],
        connections=connections,
        timeout=min(5.0, profile.timeouts.answer),
        connection=connection,
    )


def client_tls(settings: Tls) -> ClientTls | None:
    """How we speak TLS to the target; None for plaintext."""
    if settings.mode == "plaintext":
        return None
    return ClientTls(
        verify=settings.mode == "verified",
        ca=Path(settings.ca) if settings.ca else None,
        certificate=Path(settings.cert) if settings.cert else None,
        key=Path(settings.key) if settings.key else None,
        server_name=settings.server_name,
    )
