"""The ext_proc stream of one exchange: opened with the first message, ended in the configured way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ext_proc.channel import Channel
from ext_proc.http2.errors import ConnectFailed
from ext_proc.inbox import Received
from ext_proc.record import DRAINING, STILL_OPEN, Message, Recorder, StreamEnded, Wait, header
from ext_proc.stream import LATE, ProcessStream, record_unreached
from fake_proxy.actions import Closing, Layer
from fake_proxy.config import Ending, ProxyConfig
from fake_proxy.pace import Pace

_UNKNOWN, _INTERNAL, _UNAVAILABLE = 2, 13, 14
_GRPC_OF_HTTP = {b"400": 13, b"401": 16, b"403": 7, b"404": 12, b"429": 14, b"502": 14, b"503": 14, b"504": 14}


class EppStream:
    """Sends at the end of the turn, or as soon as the stream is open; tells `heard` each message of the EPP and
    `closed` its end. As in Envoy, messages of a turn that ends with a reset never leave.

    `closed` gets the gRPC status that Envoy makes of the end, and a text.
    """

    def __init__(
        self,
        channel: Channel,
        config: ProxyConfig,
        recorder: Recorder,
        exchange: str,
        *,
        heard: Callable[[bytes], None],
        closed: Callable[[int, str], None],
    ) -> None:
        self._channel = channel
        self._config = config
        self._recorder = recorder
        self._exchange = exchange
        self._heard = heard
        self._closed = closed
        self._stream: ProcessStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[tuple[bytes, Layer]] = []
        self._closing: Closing | None = None
        self._late = 0  # messages since then
        self._activity = asyncio.Event()
        self._lost: StreamEnded | None = None

    @property
    def ended(self) -> StreamEnded | None:
        """How the stream ended; None if there is none, or it goes on."""
        return self._stream.ended if self._stream is not None else self._lost

    def send(self, raw: bytes, layer: Layer = "message") -> None:
        """Send one message, or bytes that are none; the first opens the stream."""
        self._unsent.append((raw, layer))
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        elif self._stream is not None and len(self._unsent) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """The turn is over: what was sent in it leaves."""
        if self._stream is not None:
            for raw, layer in self._unsent:
                _SENDERS[layer](self._stream, raw)
            self._unsent.clear()

    async def opened(self) -> None:
        """Wait until the stream is open, if it is being opened, or will not be."""
        if self._opening is None:
            return
        try:
            await self._opening  # not `wait`, which returns a turn later: an EPP's answer may come in between
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise

    def give_up(self) -> None:
        """Open no stream any more: the time for it is over, and the exchange says so."""
        if self._opening is not None:
            self._opening.cancel()

    def hold(self, held: bool) -> None:
        """Let the EPP send no more than its window while it is `held`."""
        if self._stream is not None:
            self._stream.hold(held)

    @property
    def sending(self) -> int:
        """0 if nothing that was sent waits for the EPP's connection; else a number that changes while it leaves."""
        return 0 if self._stream is None else self._stream.sending

    async def drain(self) -> None:
        """Wait until the EPP's connection took what was sent before this turn, or the stream is over."""
        if self._stream is not None:
            await self._stream.drain()

    def close(self, closing: Closing) -> None:
        """The data plane is done with the stream: the first step of its ending."""
        self._closing = closing
        stream = self._stream
        if stream is None:
            return
        if closing is Closing.EPP_FIRST:
            stream.reset()  # one that broke the framing; a stream that ended takes no notice
        elif self._config.ending is not Ending.ENVOY:
            self.flush()
            stream.half_close()
        else:
            if closing is Closing.OWN:
                self.flush()
                stream.half_close()
            stream.reset()

    async def leave(self, pace: Pace) -> None:
        """The rest of the ending: wait for the EPP as configured, at most the pace's deadline, then reset.

        It is reset at once when it has said too much since; that says nothing of whether it would have ended.
        """
        await self.opened()
        stream = self._stream
        if stream is None or stream.ended is not None:
            return
        draining = self._config.ending is Ending.DRAIN
        quiet = self._config.quiet_window if draining else pace.ending_timeout
        loop = asyncio.get_running_loop()
        began = loop.time()
        while stream.ended is None and loop.time() < began + pace.deadline:
            self._activity.clear()
            try:
                async with asyncio.timeout(quiet):
                    await self._activity.wait()
            except TimeoutError:
                break
        flooded = self._late >= LATE
        self._recorder.emit(
            Wait(
                exchange=self._exchange,
                what=DRAINING if draining or flooded else STILL_OPEN,
                outcome="expired" if stream.ended is None or flooded else "met",
                seconds=loop.time() - began,
            )
        )
        stream.reset()

    async def _open(self) -> None:
        try:
            stream = await self._channel.open(self._exchange, self._recorder, on_event=self._event)
        except ConnectFailed as problem:
            self._lost = record_unreached(self._recorder, self._exchange, problem)
            self._closed(_UNAVAILABLE, "connect_failed")
            return
        self._stream = stream
        self.flush()
        if self._closing is not None:
            self.close(self._closing)

    def _event(self, event: Received) -> None:
        self._activity.set()
        match event:
            case Message(raw=raw):
                self._heard(raw)
                self._late += self._closing is not None
                if self._late >= LATE and self._stream is not None:
                    self._stream.reset()
            case StreamEnded():
                self._closed(*grpc_status(event))
            case _:
                self._closed(_INTERNAL, "malformed")


_SENDERS: Mapping[Layer, Callable[[ProcessStream, bytes], None]] = {
    "message": ProcessStream.send,
    "grpc": ProcessStream.send_data,
    "http2": ProcessStream.write_raw,
}


def grpc_status(ended: StreamEnded) -> tuple[int, str]:
    """The gRPC status that Envoy makes of the end of a stream, and a text."""
    match ended.how:
        case "status":
            return _UNKNOWN if ended.status is None else ended.status, ended.message
        case "reset":
            return _INTERNAL, "reset"
        case "malformed":
            return _GRPC_OF_HTTP.get(header(ended.headers, b":status") or b"", _UNKNOWN), "malformed"
        case _:
            return _UNAVAILABLE, ended.how
