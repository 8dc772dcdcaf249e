"""An HTTP/1.1 connection to a gateway for several requests, one after the other, as clients with a pool have them."""

from __future__ import annotations

import asyncio

from fake_proxy.client import HttpRequest
from real_envoy.http_client import Http1Exchange, request_headers
from real_envoy.http_response import HttpResponse, ResponseParts


class KeptConnection:
    """Opened for its first request, and again where the gateway has closed it, with a response or after it: it may do
    so at any time (RFC 9112, section 9.5)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._http: Http1Exchange | None = None

    async def __aenter__(self) -> KeptConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, request: HttpRequest, *, timeout: float = 10.0) -> HttpResponse:
        """Send the whole of `request` and read its response. Raises `OSError`, as `send_request` does."""
        response = ResponseParts(None)
        if self._http is not None and not self._http.reusable:
            await self.close()
        if self._http is None:
            http = Http1Exchange(self._address, request, response)
            await http.connect()
            self._http = http
        else:
            self._http.again(request, response)
        try:
            async with asyncio.timeout(timeout):
                await _send(self._http, request)
                await response.over.wait()
        except TimeoutError:
            response.expired = True
        if not (response.complete and self._http.reusable):
            await self.close()
        return response.result()

    async def close(self) -> None:
        """Close it. Idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()


async def _send(http: Http1Exchange, request: HttpRequest) -> None:
    chunked = request.unannounced
    await http.head(request_headers(request, chunked=chunked), chunked=chunked, end=not request.chunks)
    for chunk in request.chunks:
        await http.data(chunk.data, end=False)
    http.end(request.trailers)
