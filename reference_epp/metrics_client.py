"""A small HTTP/1.1 client for GET /metrics: at 20 scrapes a second and endpoint, a general one costs too much."""

from __future__ import annotations

import asyncio

import httptools

from reference_epp.endpoints import Endpoint

PAGE_LIMIT = 8 * 1024 * 1024
"""Bytes of a page above which it is given up."""

_READ = 256 * 1024
"""Bytes that are read at once."""


class MetricsConnection:
    """A connection to one model server that stays open from scrape to scrape; one request at a time."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._request = f"GET /metrics HTTP/1.1\r\nhost: {endpoint}\r\naccept: text/plain\r\n\r\n".encode()
        self._reader = reader
        self._writer = writer
        self._parser = httptools.HttpResponseParser(self)
        self._page = bytearray()
        self._complete = False
        self._ends_with_connection = False

    @classmethod
    async def open(cls, endpoint: Endpoint) -> MetricsConnection:
        """Connect to `endpoint`. Raises `OSError` if that fails."""
        return cls(endpoint, *await asyncio.open_connection(endpoint.ip, endpoint.port))

    @property
    def closed(self) -> bool:
        """True once the connection is of no more use."""
        return self._writer.is_closing() or self._reader.at_eof() or self._reader.exception() is not None

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def fetch(self) -> bytes:
        """The page. Raises `OSError` if the connection breaks, `ValueError` if the answer is not a usable 200.

        After either the connection is of no more use.
        """
        self._page.clear()
        self._complete = self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)
        if self.closed:  # uvloop raises RuntimeError where the connection broke as it was made
            raise ConnectionResetError("connection closed")
        self._writer.write(self._request)
        while not self._complete:
            data = await self._reader.read(_READ)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as problem:
                raise ValueError(f"not an HTTP answer: {problem}") from None
            if len(self._page) > PAGE_LIMIT:
                raise ValueError(f"page is longer than {PAGE_LIMIT} bytes")
            if not data:
                if not self._ends_with_connection:
                    raise ConnectionResetError("connection closed")
                break
        if (status := self._parser.get_status_code()) != 200:
            raise ValueError(f"status {status}")
        return bytes(self._page)

    # -- what the parser calls

    def on_message_begin(self) -> None:
        self._ends_with_connection = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-length" or (name.lower() == b"transfer-encoding" and b"chunked" in value.lower()):
            self._ends_with_connection = False

    def on_body(self, data: bytes) -> None:
        self._page += data

    def on_message_complete(self) -> None:
        self._complete = True
        if not self._parser.should_keep_alive():
            self.close()
