"""The tap: a listener that stands where the EPP would, and passes everything on to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import ssl
from collections.abc import Callable

from ext_proc import grpc
from ext_proc.http2.address import check_address, format_address
from ext_proc.http2.errors import ConnectFailed
from ext_proc.http2.listen import Listening, listen
from ext_proc.http2.tls import ClientTls, ServerTls
from ext_proc.http2.transport import Transport
from ext_proc.record import Headers, header
from ext_proc.relay.counts import Counts
from ext_proc.relay.relay import Link
from ext_proc.relay.watch import Recording, StreamWatch

log = logging.getLogger(__name__)

_REPORTED = 10
"""Failures of recording that are logged; more are only counted."""

_TLS = b"\x16"
"""How a TLS handshake begins."""

_PLAINTEXT = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
"""OpenSSL's reasons for what is no handshake."""

_NOTICE = 1.0
"""Seconds that a data plane has to acknowledge that we leave."""


async def open_tap(
    host: str,
    port: int,
    upstream: str,
    *,
    listen_tls: ServerTls | None = None,
    upstream_tls: ClientTls | None = None,
    connect_timeout: float = 5.0,
    recording: Recording | None = None,
    unreachable: Callable[[ConnectFailed], None] | None = None,
    unopened: Callable[[str], None] | None = None,
) -> Tap:
    """Listen on `host:port` (0: any free port) and relay to the EPP at `upstream` (`host:port`), until `Tap.close`.

    `host` and `upstream` may be `unix:/path`.
    Each connection of a data plane gets a new connection to the EPP, within `connect_timeout` seconds. Without
    `recording` nothing is recorded. `unreachable` is told of an EPP that can't be reached, in place of the log, and
    `unopened` why a data plane's connection is cut. Raises
    `OSError` if the address can't be bound, `BadAddress` for what is no address, `ssl.SSLError` for TLS
    files that can't be used.
    """
    check_address(upstream)
    if upstream_tls is not None:
        upstream_tls.context()  # now, not at the first connection
    tap = Tap(
        upstream,
        tls=upstream_tls,
        timeout=connect_timeout,
        recording=recording,
        unreachable=unreachable,
        unopened=unopened,
    )
    await tap.start(host, port, listen_tls)
    return tap


def _log_unreachable(problem: ConnectFailed) -> None:
    log.warning("the EPP can't be reached, the data plane's connection is cut: %s", problem)


def _log_unopened(why: str) -> None:
    log.warning("a data plane's connection is cut: %s", why)


def _telling(failed: Callable[[str], None]) -> type[ssl.SSLObject]:
    """TLS that calls `failed` where no handshake comes about, which asyncio keeps to itself."""

    class Telling(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as problem:
                failed("it speaks plaintext, and is served TLS" if problem.reason in _PLAINTEXT else f"TLS: {problem}")
                raise

    return Telling


class Tap:
    """A running tap."""

    def __init__(
        self,
        upstream: str,
        *,
        tls: ClientTls | None,
        timeout: float,
        recording: Recording | None,
        unreachable: Callable[[ConnectFailed], None] | None = None,
        unopened: Callable[[str], None] | None = None,
    ) -> None:
        self.host = ""
        self.port = 0
        self.upstream = upstream
        self.counts = Counts()
        self._tls = tls
        self._timeout = timeout
        self._recording = recording
        self._tell_unreachable = unreachable or _log_unreachable
        self._tell_unopened = unopened or _log_unopened
        self._numbers = itertools.count(1)
        self._exchanges = itertools.count(1)
        self._links: set[Link] = set()
        self._listening: Listening | None = None
        self._leaving = self._closing = False
        self._changed = asyncio.Event()  # a stream or a connection is over, or a data plane knows that we leave

    @property
    def address(self) -> str:
        """`host:port` or `unix:/path` for data planes."""
        return format_address(self.host, self.port)

    @property
    def streams(self) -> int:
        """Streams that are being relayed now."""
        return sum(link.streams for link in self._links)

    async def start(self, host: str, port: int, tls: ServerTls | None) -> None:
        """Bind and listen."""
        context = None if tls is None else tls.context()
        if context is not None:
            context.sslobject_class = _telling(self._unopened)
        self._listening = await listen(self._connection, host, port, context)
        self.host, self.port = self._listening.host, self._listening.port

    async def drain(self, seconds: float) -> bool:
        """Take no new connections, and have data planes open no new streams; wait until the open ones have ended.

        False if some have not after `seconds`. Streams that a data plane opened before it knew are served.
        """
        assert self._listening is not None, "the tap is not started"
        self._leaving = True
        self._listening.close()
        for link in self._links:
            link.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_NOTICE):
                        await self._until(lambda: all(link.told for link in self._links))
                await self._until(lambda: not self.streams)
        return not self.streams

    async def close(self) -> None:
        """Stop listening and close every connection, with a GOAWAY to either side."""
        if self._listening is None:
            return
        self._closing = True
        self._listening.close()
        for link in tuple(self._links):
            await link.close()
        await self._listening.wait_closed()
        self._listening = None

    # -- connections and streams ---------------------------------------------------------------------------------------

    def _connection(self) -> Transport:
        link = Link(
            next(self._numbers),
            self.upstream,
            tls=self._tls,
            timeout=self._timeout,
            counts=self.counts,
            witness=self._witness,
            withheld=self._recording.named_by if self._recording is not None else b"",
            unreachable=self._unreachable,
            unopened=self._not_http2,
            on_made=self._made,
            on_lost=self._lost,
            on_change=self._changed.set,
        )
        self.counts.connections += 1
        return link.down

    def _made(self, link: Link) -> None:
        self._links.add(link)
        if self._closing:  # it was accepted as we closed
            link.down.abort()
        elif self._leaving:  # it was still shaking hands when we began to
            link.leave()

    def _lost(self, link: Link) -> None:
        self._links.discard(link)
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _witness(self, headers: Headers, connection: int) -> StreamWatch | None:
        counts, recording = self.counts, self._recording
        if header(headers, b":path") != grpc.PROCESS:
            counts.other_calls += 1
            return None
        counts.streams += 1
        if recording is None:
            return None
        if (counts.streams - 1) % recording.every:
            counts.sampled_out += 1
            return None
        try:
            if not recording.admit():
                counts.declined += 1
                return None
            counts.recorded += 1
            named = header(headers, recording.named_by) if recording.named_by else None
            name = named.decode("latin-1") if named else f"{recording.name}-{next(self._exchanges)}"
            headers = tuple(one for one in headers if one[0] != recording.named_by)
            return StreamWatch(name, connection, headers, recording, counts, self._failed)
        except Exception as problem:  # noqa: BLE001 - whatever it is, relaying goes on
            counts.failures += 1
            self._failed(problem)
            return None

    def _unreachable(self, problem: ConnectFailed) -> None:
        self.counts.unreachable += 1
        self._tell_unreachable(problem)

    def _not_http2(self, first: bytes) -> None:
        line = first.partition(b"\r\n")[0].decode("ascii", "replace")
        tls = "TLS, and is served plaintext"
        self._unopened(f"it speaks {tls if first[:1] == _TLS else f'no HTTP/2, and begins with {line!r}'}")

    def _unopened(self, why: str) -> None:
        self.counts.unopened += 1
        self._tell_unopened(why)

    def _failed(self, problem: Exception) -> None:
        if self.counts.failures <= _REPORTED:
            log.warning("recording failed, relaying goes on: %s", problem, exc_info=problem)
