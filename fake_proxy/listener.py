"""The fake proxy as an HTTP/1.1 server: each request of a real client is an exchange.

Point `curl` or an OpenAI client at it. The request goes through the endpoint picker to the model servers; the response
reaches the client as it comes. What happens is written to the recorder, as for any exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field

import h11

from ext_proc.channel import Channel
from ext_proc.http2.address import format_address
from ext_proc.record import Headers, Recorder
from ext_proc.turns import Turns
from ext_proc.writing import write_if_open
from fake_proxy.actions import ClientData, ClientHeaders, ClientTrailers
from fake_proxy.client import AbortPoint, Arrival, DataArrives, HttpRequest, Part, TrailersArrive, head_arrives
from fake_proxy.config import ProxyConfig
from fake_proxy.exchange import ExchangeDriver, ExchangeOutcome
from fake_proxy.pace import Pace
from fake_proxy.stimulus import Stimulus
from fake_proxy.upstream import HttpUpstream, Upstream

_READ = 64 * 1024
_AHEAD = 8
"""Pieces of a request that are read before the exchange takes them."""

_LINGER = 1.0
"""Seconds that a client has to take the last bytes when the listener stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What each exchange is run with. `max_body` bounds a request's body, of which only the beginning is kept.

    `finished` is called after each exchange.
    """

    channel: Channel
    recorder: Recorder
    config: ProxyConfig = field(default_factory=ProxyConfig)
    stimulus: Stimulus = field(default_factory=Stimulus)
    upstream: Upstream = field(default_factory=HttpUpstream)
    pace: Pace = field(default_factory=lambda: Pace(deadline=300.0))
    max_body: int = 64 * 1024 * 1024
    finished: Callable[[ExchangeOutcome], None] = lambda _: None
    name: str = "request"
    """Exchanges are named `request-1`, `request-2`, …"""


async def open_listener(host: str, port: int, serving: Serving) -> Listener:
    """Listen on `host:port` (0: any free port) until `Listener.close`. Raises `OSError` if it can't be bound."""
    listener = Listener(serving)
    await listener.start(host, port)
    return listener


class Listener:
    """A running listener."""

    def __init__(self, serving: Serving) -> None:
        self.host = ""
        self.port = 0
        self._serving = serving
        self._numbers = itertools.count(1)
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._listening: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return format_address(self.host, self.port)

    async def start(self, host: str, port: int) -> None:
        """Bind and listen."""
        self._listening = await asyncio.start_server(self._accept, host, port, limit=_READ)
        self.host, self.port = self._listening.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        listening.close()
        open_now = dict(self._connections)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        for writer in open_now.values():
            writer.transport.abort()  # that of a task that had not begun is open still
        await listening.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listening is None:  # it was accepted as the listener was closed
            writer.transport.abort()
            return
        connection = _Connection(reader, writer, self._serving, self._numbers)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        task.add_done_callback(lambda task: task.cancelled() or task.result())  # the loop tells of errors


class _Connection:
    """One client's connection: request after request."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serving: Serving,
        numbers: itertools.count[int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serving = serving
        self._numbers = numbers
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_READ)
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        self._source = format_address(str(host), int(port))

    async def serve(self) -> None:
        try:
            while (head := await self._head()) is not None:
                await self._exchange(head)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    break
                self._http.start_next_cycle()
            await self._swallow()
        except OSError:
            pass
        finally:
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_LINGER):
                    await self._writer.wait_closed()

    async def _head(self) -> h11.Request | None:
        """The next request's head; None if none comes that can be served."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as problem:
                await self._refuse(problem.error_status_hint or 400, str(problem))
                return None
            match event:
                case h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_READ))
                case h11.Request(http_version=version) if version > b"1.1":
                    await self._refuse(505, "HTTP/1.1 is spoken here, and no HTTP/2")
                    return None
                case h11.Request():
                    return event
                case _:
                    return None

    async def _exchange(self, head: h11.Request) -> None:
        serving = self._serving
        request = _request(head, self._source)
        client = _LiveClient(request, head, self._http, self._writer)
        name = f"{serving.name}-{next(self._numbers)}"
        exchange = ExchangeDriver(
            serving.channel,
            request,
            serving.config,
            serving.stimulus,
            serving.upstream,
            serving.recorder,
            name,
            serving.pace,
            {},
            client,
        )
        reading = asyncio.get_running_loop().create_task(self._read(client, exchange))
        try:
            outcome = await exchange.run()
        finally:
            reading.cancel()
            await asyncio.wait([reading])
        if outcome.expired:
            client.refuse(504, f"nothing happened for {serving.pace.deadline:g} s while waiting for: {outcome.expired}")
        if not client.over:  # the client is gone, or its response was cut
            self._writer.transport.abort()
        serving.finished(outcome)

    async def _read(self, client: _LiveClient, exchange: ExchangeDriver) -> None:
        """Read the request's body, then watch whether the client stays."""
        try:
            if await self._read_body(client):
                # A client that sends its next request already waits for its turn.
                while len(self._http.trailing_data[0]) < _READ:
                    data = await self._reader.read(_READ)
                    if not data:
                        break
                    self._http.receive_data(data)
                else:
                    return
        except (OSError, h11.RemoteProtocolError):
            pass
        except Exception as problem:  # noqa: BLE001 - raised where the exchange is awaited
            exchange.defect(problem)
        exchange.client_gone(client.point)

    async def _read_body(self, client: _LiveClient) -> bool:
        """Read the request's body; False if the client does not complete it."""
        if self._http.they_are_waiting_for_100_continue:
            going_on = h11.InformationalResponse(status_code=100, headers=[])
            write_if_open(self._writer, self._http.send(going_on) or b"")
        total, turns = 0, Turns()
        while True:
            await turns.taken()
            match self._http.next_event():
                case h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_READ))
                case h11.Data(data=data):
                    total += len(data)
                    if total > self._serving.max_body:
                        client.refuse(413, f"the body is larger than {self._serving.max_body} bytes")
                        return False
                    await client.put(DataArrives(bytes(data), False, 0))
                case h11.EndOfMessage(headers=trailers):
                    await client.end([(name.lower(), value) for name, value in trailers])
                    return True
                case _:
                    return False

    async def _swallow(self) -> None:
        """Read what a client still sends that was answered early: a connection closed over unread bytes is reset, and
        the answer with it."""
        if self._http.their_state in (h11.SEND_BODY, h11.ERROR) and not self._writer.is_closing():
            self._writer.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    while await self._reader.read(_READ):
                        pass

    async def _refuse(self, status: int, reason: str) -> None:
        write_if_open(self._writer, _refusal(self._http, status, reason))
        await self._writer.drain()


class _LiveClient:
    """The client of one exchange (`fake_proxy.client.Client`)."""

    def __init__(
        self, request: HttpRequest, head: h11.Request, http: h11.Connection, writer: asyncio.StreamWriter
    ) -> None:
        self.over = False
        """The response is complete, or cut."""
        self._request = request
        self._bodyless = _bodyless(head.headers)
        self._http = http
        self._writer = writer
        self._begun = False
        self._complete = self._bodyless
        self._chunked = head.http_version >= b"1.1"  # unless the response announces its length
        self._coming: asyncio.Queue[Arrival | None] = asyncio.Queue(_AHEAD)

    @property
    def point(self) -> AbortPoint:
        """How far the exchange is, for a client that goes away now."""
        if self._begun:
            return "response-body"
        return "request" if self._complete else "request-body"

    # -- the request ---------------------------------------------------------------------------------------------------

    async def put(self, arrival: Arrival) -> None:
        """Something of the request was read."""
        await self._coming.put(arrival)

    async def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """The request is complete."""
        self._complete = True
        if not self._bodyless:
            await self._coming.put(TrailersArrive(trailers) if trailers else DataArrives(b"", True, 0))

    async def arrivals(self) -> AsyncGenerator[Arrival, None]:
        """The request as it comes."""
        yield head_arrives(self._request, end=self._bodyless)
        if self._bodyless:
            return
        while (arrival := await self._coming.get()) is not None:
            yield arrival
            if isinstance(arrival, TrailersArrive) or (isinstance(arrival, DataArrives) and arrival.end):
                return

    # -- the response --------------------------------------------------------------------------------------------------

    def got(self, part: Part) -> None:
        """A part of the response: to the socket with it."""
        if self.over:
            return
        try:
            match part:
                case ClientHeaders(headers, end):
                    self._begun = True
                    response = _response(headers, end, self._request.method)
                    self._chunked = self._chunked and b"content-length" not in dict(response.headers)
                    self._send(response)
                    if end:
                        self._finish([])
                case ClientData(data, end):
                    if data:
                        self._send(h11.Data(data=data))
                    if end:
                        self._finish([])
                case ClientTrailers(trailers):
                    self._finish([pair for pair in trailers if not pair[0].startswith(b":")])
                case _:
                    self._cut()
        except h11.LocalProtocolError:  # such as a body that is not as long as was announced
            self._cut()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken."""
        return self._writer.transport.get_write_buffer_size()

    async def ready(self) -> None:
        """Wait until the client takes more."""
        with contextlib.suppress(OSError):
            await self._writer.drain()
        await asyncio.sleep(0)

    def finished(self) -> None:
        """The exchange takes no more of the request."""
        while self._coming.full():
            self._coming.get_nowait()
        self._coming.put_nowait(None)

    def refuse(self, status: int, reason: str) -> None:
        """Answer in place of the exchange, or cut an answer that has begun."""
        if self._begun:
            self._cut()
            return
        self._begun = True
        write_if_open(self._writer, _refusal(self._http, status, reason))
        self.over = True

    def _send(self, event: h11.Event) -> None:
        write_if_open(self._writer, self._http.send(event) or b"")

    def _finish(self, trailers: list[tuple[bytes, bytes]]) -> None:
        self._send(h11.EndOfMessage(headers=trailers if self._chunked else []))
        self.over = True

    def _cut(self) -> None:
        self._writer.transport.abort()
        self.over = True


# -- HTTP/1.1 ----------------------------------------------------------------------------------------------------------


def _request(head: h11.Request, source: str) -> HttpRequest:
    """The head as an exchange has it; the body comes by itself."""
    headers: Headers = tuple((name, value) for name, value in head.headers if name != b"host")
    host = next((value for name, value in head.headers if name == b"host"), b"")
    return HttpRequest(
        method=head.method.decode("ascii"),
        path=head.target.decode("latin-1"),
        authority=host.decode("latin-1"),
        headers=headers,
        source=source,
    )


def _bodyless(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request ends with its head."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0")):
            return False
    return True


def _response(headers: list[tuple[bytes, bytes]], end: bool, method: str) -> h11.Response:
    status = int(next((value for name, value in headers if name == b":status"), b"500"))
    plain = [(name, value) for name, value in headers if not name.startswith(b":")]
    announced = any(name == b"content-length" for name, _ in plain)
    if end and not announced and method != "HEAD" and status not in (204, 304):
        plain.append((b"content-length", b"0"))
    return h11.Response(status_code=status, headers=plain)


def _refusal(http: h11.Connection, status: int, reason: str) -> bytes:
    body = f"{reason}\n".encode()
    headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
    if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return b""
    parts = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(http.send(part) or b"" for part in parts)
