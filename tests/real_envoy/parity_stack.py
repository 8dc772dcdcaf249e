"""One EPP, three model servers, a real Envoy and the fake proxy: each case runs through both data planes in turn."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity_behaviours import FOUND
from parity_compare import Observation, messages_of, request_of, response_of, stream_of
from parity_epp import Behaviour, play
from parity_gateways import Gateway
from parity_model_server import ModelServers

from conformance.run.engine import LagMeter
from ext_proc.channel import Channel
from ext_proc.messages import ProcessingRequest
from ext_proc.record import Author, ClientResponse, Entry, Message, Recorder, StreamEnded, StreamOpened
from ext_proc.server import ServedStream, serve
from fake_proxy.client import HttpRequest
from fake_proxy.config import ProxyConfig
from fake_proxy.exchange import run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import UpstreamReply
from fake_proxy.stimulus import Stimulus, subset_hint
from fake_proxy.upstream import HttpUpstream
from real_envoy import Envoy, EnvoySettings, send_request, start_envoy, subset_header_value
from real_envoy.settings import SUBSET_HEADER

AUTHORITY = "epp.example:9002"
HANGS = 60
"""Seconds after which the fake proxy hangs: far more than a busy machine stands still for."""
STOOD_STILL, TRIES = 0.1, 5
"""Of the shortest time-out here, 0.3 s, what is left when both data planes stood still for so many seconds is not the
case that was meant. It is tried again, at most so many times."""


@dataclass(frozen=True)
class Case:
    """A request, what the EPP makes of it, and what the model servers answer."""

    id: str
    gateway: str
    request: HttpRequest
    replies: Mapping[str, UpstreamReply]
    behaviour: Behaviour = FOUND["right"]
    pick: tuple[str, ...] = ("b",)
    """The endpoints that the EPP names, by name."""
    subset: Any = None
    """The subset hint, with the names of endpoints in its place of addresses; None: no hint."""
    paced: bool = False
    """The client, or the model server, sends on only when what it sent before has come through."""
    merged: bool = False
    """A body so large that the borders of its pieces are left to chance."""
    stalls: bool = False
    """The model server says no more after its first piece, so that nothing races with the end of the exchange."""
    deadline: float = 5.0
    """Seconds until the client gives up; only those cases reach it in which no answer ever comes."""


class _Log(list[Entry]):
    """What the EPP saw of one exchange, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder()
        self.recorder.listen(self._take)
        self._changed = asyncio.Event()
        self.response_bytes = 0

    def _take(self, entry: Entry) -> None:
        self.append(entry)
        match entry.event:
            case Message(author=Author.DATA_PLANE, raw=raw):
                self.response_bytes += len(ProcessingRequest.FromString(raw).response_body.body)
        self._changed.set()

    @property
    def over(self) -> bool:
        """No stream is open."""
        opened = sum(isinstance(entry.event, StreamOpened) for entry in self)
        return opened == sum(isinstance(entry.event, StreamEnded) for entry in self)

    async def until(self, reached: Callable[[], bool], seconds: float = 1.0) -> None:
        """Wait until `reached()`, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()


@dataclass
class Stack:
    """Started by `start`; `stop` leaves nothing behind."""

    gateways: Mapping[str, Gateway]
    models: ModelServers = field(default_factory=ModelServers)
    details: dict[str, str] = field(default_factory=dict)
    """Why the fake's client got what it got, by case."""
    asked: list[str] = field(default_factory=list)
    """The cases of the requests that went through Envoy so far, each of which will have its line in the access log."""

    async def start(self) -> None:
        """Raises what `start_envoy` raises; then nothing is left running."""
        self.envoy: Envoy | None = None
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        await self.models.start()
        self._lag = LagMeter()
        self._measuring = asyncio.create_task(self._lag.run())
        self._log = _Log()
        self._case: Case | None = None
        self._epp = await serve("127.0.0.1", 0, self._handle, observe=lambda _: ("x", self._log.recorder))
        self._no_epp = socket.socket()
        self._no_epp.bind(("127.0.0.1", 0))
        nobody = "{}:{}".format(*self._no_epp.getsockname())
        self._configs: dict[str, ProxyConfig] = {}
        self._channels: dict[str, Channel] = {}
        settings = {}
        for name, gateway in self.gateways.items():
            epp = nobody if gateway.down else self._epp.address
            config = dataclasses.replace(
                gateway.config, pool=tuple(self.models.addresses[name] for name in gateway.pool)
            )
            self._configs[name] = config
            self._channels[name] = Channel(epp, authority=AUTHORITY)
            settings[name] = EnvoySettings(
                epp=epp,
                authority=AUTHORITY,
                config=config,
                routing=gateway.routing,
                retry_back_off=0.001,
                delayed_close=0.01,
            )
        self.envoy = await start_envoy(settings)

    async def stop(self) -> None:
        if self.envoy is not None:
            await self.envoy.stop()
        for channel in self._channels.values():
            await channel.close()
        await self._epp.close()
        self._no_epp.close()
        self._measuring.cancel()
        await self.models.stop()

    async def run(self, case: Case) -> tuple[Observation, Observation]:
        """What the fake did with `case`, and what Envoy did."""
        self._case = case
        for _ in range(TRIES):
            began = time.monotonic()
            fake = await self._through_fake(case)
            self.asked.append(case.id)
            real = await self._through_envoy(case)
            if self._lag.worst(began) < STOOD_STILL:
                break
        return fake, real

    async def _handle(self, stream: ServedStream) -> None:
        case = self._case
        assert case is not None
        pick = ",".join(self.models.addresses[name] for name in case.pick)
        await play(stream, case.behaviour, pick, paced=case.paced)

    async def _begin(self, case: Case) -> _Log:
        await self.models.hang_up()
        log = self._log = _Log()
        config = self._configs[case.gateway]
        streams = config.response_body_mode.name in ("STREAMED", "FULL_DUPLEX_STREAMED")

        async def paced(through: int) -> None:
            await log.until(lambda: log.over or (log.response_bytes >= through and not case.stalls))

        self.models.play(case.replies, paced if streams else None)
        return log

    def _subset(self, case: Case) -> Any:
        def addresses(hint: Any) -> Any:
            if isinstance(hint, list):
                return [addresses(one) for one in hint]
            return self.models.addresses.get(hint, hint) if isinstance(hint, str) else hint

        return addresses(case.subset)

    async def _through_fake(self, case: Case) -> Observation:
        log, config = await self._begin(case), self._configs[case.gateway]
        recorder = Recorder()
        entries: list[Entry] = []
        recorder.listen(entries.append)
        metadata = {} if case.subset is None else subset_hint(config, self._subset(case))
        async with asyncio.timeout(HANGS):
            await run_exchange(
                self._channels[case.gateway],
                case.request,
                config,
                Stimulus(metadata=metadata),
                HttpUpstream(),
                recorder,
                "x",
                pace=Pace(deadline=case.deadline),
            )
        got = next((entry.event for entry in entries if isinstance(entry.event, ClientResponse)), None)
        client: tuple[object, ...] = response_of(None, (), b"", (), False)
        if got is not None:
            headers = [pair for pair in got.headers if not pair[0].startswith(b":")]
            client = response_of(got.status, headers, got.body, got.trailers, got.complete)
        self.details[case.id] = got.details if got is not None else ""
        return await self._observation(case, log, client)

    async def _through_envoy(self, case: Case) -> Observation:
        log, request = await self._begin(case), case.request
        if case.subset is not None:
            hint = (SUBSET_HEADER.encode(), subset_header_value(self._subset(case)))
            request = dataclasses.replace(request, headers=(*request.headers, hint))
        assert self.envoy is not None
        got = await send_request(
            self.envoy.addresses[case.gateway], request, echo=self.models.body_reached, timeout=case.deadline
        )
        client = response_of(got.status, got.headers, got.body, got.trailers, got.complete)
        return await self._observation(case, log, client)

    async def _observation(self, case: Case, log: _Log, client: tuple[object, ...]) -> Observation:
        await log.until(lambda: log.over)
        await self.models.idle()
        head, ending = stream_of(log)
        aborted = case.request.abort is not None  # then how far the request got at the model server is a race
        return Observation(
            messages=messages_of(log, merged=case.merged),
            head=head,
            ending=ending,
            upstream=tuple(request_of(got) for got in self.models.received if not aborted),
            client=client,
        )
