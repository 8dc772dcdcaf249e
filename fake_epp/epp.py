"""The scripted EPP as a server: which script plays for which request, and what the data plane did."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from ext_proc.headers import pairs_of
from ext_proc.http2.connection import SERVER_SETTINGS
from ext_proc.http2.frames import Settings
from ext_proc.http2.tls import ServerTls
from ext_proc.messages import ProcessingRequest
from ext_proc.record import Entry, Event, Headers, Recorder, StreamEnded, StreamOpened, header
from ext_proc.server import ServedStream, Server, serve
from fake_epp.player import Player
from fake_epp.script import Script, ScriptRule


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRequest:
    """A request that a data plane asked about: the `number`th, from 1. `headers` are the request's own."""

    number: int
    exchange: str
    stream: ServedStream
    headers: Headers
    rule: ScriptRule | None

    @property
    def ended(self) -> StreamEnded | None:
        """How its stream ended, once it has."""
        return self.stream.ended


async def open_epp(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    rules: Iterable[ScriptRule] = (),
    default: Script | None = None,
    recorder: Recorder | None = None,
    exchange_header: str | None = None,
    tls: ServerTls | None = None,
    health: Mapping[str, int] | None = None,
    settings: Settings = SERVER_SETTINGS,
    name: str = "",
) -> FakeEpp:
    """Serve on `host:port` (0: any free port) until `FakeEpp.close`.

    The first of `rules` that matches a request plays; without one `default` does (by default an EPP that lets all pass
    and names no destination). What happens on the streams goes to `recorder`, under the name that the request has in
    its header `exchange_header`, else `epp-1`, `epp-2`, … `health` is the serving status by service (None: no health
    service), `name` what its streams say of who accepted them. Raises `OSError` if the address can't be bound.
    """
    epp = FakeEpp(
        rules=rules,
        default=default or Script(),
        recorder=recorder,
        exchange_header=exchange_header,
        health=health,
        name=name,
    )
    await epp.start(host, port, tls, settings)
    return epp


class FakeEpp:
    """A running scripted EPP. `rules`, `default` and `health` may be changed at any time; they count from then on."""

    def __init__(
        self,
        *,
        rules: Iterable[ScriptRule],
        default: Script,
        recorder: Recorder | None,
        exchange_header: str | None,
        health: Mapping[str, int] | None,
        name: str,
    ) -> None:
        self.rules = list(rules)
        self.default = default
        self.health = dict(health) if health is not None else None
        self.asked: list[AskedRequest] = []
        """Every request so far, in order."""
        self._name = name
        self._recorder = recorder
        self._exchange_header = exchange_header.lower().encode() if exchange_header is not None else None
        self._names = itertools.count(1)
        self._accepted: deque[tuple[str, _Naming | None]] = deque()
        self._news = asyncio.Event()
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """The server below: its connections, for those who want to break them."""
        assert self._server is not None, "the scripted EPP is not started"
        return self._server

    @property
    def address(self) -> str:
        """`host:port` for data planes."""
        return self.server.address

    async def start(self, host: str, port: int, tls: ServerTls | None, settings: Settings) -> None:
        """Bind and listen."""
        self._server = await serve(
            host,
            port,
            self._play,
            tls=tls,
            health=self._health if self.health is not None else None,
            observe=self._observe,
            settings=settings,
        )

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.close()

    async def wait_asked(self, count: int) -> list[AskedRequest]:
        """Wait until so many requests have been asked about."""
        while len(self.asked) < count:
            self._news.clear()
            await self._news.wait()
        return self.asked[:count]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _health(self, service: str) -> int | None:
        return (self.health or {}).get(service)

    def _observe(self, _headers: Headers) -> tuple[str, Recorder] | None:
        """Called for each new stream, right before its handler is scheduled: handlers begin in the same order."""
        name = f"epp-{next(self._names)}"
        naming = _Naming(self._recorder, self._name) if self._recorder is not None else None
        self._accepted.append((name, naming))
        return None if naming is None else (name, naming)

    async def _play(self, stream: ServedStream) -> None:
        name, naming = self._accepted.popleft()
        raw = await stream.recv()
        headers = _request_headers(raw)
        if self._exchange_header is not None and (given := header(headers, self._exchange_header)):
            name = given.decode("latin-1")
        if naming is not None:
            naming.name(name)
        if raw is None:
            return
        number = len(self.asked) + 1
        rule = self._choose(headers, number)
        self.asked.append(AskedRequest(number=number, exchange=name, stream=stream, headers=headers, rule=rule))
        self._news.set()
        await Player(stream, rule.script if rule is not None else self.default).play(raw)

    def _choose(self, headers: Headers, number: int) -> ScriptRule | None:
        for rule in self.rules:
            played = sum(one.rule is rule for one in self.asked)
            if rule.match.holds(headers, number) and (rule.times is None or played < rule.times):
                return rule
        return None


class _Naming(Recorder):
    """Holds a stream's events back until its exchange has a name: that is in the stream's first message."""

    def __init__(self, target: Recorder, epp: str) -> None:
        super().__init__()
        self._target = target
        self._epp = epp
        self._held: list[Event] = []
        self._name: str | None = None

    def name(self, name: str) -> None:
        """From here on events go to the target."""
        self._name = name
        held, self._held = self._held, []
        for event in held:
            self.emit(event)

    def emit(self, event: Event) -> Entry:
        """Pass `event` on under the exchange's name, or hold it."""
        if self._name is None:
            self._held.append(event)
            return Entry(0, 0, event)
        if self._epp and isinstance(event, StreamOpened):
            event = replace(event, epp=self._epp)
        return self._target.emit(replace(event, exchange=self._name))


def _request_headers(raw: bytes | None) -> Headers:
    try:
        message = ProcessingRequest.FromString(raw or b"")
    except DecodeError:
        return ()
    return pairs_of(message.request_headers.headers)
