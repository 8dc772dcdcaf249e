"""What a gateway does with a request: ask the EPP, try the endpoints it gave, fail over to the next pool."""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ext_proc.channel import Channel
from ext_proc.messages import ImmediateResponse
from ext_proc.record import Headers, header
from fake_proxy.client import HttpRequest
from real_envoy.http_client import send_request
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import DESTINATION, Answered, Decision, EppUnavailable, Talk, local_reply
from reference_gateway.http import FRAMING, GatewayRequest, GatewayResponse

BUSY = 503
UPSTREAM_TIMEOUT = 10.0
_OWN = FRAMING | {b"expect"}
"""Headers of a request that the gateway makes itself, or has answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPool:
    """An InferencePool: where its EPP is, and its endpoints."""

    epp: str
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a gateway is configured. `subset_header` is the request header of which it makes the subset hint."""

    pools: tuple[BackendPool, ...]
    mode: str = "FULL_DUPLEX_STREAMED"
    retries: int = 3
    fails_open: bool = False
    subset_header: str = "x-subset"
    split_header: str = ""
    """A request header by which requests go to the pools in turn. Then none takes over for another."""
    version: str = "1.0.0"
    http2: bool = True
    """Whether clients may speak HTTP/2 without TLS."""
    keeps_version: bool = False
    """Whether model servers are spoken to in the HTTP version of the client."""
    continues: bool = True
    """Whether clients that expect 100 get it."""
    cut_is_whole: bool = False
    """Whether the end of a client is taken for the end of its request: a fault."""
    keeps: int = 1 << 30
    """The longest body that is kept for another attempt."""


@dataclass(slots=True)
class PoolOutcome:
    """What came of a pool. `endpoint` is None if the response is the gateway's own."""

    response: GatewayResponse
    endpoint: str | None
    tried: list[str]

    @property
    def failed(self) -> bool:
        """Whether another pool might do better."""
        return self.response.status == BUSY


class Gateway:
    """A right gateway. Faults are subclasses that do one thing wrongly."""

    talk_type: type[Talk] = Talk

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.channels = {pool.epp: Channel(pool.epp, timeout=4.0) for pool in settings.pools}
        self._turn, self._share = itertools.count(), itertools.count()

    async def close(self) -> None:
        """Leave the EPPs."""
        for channel in self.channels.values():
            await channel.close()

    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        """Answer a request."""
        request, subset = self.admit(request)
        if not self.asks(request):
            pool = self.settings.pools[0]
            return (await self.forward(request, self.unsteered(pool), [])).response
        outcome: PoolOutcome | None = None
        pools = self.route(request)
        for number, pool in enumerate(pools):
            talk = self.open(pool, subset, before=outcome)
            try:
                outcome = await self.through(pool, talk, request, before=outcome)
                if outcome.failed and number + 1 < len(pools):
                    continue
                return await talk.tell(outcome.response, outcome.endpoint, outcome.tried)
            except Answered as answer:
                return await self.answered(answer.response, pool, request)
            except EppUnavailable as problem:
                return await self.without_epp(pool, request, str(problem))
            finally:
                talk.close()
        raise AssertionError("there is at least one pool")

    # -- steps, of which faults do one wrongly -------------------------------------------------------------------------

    def admit(self, request: GatewayRequest) -> tuple[GatewayRequest, list[str] | None]:
        """The request without what a client has no say in, and the subset hint that it is for."""
        name = self.settings.subset_header.encode()
        subset = header(request.headers, name)
        ours = (name, DESTINATION.encode())
        kept = tuple(pair for pair in request.headers if pair[0] not in ours)
        hint = None if subset is None else [one for one in subset.decode("latin-1").split(",") if one]
        return dataclasses.replace(request, headers=kept), hint

    def route(self, request: GatewayRequest) -> Sequence[BackendPool]:
        """The pools for a request: all, each for when the one before fails; of a split, one."""
        pools = self.settings.pools
        if not self.settings.split_header:
            return pools
        return (pools[next(self._share) % len(pools)],) if self.splits(request) else pools[:1]

    def splits(self, request: GatewayRequest) -> bool:
        """Whether a request is for the route that splits."""
        return header(request.headers, self.settings.split_header.encode()) is not None

    def asks(self, request: GatewayRequest) -> bool:
        """Whether the EPP is asked about the request."""
        return bool(request.method)

    def open(self, pool: BackendPool, subset: list[str] | None, *, before: PoolOutcome | None) -> Talk:
        """A conversation with the EPP of a pool; `before` is what came of the pool before it."""
        if before is not None or subset is None:
            subset = list(pool.endpoints)
        return self.talk_type(self.channels[pool.epp], self.settings.mode, subset=subset)

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        """The request by way of one pool: its EPP, then the endpoints that it gave."""
        assert before is None or before.failed
        decision = await talk.ask(request)
        released = dataclasses.replace(
            request, headers=decision.headers, body=decision.body, trailers=decision.trailers
        )
        return await self.forward(released, self.walk(decision, pool), [])

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        """The endpoints to try, in order."""
        text = decision.destinations()
        if not text:
            yield from self.unsteered(pool)
            return
        items = [item.strip() for item in text.split(",")]
        if self.settings.version == "0.3.0" and decision.fallback():
            items.append(decision.fallback())
        known = {_canonical(endpoint): endpoint for endpoint in pool.endpoints}
        yield from (known[_canonical(item)] for item in items if _canonical(item) in known)

    def unsteered(self, pool: BackendPool) -> Iterator[str]:
        """The pool in turn, for requests that no EPP steers."""
        start = next(self._turn)
        for number in range(len(pool.endpoints)):
            yield pool.endpoints[(start + number) % len(pool.endpoints)]

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        """Try one endpoint after the other, as often as retries allow."""
        busy: PoolOutcome | None = None
        retries = self.settings.retries if len(request.body) <= self.settings.keeps else 0
        for endpoint in itertools.islice(endpoints, retries + 1):
            tried.append(endpoint)
            got = await self.attempt(endpoint, request)
            if got is None:
                continue
            busy = PoolOutcome(_passed_on(got), endpoint, list(tried))
            if got.status != BUSY:
                return busy
        if busy is not None and busy.endpoint == tried[-1]:
            return busy
        text = b"no healthy upstream"
        return PoolOutcome(
            GatewayResponse(status=BUSY, headers=((b"content-type", b"text/plain"),), body=text), None, tried
        )

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        """The request at an endpoint; None if there is no whole response."""
        sent = HttpRequest(
            method=request.method,
            path=request.path,
            authority=request.authority,
            headers=tuple(pair for pair in request.headers if pair[0] not in _OWN),
            body=request.body,
            trailers=request.trailers,
            request_id="",
            http=request.http if self.settings.keeps_version else 1,
        )
        try:
            got = await send_request(endpoint, sent, timeout=UPSTREAM_TIMEOUT)
        except OSError:
            return None
        return got if self.is_whole(got) else None

    def is_whole(self, got: HttpResponse) -> bool:
        """Whether a model server's response has its end."""
        return got.complete and got.status is not None

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        """What the client gets when the EPP answered itself."""
        assert pool.epp
        assert request.method
        return local_reply(answer)

    async def without_epp(self, pool: BackendPool, request: GatewayRequest, problem: str) -> GatewayResponse:
        """What becomes of a request whose EPP can't be asked."""
        if self.settings.fails_open:
            return (await self.forward(request, self.unsteered(pool), [])).response
        return GatewayResponse(status=500, headers=((b"content-type", b"text/plain"),), body=problem.encode())


def _passed_on(got: HttpResponse) -> GatewayResponse:
    assert got.status is not None
    headers: Headers = tuple((name.lower(), value) for name, value in got.headers if name.lower() not in FRAMING)
    return GatewayResponse(status=got.status, headers=headers, body=got.body, trailers=got.trailers)


def _canonical(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    try:
        return f"{ipaddress.ip_address(host.strip('[]'))} {int(port)}"
    except ValueError:
        return ""
