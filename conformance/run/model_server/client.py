"""The HTTP client of a model server under test: every answer is bounded in time and size, and nothing raises.

Redirects are followed for the page of metrics alone, as EPPs do; proxies of the environment are never used.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from conformance.printable import plural
from conformance.run.model_server.requests import ServerRequest
from conformance.targets.model_server import ModelServerProfile
from ext_proc.record import Headers
from ext_proc.turns import Turns

MOST = 16 * 1024 * 1024
"""Bytes of an answer, at most: pages of large servers have a third of a megabyte."""

REDIRECTS = 5
"""How often the page of metrics may be elsewhere."""

AT_ONCE = 0.5
"""Seconds within which a server that had closed a connection before a request came says so."""

CONNECT = 5.0
"""Seconds that a connection may take."""

_REJECTED = re.compile("certificate verify failed: ([^(]*(?:expired|not yet valid|mismatch)[^(]*?)\\.? \\(_ssl")
"""What is wrong with a certificate by itself, in OpenSSL's words."""

Outcome = Literal["response", "failed", "expired", "endless"]


@dataclass(slots=True, kw_only=True)
class Got:
    """What came back: `outcome` is `response` for a complete one, else why there is none; `details` in words."""

    outcome: Outcome = "response"
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    details: str = ""
    seconds: float = 0.0
    waited: float = 0.0
    """The limit in seconds that ran out, if one did."""

    @property
    def content_type(self) -> str:
        """Its content type; empty if it says none."""
        return next((value.decode("latin-1") for name, value in self.headers if name.lower() == b"content-type"), "")


class ServerClient:
    """Asks the server at `url`, whose page of metrics is at `page_url`. Use as an async context manager. `late` says
    how many of the last so many seconds are not the server's."""

    def __init__(
        self, profile: ModelServerProfile, url: str, page_url: str, late: Callable[[float], float] = lambda _: 0.0
    ) -> None:
        self._late = late
        self.url = url
        self.page_url = page_url
        self._profile = profile
        verify: ssl.SSLContext | bool = True
        if profile.ca is not None:
            verify = ssl.create_default_context(cafile=profile.ca)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        timeout = httpx.Timeout(profile.timeouts.answer, connect=CONNECT)
        self._http = httpx.AsyncClient(
            verify=verify, timeout=timeout, limits=limits, trust_env=False, follow_redirects=False
        )
        del self._http.headers["accept"]  # an EPP says none, and a page may depend on it
        self._http.headers["accept-encoding"] = "identity"
        self._http.headers["user-agent"] = "epp-conformance"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._http.aclose()

    async def page(self, *, gzip: bool = True) -> Got:
        """The page of metrics, as an EPP asks for it: Go's HTTP client takes gzip unless told otherwise, and unpacks
        it. Keys of requests go to the serving address alone."""
        own = httpx.URL(self.page_url).host == httpx.URL(self.url).host
        left_out = (b"accept-encoding",) if own else (b"accept-encoding", b"authorization")
        headers = [(name, value) for name, value in self._http.headers.raw if name.lower() not in left_out]
        headers.append((b"accept-encoding", b"gzip" if gzip else b"identity"))
        if own:
            headers += self._own_headers()
        limit = self._profile.timeouts.scrape
        request = self._http.build_request("GET", self.page_url, headers=headers)
        got = await self._take(request, begin=limit, end=limit, follow=True)
        return _unpacked(got) if gzip else got

    async def ask(
        self,
        request: ServerRequest,
        *,
        begin: float | None = None,
        whole: float | None = None,
        seen: Callable[[bytes], object] | None = None,
    ) -> Got:
        """The answer to a request. `begin` bounds the seconds to its first byte, `whole` those from there to its last
        (default: those of answers); `seen` gets each piece of the body as it comes."""
        limit = self._profile.timeouts.answer
        made = self._http.build_request(
            request.method, self.url + request.path, headers=request.headers, content=request.body or None
        )
        begin = limit if begin is None else min(begin, limit)
        return await self._take(made, begin=begin, end=limit if whole is None else whole, seen=seen)

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        requests = self._profile.requests
        own = {**requests.headers, **requests.secret_headers}
        return [(name.encode(), value.encode()) for name, value in own.items()]

    async def _take(
        self,
        request: httpx.Request,
        *,
        begin: float,
        end: float,
        follow: bool = False,
        seen: Callable[[bytes], object] | None = None,
    ) -> Got:
        loop = asyncio.get_running_loop()
        began = loop.time()
        got, chunks, size = Got(), list[bytes](), 0

        async def read() -> None:
            nonlocal size
            turns = Turns()
            async with self._sent(request, follow=follow) as response:
                got.status = response.status_code
                got.headers = tuple((name.lower(), value) for name, value in response.headers.raw)
                async for chunk in response.aiter_raw():
                    if not size and not limit.expired():
                        limit.reschedule(loop.time() + end)
                    await turns.taken()
                    size += len(chunk)
                    chunks.append(chunk)
                    if seen is not None:
                        seen(chunk)
                    if size > MOST:
                        got.outcome, got.details = "endless", f"more than {MOST // 1024 // 1024} MB, and no end"
                        break

        try:
            async with asyncio.timeout(begin) as limit:
                reading = asyncio.ensure_future(read())
                try:
                    await asyncio.shield(reading)
                finally:  # cancelled once, whatever happens here: httpcore leaves open what is cancelled as it closes
                    reading.cancel()
                    await asyncio.wait([reading])
                    if not reading.cancelled():
                        reading.exception()  # it may have failed just when its time was over
        except TimeoutError:
            got.waited = end if size else begin
            if size:
                got.outcome, got.details = "endless", f"{plural(size, 'byte')} in {end:g} s, and no end"
            else:
                got.outcome, got.details = "expired", f"no answer within {begin:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as problem:
            got.waited = CONNECT if isinstance(problem, httpx.ConnectTimeout) else 0.0
            got.outcome, got.details = "failed", _in_words(problem)
        got.body = b"".join(chunks)[:MOST]
        got.seconds = loop.time() - began
        return got

    def _elsewhere(self, request: httpx.Request) -> httpx.Request:
        """A redirected request, without the keys if it goes to another host."""
        if request.url.host != httpx.URL(self.url).host:
            for name, _ in self._own_headers():
                request.headers.pop(name.decode(), None)
        return request

    @contextlib.asynccontextmanager
    async def _sent(self, request: httpx.Request, *, follow: bool) -> AsyncIterator[httpx.Response]:
        response = await self._begun(request)
        for _ in range(REDIRECTS if follow else 0):
            if response.next_request is None:
                break
            await response.aclose()
            response = await self._http.send(self._elsewhere(response.next_request), stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _begun(self, request: httpx.Request) -> httpx.Response:
        """The response, whose body is still to come. A server may close a connection that has been used before at any
        time (RFC 9112, section 9.5): what it closed at once, in place of an answer, is sent again on another."""
        loop = asyncio.get_running_loop()
        while True:
            fresh, began = False, loop.time()

            async def traced(name: str, _: Any) -> None:
                nonlocal fresh
                fresh = fresh or name == "connection.connect_tcp.started"

            request.extensions = {**request.extensions, "trace": traced}
            try:
                return await self._http.send(request, stream=True)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                took = loop.time() - began
                if fresh or (took > AT_ONCE and took - self._late(took) > AT_ONCE):
                    raise


def _unpacked(got: Got) -> Got:
    """An answer without its gzip, if it says that it has some; `failed` or `endless` if that can't be taken off."""
    coding = next((value for name, value in got.headers if name == b"content-encoding"), b"")
    if got.outcome != "response" or coding.strip().lower() != b"gzip":
        return got
    packed, pieces, room = got.body, list[bytes](), MOST
    while packed and room > 0:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            pieces.append(unpacker.decompress(packed, room))
        except zlib.error:
            break
        room -= len(pieces[-1])
        if not unpacker.eof:
            break
        packed = unpacker.unused_data
    if room <= 0:
        got.outcome, got.details = "endless", f"more than {MOST // 1024 // 1024} MB when unpacked"
    elif packed:
        got.outcome = "failed"
        got.details = (
            f"it says content-encoding: gzip, and its {plural(len(got.body), 'byte is', 'bytes are')} no complete gzip"
        )
    got.body = b"".join(pieces)
    return got


def _in_words(problem: Exception) -> str:
    """A failure of the connection, as a sentence's end."""
    text = str(problem) or type(problem).__name__
    if rejected := _REJECTED.search(text):
        return f"its certificate was rejected: {rejected[1]}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is signed by none that is trusted here"
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "it does not speak TLS"
    if isinstance(problem, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(problem, httpx.ConnectError):
        return f"no connection ({text})"
    if isinstance(problem, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(problem, httpx.RemoteProtocolError):
        return f"the connection ended, or no HTTP came ({text})"
    return f"the connection failed ({text})"
