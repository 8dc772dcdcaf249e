"""The scripted EPPs that a gateway under test asks: where they listen, and what they do for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal

from conformance.errors import UsageError
from conformance.evidence.episode import EppConduct
from conformance.planning.epp_scripts import played
from conformance.run.gateway.pods import EXCHANGE
from conformance.scenario.epp_script import EppScript
from conformance.targets.gateway import EPPS, GatewayProfile
from ext_proc.http2.address import split_address
from ext_proc.http2.tls import ServerTls, self_signed
from ext_proc.record import Recorder
from fake_epp import FakeEpp, Match, ScriptRule, open_epp


class Pickers:
    """The EPP of each pool by name. What happens on their streams goes to `recorder`."""

    def __init__(self, profile: GatewayProfile, recorder: Recorder, folder: Path) -> None:
        self.addresses: dict[str, str] = {}
        """`host:port` that each listens on, or would."""
        self._profile = profile
        self._recorder = recorder
        self._folder = folder
        self._up: dict[str, FakeEpp] = {}
        self._tls: ServerTls | None = None

    async def start(self) -> None:
        """Listen wherever the gateway expects them. Raises `UsageError` for an address that can't be bound."""
        for name, backend in zip(EPPS, self._profile.backends, strict=False):
            await self._listen(name, *(split_address(backend.epp) if backend.epp else ("127.0.0.1", 0)))

    async def close(self) -> None:
        """Stop them all. Idempotent."""
        while self._up:
            _, epp = self._up.popitem()
            await epp.close()

    @property
    def down(self) -> tuple[str, ...]:
        """Those that do not listen."""
        return tuple(name for name in self.addresses if name not in self._up)

    async def conduct(
        self, name: str, state: Literal["up", "down"], found: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """Let one listen, or not. In the log it does so only after `found`, which waits for the gateway to know."""
        if state == "down" and name in self._up:
            await self._up.pop(name).close()
        elif state == "up" and name not in self._up:
            await self._listen(name, *split_address(self.addresses[name]))
            if found is not None:
                await found(name)
        self._recorder.emit(EppConduct(epp=name, up=state == "up"))

    async def reset(self) -> None:
        """Let all of them listen, without a word in the log."""
        for name in self.down:
            await self._listen(name, *split_address(self.addresses[name]))

    def script(self, exchange: str, scripts: Mapping[str, EppScript], endpoints: Mapping[str, tuple[str, ...]]) -> None:
        """What each does for the request of that name; what is scripted for others ends."""
        for name, epp in self._up.items():
            script = played(scripts.get(name, EppScript()), endpoints, self._profile.metadata.destination)
            epp.rules.append(ScriptRule(match=Match(headers={EXCHANGE: exchange}), script=script))

    def forget(self, exchange: str) -> None:
        """The request of that name is over."""
        for epp in self._up.values():
            epp.rules = [rule for rule in epp.rules if rule.match.headers.get(EXCHANGE) != exchange]
            epp.asked = [one for one in epp.asked if one.exchange != exchange]

    async def _listen(self, name: str, host: str, port: int) -> None:
        backend = self._profile.backends[EPPS.index(name)]
        if backend.tls == "self-signed" and self._tls is None:
            self._tls = self_signed(self._folder, stem="epp")
        try:
            epp = await open_epp(
                host,
                port,
                recorder=self._recorder,
                exchange_header=EXCHANGE,
                tls=self._tls if backend.tls == "self-signed" else None,
                name=name,
            )
        except OSError as problem:
            raise UsageError(
                f"the scripted EPP can't listen on {host}:{port}: {problem.strerror or problem}",
                hint="free the address, or name another one that the gateway expects its EPP at (--epp-listen)",
            ) from problem
        self._up[name] = epp
        self.addresses[name] = epp.address
