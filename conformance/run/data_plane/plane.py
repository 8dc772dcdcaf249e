"""What carries an exchange to the target: the fake proxy, or (`conformance.run.data_plane.envoy`) a real Envoy.

The fake does everything that scenarios ask for, and sees the endpoint that is picked; so the gate and the polls of a
settling pool go through it whatever carries the scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from conformance.errors import UsageError
from conformance.planning.data_plane import DataPlaneChoice
from conformance.run.data_plane.replies import MayDial, upstream_for
from conformance.run.data_plane.stimuli import Prepared
from conformance.run.epp.target import Target
from ext_proc.channel import Channel
from ext_proc.http2.errors import ConnectFailed
from ext_proc.http2.transport import Transport
from ext_proc.record import Recorder
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.pace import Pace


def chosen(name: str) -> DataPlaneChoice:
    """`DataPlaneChoice.named`, which can run here. Raises `UsageError` if no Envoy does."""
    choice = DataPlaneChoice.named(name)
    if choice.variant is not None:
        from real_envoy import EnvoyError, find_envoy

        try:
            find_envoy()
        except EnvoyError as problem:
            raise UsageError(f"--data-plane {name}: {problem.what}", hint=problem.hint) from problem
    return choice


class DataPlane(Protocol):
    """Runs exchanges, one or several at a time; everything that happens is in the log."""

    async def carry_out(
        self, prepared: Prepared, exchange: str, *, note: Mapping[str, Any], pace: Pace, fresh_connection: bool
    ) -> ExchangeOutcome:
        """Run one exchange under the id `exchange`. Raises only for harness errors."""


# -- the fake ----------------------------------------------------------------------------------------------------------


class FakeDataPlane:
    """The fake proxy, on the target's own connections. Of what the target names it dials what `may_dial` has."""

    def __init__(self, target: Callable[[], Target], recorder: Recorder, may_dial: MayDial) -> None:
        self._target = target
        self._recorder = recorder
        self._may_dial = may_dial

    async def carry_out(
        self, prepared: Prepared, exchange: str, *, note: Mapping[str, Any], pace: Pace, fresh_connection: bool
    ) -> ExchangeOutcome:
        """Run one exchange; a target out of reach is an exchange that was lost."""
        connections: Channel | None = None
        try:
            if fresh_connection:
                connections = await self._fresh()
            return await run_exchange(
                connections or self._target().channel,
                prepared.request,
                prepared.config,
                prepared.stimulus,
                upstream_for(prepared.reply, prepared.fail_first, self._may_dial),
                self._recorder,
                exchange,
                pace=pace,
                note=note,
            )
        finally:
            if connections is not None:
                await connections.close()

    async def _fresh(self) -> Channel:
        target = self._target()
        try:
            return await target.fresh_channel()
        except ConnectFailed as problem:
            return _OutOfReach(target.address, problem)


class _OutOfReach(Channel):
    """A connection that can't be made: an exchange on it is recorded like one on connections that broke."""

    def __init__(self, address: str, problem: ConnectFailed) -> None:
        super().__init__(address)
        self._problem = problem

    async def transport(self) -> Transport:
        raise self._problem
