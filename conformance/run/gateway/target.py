"""The gateway under test while it runs: started if it is ours, reached, watched, restarted, stopped."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping

from conformance.errors import ConformanceError, HarnessError, TargetUnreachableError, UsageError
from conformance.printable import quoted
from conformance.run.running_target import RunningTarget
from conformance.targets.gateway import EPPS, GatewayProfile, gateway_launch
from ext_proc.http2.address import split_address
from ext_proc.http2.tls import ClientTls
from ext_proc.record import Event, Headers
from real_envoy import (
    VARIANTS,
    Envoy,
    EnvoyDiedError,
    EnvoyError,
    EnvoyFailedError,
    start_envoy,
    subset_header_value,
)

RETRY = 0.05
"""Seconds between attempts to reach a gateway that is starting."""

ROUTE = 0.6
"""The share of the time limit for answers within which our Envoy's route answers: before the client gives up."""

NAME = "gateway"


class GatewayTarget(RunningTarget):
    """One gateway. `pools` are the endpoints of its pools, by the name of their EPP."""

    profile: GatewayProfile

    def __init__(
        self,
        profile: GatewayProfile,
        version: str,
        values: Mapping[str, str],
        pools: Mapping[str, tuple[str, ...]],
        *,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
    ) -> None:
        super().__init__(profile, values, emit=emit, redact=redact)
        self.address = ""
        """host:port of its listener."""
        self._version = version
        self._pools = pools

    async def start(self) -> None:
        """Start it if it is ours, and wait until it listens. Raises `TargetUnreachableError` or `UsageError`."""
        how = gateway_launch(self.profile, self._version, self.values)
        self.address = how.address
        if self.profile.start.envoy is not None:
            process = await self._envoy(self.profile.start.envoy)
            self.address = process.address
            self._watched.adopt(process)
        elif self.profile.started_by_us:
            self._watched.adopt(await self._run(how))
        await self._listening()

    async def check(self) -> None:
        """Raise `TargetUnreachableError` if it takes no connections any more."""
        try:
            await self._connect()
        except OSError as problem:
            raise self._unreachable(problem) from problem

    def subset(self, endpoints: tuple[str, ...]) -> Headers:
        """The request header that makes it send this subset hint."""
        if self.profile.start.envoy is not None:
            return ((_envoy_subset_header(), subset_header_value(list(endpoints))),)
        assert self.profile.subset_header is not None, "the plan has no subset for a gateway that takes none"
        return ((self.profile.subset_header.lower().encode(), ",".join(endpoints).encode()),)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _envoy(self, variant: str) -> EnvoyProcess:
        tls = ClientTls(verify=False) if self.profile.backends[0].tls == "self-signed" else None
        try:
            settings = VARIANTS[variant].settings(
                epp=self.values["epp"], pool=self._pools[EPPS[0]], epp_tls=tls, authority="epp:9002"
            )
            limit = ROUTE * self.profile.timeouts.answer
            settings = dataclasses.replace(settings, route_timeout=limit)
            return EnvoyProcess(await start_envoy({NAME: settings}), variant)
        except (EnvoyError, ValueError) as problem:
            raise _explained(problem) from problem

    async def _listening(self) -> None:
        """Wait until it takes connections."""
        loop = asyncio.get_running_loop()
        ours = self.profile.started_by_us
        until = loop.time() + (self.profile.timeouts.start if ours else 0.0)
        while True:
            try:
                await self._watched.unless_it_ends(self._connect())
                return
            except OSError as problem:
                if loop.time() >= until:
                    raise self._unreachable(problem) from problem
                await self._watched.unless_it_ends(asyncio.sleep(RETRY))

    async def _connect(self) -> None:
        host, port = split_address(self.address)
        async with asyncio.timeout(min(5.0, self.profile.timeouts.answer)):
            _, writer = await asyncio.open_connection(host, port)
        writer.transport.abort()

    def _unreachable(self, problem: OSError) -> TargetUnreachableError:
        text = f"the gateway at {self.address} can't be reached: {problem.strerror or problem or 'no answer'}"
        if not self.profile.started_by_us:
            return TargetUnreachableError(text, hint="is it running, and is this the address of its listener?")
        return TargetUnreachableError(
            f"{text}, after {self.profile.timeouts.start:g} s; its last output:\n{quoted(self.output or '(none)')}",
            hint="check the address it listens on, or raise timeouts.start",
        )


class EnvoyProcess:
    """A real Envoy as a target that was started (`Running`)."""

    image: str | None = None

    def __init__(self, envoy: Envoy, variant: str) -> None:
        self.command: tuple[str, ...] = ("envoy", variant)
        self.pid = envoy.pid
        self.asked_to_stop = False
        self.exited = envoy.exited
        self.address = envoy.addresses[NAME]
        self._envoy = envoy

    @property
    def running(self) -> bool:
        """False once it has ended."""
        return self._envoy.running

    def tail(self) -> str:
        """The last lines of its log."""
        return self._envoy.tail(20)

    def reach(self, address: str) -> str:
        """It runs on this machine."""
        return address

    async def stop(self, patience: float) -> int:
        """Ask it to end, end it by force after `patience` seconds; its exit code."""
        self.asked_to_stop = True
        return await self._envoy.stop(patience)


def _envoy_subset_header() -> bytes:
    from real_envoy.settings import SUBSET_HEADER

    return SUBSET_HEADER.encode()


def _explained(problem: EnvoyError | ValueError) -> ConformanceError:
    """What kept Envoy from running, as one of the suite's errors."""
    if isinstance(problem, ValueError):
        return UsageError(f"Envoy can't be set up so: {problem}")
    if isinstance(problem, EnvoyDiedError):
        return TargetUnreachableError(problem.what, hint=problem.hint)
    if isinstance(problem, EnvoyFailedError):
        return HarnessError(problem.what, hint=problem.hint)
    return UsageError(problem.what, hint=problem.hint)
