"""The upstream attempts of one exchange: carried out one after the other, and recorded.

The record of an attempt's request is written when it is complete or its fate is known, so that it holds what was sent;
that of its response when the response is complete or broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ext_proc.record import Recorder, UpstreamRequest, UpstreamResponse
from fake_proxy.actions import HeaderList, OpenUpstream
from fake_proxy.header_map import get
from fake_proxy.kept_body import KeptBody
from fake_proxy.router import Failure
from fake_proxy.upstream import Attempt, Upstream, UpstreamEvents

Outcome: TypeAlias = Literal["response", "connect-failed", "reset"]


@dataclass(slots=True)
class _Current:
    """The attempt under way and what was seen of it."""

    opening: OpenUpstream
    request_body: KeptBody
    request_trailers: HeaderList
    response_body: KeptBody
    response_headers: HeaderList = field(default_factory=list)
    response_trailers: HeaderList = field(default_factory=list)
    request_recorded: bool = False


class Attempts:
    """Opens attempts at `upstream`, passes their events on to `events` and records both sides.

    Events of an attempt that is no longer under way are dropped. `keep`: bytes of each body that are recorded.
    """

    def __init__(
        self,
        upstream: Upstream,
        events: UpstreamEvents,
        recorder: Recorder,
        exchange: str,
        clock: Callable[[], float],
        keep: int | None = None,
    ) -> None:
        self._upstream = upstream
        self._events = events
        self._recorder = recorder
        self._exchange = exchange
        self._clock = clock
        self._keep = keep
        self._began: float | None = None
        self._current: _Current | None = None
        self._made: list[Attempt] = []
        self._endpoints: list[str] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints tried, in order."""
        return tuple(self._endpoints)

    @property
    def service_ms(self) -> int:
        """Milliseconds since the first attempt began, as Envoy tells in `x-envoy-upstream-service-time`."""
        return int((self._clock() - self._began) * 1000) if self._began is not None else 0

    # -- the request ---------------------------------------------------------------------------------------------------

    def open(self, opening: OpenUpstream) -> None:
        """Start an attempt."""
        if self._began is None:
            self._began = self._clock()
        self._endpoints.append(opening.endpoint)
        request = KeptBody(self._keep, opening.body)
        self._current = _Current(opening, request, opening.trailers or [], KeptBody(self._keep))
        if opening.end:
            self._record_request(self._current)
        self._made.append(self._upstream.open(opening, self))

    def send_data(self, data: bytes, end: bool) -> None:
        """More request body."""
        if self._current is not None:
            self._current.request_body.add(data)
            self._made[-1].data(data, end)
            if end:
                self._record_request(self._current)

    def send_trailers(self, trailers: HeaderList) -> None:
        """The request ends."""
        if self._current is not None:
            self._current.request_trailers = trailers
            self._made[-1].trailers(trailers)
            self._record_request(self._current)

    @property
    def unsent(self) -> int:
        """Bytes of the request that the model server has not taken."""
        return self._made[-1].unsent if self._current is not None else 0

    async def drain(self) -> None:
        """Wait until the model server takes more of the request, or the attempt is over."""
        if self._current is not None:
            await self._made[-1].drain()

    def abort(self) -> None:
        """Drop the attempt under way, if any."""
        current = self._current
        if current is not None:
            self._record_response(current, "response" if current.response_headers else "reset")
            self._made[-1].abort()

    async def close(self) -> None:
        """Drop the attempt under way and wait until no connection is left."""
        self.abort()
        for attempt in self._made:
            await attempt.wait_closed()
        self._made.clear()

    # -- events of the attempt under way -------------------------------------------------------------------------------

    async def headers(self, attempt: int, headers: HeaderList, end: bool) -> None:
        """The response begins."""
        if (current := self._of(attempt)) is not None:
            current.response_headers = list(headers)
            if end:
                self._record_response(current, "response")
            await self._events.headers(attempt, headers, end)

    async def data(self, attempt: int, data: bytes, end: bool) -> None:
        """Response body."""
        if (current := self._of(attempt)) is not None:
            current.response_body.add(data)
            if end:
                self._record_response(current, "response")
            await self._events.data(attempt, data, end)

    async def trailers(self, attempt: int, trailers: HeaderList) -> None:
        """The response ends with trailers."""
        if (current := self._of(attempt)) is not None:
            current.response_trailers = list(trailers)
            self._record_response(current, "response")
            await self._events.trailers(attempt, trailers)

    async def failed(self, attempt: int, how: Failure) -> None:
        """The attempt broke."""
        if (current := self._of(attempt)) is not None:
            self._record_response(current, "connect-failed" if how == "connect-failed" else "reset")
            await self._events.failed(attempt, how)

    def defect(self, problem: Exception) -> None:
        """An attempt ended with our own error."""
        self._events.defect(problem)

    # ------------------------------------------------------------------------------------------------------------------

    def _of(self, attempt: int) -> _Current | None:
        return self._current if self._current is not None and self._current.opening.attempt == attempt else None

    def _record_request(self, current: _Current) -> None:
        if not current.request_recorded:
            current.request_recorded = True
            self._recorder.emit(
                UpstreamRequest(
                    exchange=self._exchange,
                    attempt=current.opening.attempt,
                    endpoint=current.opening.endpoint,
                    headers=tuple(current.opening.headers),
                    trailers=tuple(current.request_trailers),
                    **current.request_body.recorded,
                )
            )

    def _record_response(self, current: _Current, outcome: Outcome) -> None:
        self._current = None
        self._record_request(current)
        status = get(current.response_headers, b":status")
        self._recorder.emit(
            UpstreamResponse(
                exchange=self._exchange,
                attempt=current.opening.attempt,
                endpoint=current.opening.endpoint,
                outcome=outcome,
                status=int(status) if status is not None else None,
                headers=tuple(current.response_headers),
                trailers=tuple(current.response_trailers),
                **current.response_body.recorded,
            )
        )
