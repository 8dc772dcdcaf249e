"""The real Envoys of one target: one process for each configuration that exchanges need, started when it is needed.

Client → Envoy → tap → target; Envoy → pods. The tap speaks to the target as the profile says (TLS, authority, gRPC
metadata come from the data plane), so Envoy's side of it is plain.
For a target on a Unix socket the tap is on one, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.errors import HarnessError
from conformance.planning.data_plane import MODES, DataPlaneChoice
from conformance.run.data_plane.envoy.exchange import EXCHANGE_HEADER, EnvoyExchange
from conformance.run.data_plane.stimuli import Prepared
from conformance.run.epp.target import Target, client_tls
from conformance.targets.profile import Profile
from ext_proc.http2.address import UNIX, authority_of
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import Entry, Recorder
from ext_proc.relay import Recording, RecordingLimits, Tap, open_tap
from fake_modelserver import Served
from fake_modelserver.messages import Request, Response
from fake_proxy.config import Ending, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome
from fake_proxy.pace import Pace
from real_envoy import Envoy, EnvoyError, EnvoySettings, start_envoy

GATEWAY = "gw"

WHOLE = RecordingLimits(
    message=64 * 1024 * 1024, exchange=256 * 1024 * 1024, events=1_000_000, unfinished=256 * 1024 * 1024
)
"""The tap's limits are for live traffic; here all of it is evidence."""

DYING = 0.2
"""Seconds that a dying Envoy may take from its last connection's end to its own."""

FOR_EVER = 3600.0
"""Seconds: time-outs that Envoy must not have, as the exchange has its own."""


@dataclasses.dataclass(slots=True, kw_only=True)
class _Running:
    """An Envoy, with the endpoints that its pool has."""

    envoy: Envoy
    pool: tuple[str, ...] = ()


class EnvoyDataPlane:
    """`choice` says which variant. `target` gives the target as it is now: it may be started again elsewhere."""

    def __init__(
        self, choice: DataPlaneChoice, profile: Profile, target: Callable[[], Target], recorder: Recorder
    ) -> None:
        assert choice.variant is not None
        self._variant = choice.variant
        self._choice = choice
        self._profile = profile
        self._target = target
        self._recorder = recorder
        self._exchanges: dict[str, EnvoyExchange] = {}
        self._running: dict[EnvoySettings, _Running] = {}
        self._lock = asyncio.Lock()
        self._tap: Tap | None = None
        self._authority = ""
        self._stop_listening: Callable[[], None] = lambda: None
        self._unreached: list[ConnectFailed] = []

    async def start(self) -> None:
        """Open the tap and start an Envoy, so that trouble with it shows before anything else is done.

        Raises `HarnessError` with what Envoy says.
        """
        self._stop_listening = self._recorder.listen(self._heard)
        address = self._target().address
        self._authority = self._profile.connect.authority or authority_of(address)
        own = Path(self._target().values["reporterConfig"]).parent
        self._tap = await open_tap(
            f"unix:{own}/tap.sock" if address.startswith(UNIX) else "127.0.0.1",
            0,
            address,
            upstream_tls=client_tls(self._profile.tls),
            connect_timeout=min(5.0, self._profile.timeouts.answer),
            recording=Recording(recorder=self._recorder, limits=WHOLE, named_by=EXCHANGE_HEADER),
            unreachable=self._unreached.append,
        )
        try:
            await self._envoy(self._settings(self._config(self._usual()), fresh=False))
        except EnvoyError as problem:
            raise HarnessError(f"the real Envoy: {problem.what}", hint=problem.hint) from problem

    async def close(self) -> None:
        """Stop every Envoy and the tap."""
        self._stop_listening()
        running, self._running = self._running, {}
        await asyncio.gather(*(one.envoy.stop() for one in running.values()))
        if self._tap is not None:
            await self._tap.close()

    async def carry_out(
        self, prepared: Prepared, exchange: str, *, note: Mapping[str, Any], pace: Pace, fresh_connection: bool
    ) -> ExchangeOutcome:
        """Run one exchange. Raises an `EnvoyError` or `OSError` if Envoy fails, which is the suite's trouble."""
        assert self._tap is not None
        self._tap.upstream = self._target().address
        config = self._config(prepared.config)
        settings = self._settings(config, fresh=fresh_connection)
        envoy = await self._envoy(settings, prepared.config.pool if settings.knows_pool else ())
        run = EnvoyExchange(prepared, config, self._recorder, exchange, pace=pace, unreached=self._unreached)
        self._exchanges[exchange] = run
        try:
            outcome = await run.run(envoy.addresses[GATEWAY], note)
        except OSError:
            envoy.check()  # says why, if it is gone
            raise
        finally:
            del self._exchanges[exchange]
        if outcome.status is None and not (outcome.aborted or outcome.expired):
            await asyncio.wait([envoy.exited], timeout=DYING)
            envoy.check()
        return outcome

    # -- the log and the pods ------------------------------------------------------------------------------------------

    def _heard(self, entry: Entry) -> None:
        run = self._exchanges.get(entry.event.exchange or "")
        if run is not None:
            run.heard(entry)

    def script(self, request: Request) -> Response | None:
        """What a pod answers to a request that came through Envoy."""
        run = self._exchange_of(request.headers)
        return None if run is None else run.answer(request)

    def served(self, served: Served) -> None:
        """A pod got a request."""
        run = self._exchange_of(served.headers)
        if run is not None:
            run.served(served)

    def _exchange_of(self, headers: tuple[tuple[bytes, bytes], ...]) -> EnvoyExchange | None:
        name = next((value for key, value in headers if key.lower() == EXCHANGE_HEADER), b"")
        return self._exchanges.get(name.decode("latin-1"))

    # -- Envoys --------------------------------------------------------------------------------------------------------

    async def _envoy(self, settings: EnvoySettings, pool: tuple[str, ...] = ()) -> Envoy:
        """The Envoy of these settings, with this pool."""
        async with self._lock:
            running = self._running.get(settings)
            if running is None or not running.envoy.running:
                envoy = await start_envoy({GATEWAY: settings}, component_log_level="ext_proc:warning")
                running = self._running[settings] = _Running(envoy=envoy)
            if running.pool != pool:
                await running.envoy.set_pool(GATEWAY, pool)
                running.pool = pool
            return running.envoy

    def _usual(self) -> ProxyConfig:
        """What most exchanges ask for."""
        mode, names = MODES[self._profile.body_modes[0]], self._profile.metadata
        return ProxyConfig(
            request_body_mode=mode,
            response_body_mode=mode,
            forwarding_namespaces=tuple(dict.fromkeys((names.destination, names.subset))),
            receiving_namespaces=(names.destination,),
            destination_namespace=names.destination,
            subset_namespace=names.subset,
        )

    def _config(self, asked: ProxyConfig) -> ProxyConfig:
        """The variant's configuration with what the exchange asks for."""
        own = self._variant.config
        return dataclasses.replace(
            own,
            request_body_mode=asked.request_body_mode,
            response_body_mode=self._choice.response_mode(asked.request_body_mode, asked.response_body_mode),
            send_body_without_waiting=asked.send_body_without_waiting,
            forwarding_namespaces=own.forwarding_namespaces and asked.forwarding_namespaces,
            receiving_namespaces=own.receiving_namespaces and asked.receiving_namespaces,
            destination_namespace=asked.destination_namespace,
            subset_namespace=asked.subset_namespace,
            message_timeout=FOR_EVER,
            ending=Ending.HALF_CLOSE if asked.ending is Ending.HALF_CLOSE else Ending.ENVOY,
        )

    def _settings(self, config: ProxyConfig, *, fresh: bool) -> EnvoySettings:
        assert self._tap is not None
        return EnvoySettings(
            epp=self._tap.address,
            config=dataclasses.replace(config, pool=()),
            routing=self._variant.routing,
            authority=self._authority,  # as it was: a target that is started again elsewhere needs no other Envoy
            epp_metadata=tuple(
                (name.lower().encode(), value.encode()) for name, value in self._profile.connect.metadata.items()
            ),
            route_timeout=FOR_EVER,
            exchange_header=EXCHANGE_HEADER.decode(),
            fresh_connections=fresh,
            changing_pool=True,
        )
