"""A small HTTP/1.1 client for GET /metrics: at 20 scrapes a second and endpoint, a general one costs too much."""

from __future__ import annotations

import asyncio

import httptools

from reference_epp.endpoints import Endpoint

PAGE_LIMIT = 8 * 1024 * 1024
"""Bytes of a page above which it is given up."""


class MetricsConnection(asyncio.Protocol):
    """A connection to one model server that stays open from scrape to scrape; one request at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._request = f"GET /metrics HTTP/1.1\r\nhost: {endpoint}\r\naccept: text/plain\r\n\r\n".encode()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._page = bytearray()
        self._ends_with_connection = False

    @classmethod
    async def open(cls, endpoint: Endpoint) -> MetricsConnection:
        """Connect to `endpoint`. Raises `OSError` if that fails."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(endpoint), endpoint.ip, endpoint.port)
        return connection

    @property
    def closed(self) -> bool:
        """True once the connection is of no more use."""
        return self._transport is None

    async def fetch(self) -> bytes:
        """The page. Raises `OSError` if the connection breaks, `ValueError` if the answer is not a usable 200."""
        if self._transport is None:
            raise ConnectionResetError("connection closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await self._answer

    def close(self) -> None:
        """Close the connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no subclass of asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._ends_with_connection and exc is None:
            self.on_message_complete()
        self._settle(ConnectionResetError(str(exc or "connection closed")))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            self._settle(ValueError(f"not an HTTP answer: {problem}"))
            self.close()

    # -- what the parser calls

    def on_message_begin(self) -> None:
        self._page.clear()
        self._ends_with_connection = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-length" or (name.lower() == b"transfer-encoding" and b"chunked" in value.lower()):
            self._ends_with_connection = False

    def on_body(self, data: bytes) -> None:
        self._page += data
        if len(self._page) > PAGE_LIMIT:
            self._settle(ValueError(f"page is longer than {PAGE_LIMIT} bytes"))
            self.close()

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._settle(bytes(self._page) if status == 200 else ValueError(f"status {status}"))
        if not self._parser.should_keep_alive():
            self.close()

    def _settle(self, answer: bytes | Exception) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(answer, bytes):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)
