"""What carries an exchange to the target: the fake proxy, or (`conformance.run.data_plane.envoy`) a real Envoy.

`chosen` reads what the user says of it. The fake does everything that scenarios ask for, and sees the endpoint that is
picked; so the gate and the polls of a settling pool go through it whatever carries the scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from conformance.errors import UnknownNameError, UsageError
from conformance.run.data_plane.replies import upstream_for
from conformance.run.data_plane.stimuli import MODES, Prepared
from conformance.run.epp.target import Target
from conformance.scenario.schema import BodyMode
from conformance.targets.profile import Profile
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import ExchangeOpened, Recorder, StreamEnded
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.pace import Pace

if TYPE_CHECKING:
    from ext_proc.channel import Channel
    from real_envoy import EnvoyVariant

FAKE, ENVOY = "fake", "envoy"


class DataPlane(Protocol):
    """Runs exchanges, one or several at a time; everything that happens is in the log."""

    async def carry_out(
        self, prepared: Prepared, exchange: str, *, note: Mapping[str, Any], pace: Pace, fresh_connection: bool
    ) -> ExchangeOutcome:
        """Run one exchange under the id `exchange`. Raises only for trouble of the suite's."""


# -- the choice --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The data plane of a run by its `name`. `variant` is the real Envoy's, None for the fake.

    `mode` is the body mode to which the variant is bound; None if the target's modes are driven.
    """

    name: str = FAKE
    variant: EnvoyVariant | None = None
    mode: BodyMode | None = None

    def driven(self, profile: Profile) -> Profile:
        """The profile with the body modes that this data plane drives."""
        return profile if self.mode is None else profile.model_copy(update={"body_modes": (self.mode,)})


def chosen(name: str) -> Choice:
    """The data plane called `fake`, `envoy` (any endpoint known, the target's body modes) or `envoy:VARIANT`.

    Raises `UnknownNameError` for another name, `UsageError` if there is no Envoy that runs here.
    """
    if name == FAKE:
        return Choice()
    from real_envoy import VARIANTS, EnvoyError, find_envoy

    kind, _, variant = name.partition(":")
    known = {FAKE, ENVOY, *(f"{ENVOY}:{one}" for one in VARIANTS)}
    if name not in known or kind != ENVOY:
        raise UnknownNameError("data plane", name, known)
    try:
        find_envoy()
    except EnvoyError as problem:
        raise UsageError(f"--data-plane {name}: {problem.what}", hint=problem.hint) from problem
    if not variant:
        return Choice(name=name, variant=VARIANTS["override-host"])
    found = VARIANTS[variant]
    mode = next(ours for ours, theirs in MODES.items() if theirs is found.config.request_body_mode)
    return Choice(name=name, variant=found, mode=mode)


# -- the fake ----------------------------------------------------------------------------------------------------------


class FakeDataPlane:
    """The fake proxy, on the target's own connections."""

    def __init__(self, target: Callable[[], Target], recorder: Recorder) -> None:
        self._target = target
        self._recorder = recorder

    async def carry_out(
        self, prepared: Prepared, exchange: str, *, note: Mapping[str, Any], pace: Pace, fresh_connection: bool
    ) -> ExchangeOutcome:
        """Run one exchange; a target out of reach is an exchange that was lost."""
        connections: Channel | None = None
        try:
            if fresh_connection:
                connections = await self._target().fresh_channel()
            return await run_exchange(
                connections or self._target().channel,
                prepared.request,
                prepared.config,
                prepared.stimulus,
                upstream_for(prepared.reply, prepared.fail_first),
                self._recorder,
                exchange,
                pace=pace,
                note=note,
            )
        except ConnectFailed as problem:
            return self._not_connected(exchange, prepared, problem)
        finally:
            if connections is not None:
                await connections.close()

    def _not_connected(self, exchange: str, prepared: Prepared, problem: ConnectFailed) -> ExchangeOutcome:
        request = prepared.request
        self._recorder.emit(ExchangeOpened(exchange=exchange, method=request.method, path=request.path))
        return ExchangeOutcome(
            exchange=exchange,
            status=None,
            body=b"",
            complete=False,
            details="connect_failed",
            attempts=(),
            aborted=False,
            expired="",
            stream=unreached(self._recorder, exchange, str(problem)),
        )


def unreached(recorder: Recorder, exchange: str, why: str) -> StreamEnded:
    """Record that no stream of an exchange came about, as the target could not be reached."""
    ended = StreamEnded(exchange=exchange, stream="", author=None, how="lost", message=why)
    recorder.emit(ended)
    return ended
