"""One fake model server: its listeners, its gauges and faults, and what it answers."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fake_modelserver import openai
from fake_modelserver.addresses import Address, bind
from fake_modelserver.connection import Connection, Connections
from fake_modelserver.gauges import Gauges
from fake_modelserver.messages import Request, Response, error_response
from fake_modelserver.metrics import CONTENT_TYPE, GARBAGE, Engine, FaultKind, Identity, MetricsFault, render
from fake_modelserver.record import ScrapeStarted, Served
from fake_modelserver.reply import HEADER, BadReplyError, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What a pod is. `name` is unique in its fleet.

    Without `address` the fleet gives one; without `ports` the pod has the fleet's port (or, where pods share an
    address, a port of its own). The pod serves everything on each of its ports. `models` are base models, `adapters`
    LoRA adapters that are accepted besides those in the gauges; `any_model` accepts every name. `engine` says whose
    metric names it has, `engine_label` is the optional label `engine`; `block_size` (tokens) and `num_gpu_blocks`
    describe the KV cache. Raises `ValueError` if a value makes no sense.
    """

    name: str
    address: str | None = None
    ports: tuple[int, ...] = ()
    models: tuple[str, ...] = ("fake-model",)
    adapters: tuple[str, ...] = ()
    any_model: bool = False
    engine: Engine = Engine.VLLM
    engine_label: str | None = None
    block_size: int = 16
    num_gpu_blocks: int = 2048
    gauges: Gauges = field(default_factory=Gauges)

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ValueError(f"name is {self.name!r}; a pod has a printable name")
        if not self.models or not all(self.models):
            raise ValueError(f"models are {self.models!r}; a pod serves at least one, and each has a name")
        if any(not 0 <= port <= 65535 for port in self.ports):
            raise ValueError(f"ports are {self.ports!r}; a port is a number from 0 (any free one) to 65535")
        if self.engine not in set(Engine):
            raise ValueError(f"engine is {self.engine!r}; known: {', '.join(Engine)}")
        if self.block_size < 1 or self.num_gpu_blocks < 1:
            raise ValueError("block_size and num_gpu_blocks are whole numbers from 1")


class Pod:
    """A running fake model server. Made by `Fleet.add`; every method belongs to the fleet's event loop."""

    def __init__(
        self,
        spec: PodSpec,
        addresses: tuple[Address, ...],
        *,
        on_scrape: Callable[[ScrapeStarted], None] | None = None,
        on_request: Callable[[Served], None] | None = None,
        script: Callable[[Request], Response | None] | None = None,
        keep_body: int = 16384,
    ) -> None:
        self.spec = spec
        self.addresses = addresses
        self.adapters: frozenset[str] = frozenset(spec.adapters)
        """LoRA adapters accepted as `model`, besides those in the gauges. May be replaced."""
        self.healthy = True
        """What /health says: 200 or 503. May be changed."""
        self.scrapes = 0
        """How many scrapes have started."""
        self.served = 0
        """How many requests other than scrapes have arrived."""
        self._identity = Identity(
            engine=Engine(spec.engine),
            model_name=spec.models[0],
            engine_label=spec.engine_label,
            block_size=spec.block_size,
            num_gpu_blocks=spec.num_gpu_blocks,
        )
        self._on_scrape, self._on_request, self._keep_body = on_scrape, on_request, keep_body
        self.script = script
        """Gives the answer to a request, or None for its own. May be set."""
        self._gauges, self._updated = spec.gauges, time.time()
        self._fault: MetricsFault | None = None
        self._frozen = b""
        self._page: Response | None = None
        self._servers: list[asyncio.Server] = []
        self._connections = Connections()
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    def __repr__(self) -> str:
        return f"<Pod {self.name} {self.endpoint}{'' if self.accepting else ' refusing'}>"

    @property
    def name(self) -> str:
        """The name in the fleet."""
        return self.spec.name

    @property
    def endpoint(self) -> str:
        """`ip:port` of the first port, as the protocol writes it."""
        return str(self.addresses[0])

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`ip:port` of every port."""
        return tuple(str(address) for address in self.addresses)

    # -- listening -----------------------------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """True if the pod listens; False if connections to it are refused."""
        return bool(self._servers)

    @property
    def connections(self) -> int:
        """How many client connections are open."""
        return len(self._connections)

    async def accept(self) -> None:
        """Listen on every port; nothing happens if the pod listens already.

        Raises `AddressTakenError`, `AddressUnavailableError`.
        """
        if self._servers:
            return
        loop = asyncio.get_running_loop()
        self._connections.welcome = True
        bound: list[Address] = []
        try:
            for address in self.addresses:
                sock = bind(address.host, address.port)
                bound.append(Address(address.host, sock.getsockname()[1]))
                answer = functools.partial(self._answer, bound[-1])
                factory = functools.partial(Connection, answer, self._connections)
                try:
                    self._servers.append(await loop.create_server(factory, sock=sock, backlog=2048))
                except BaseException:
                    sock.close()
                    raise
        except BaseException:
            await self.refuse()
            raise
        self.addresses = tuple(bound)  # port 0 has become a real one, which the pod keeps

    async def refuse(self) -> None:
        """Stop listening and drop every connection: what a crashed pod looks like. `accept` brings it back."""
        servers, self._servers = self._servers, []
        self._connections.welcome = False
        for server in servers:
            server.close()
        await self._connections.abort()
        for server in servers:
            await server.wait_closed()

    async def close(self) -> None:
        """`refuse`, and nobody need wait for a scrape any more."""
        await self.refuse()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(False)

    # -- metrics -------------------------------------------------------------------------------------------------------

    @property
    def gauges(self) -> Gauges:
        """What /metrics reports. Set a new value (`dataclasses.replace`) to change it, all at once."""
        return self._gauges

    @gauges.setter
    def gauges(self, gauges: Gauges) -> None:
        self._gauges, self._updated = gauges, time.time()
        self._page = None

    @property
    def metrics_fault(self) -> MetricsFault | None:
        """How /metrics fails now; None: it does not. May be set."""
        return self._fault

    @metrics_fault.setter
    def metrics_fault(self, fault: MetricsFault | None) -> None:
        self._frozen = render(self._identity, self._gauges, updated=self._updated)
        self._fault = fault
        self._page = None

    def mark(self) -> int:
        """A point in the order of scrapes, for `scraped(after=…)`: take it after a change of the gauges."""
        return self.scrapes

    async def scraped(self, *, times: int = 2, after: int | None = None, timeout: float) -> bool:
        """Wait until `times` scrapes have started after the mark `after` (default: now).

        When two have started, a scraper that asks again only after an answer has read the first: it knows the values
        that were set before the mark. False if `timeout` seconds pass first, or the pod is removed.
        """
        target = (self.scrapes if after is None else after) + times
        if self.scrapes >= target:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (target, future)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _scrape(self) -> Response:
        self.scrapes += 1
        if self._on_scrape is not None:
            outcome = "ok" if self._fault is None else self._fault.kind.value
            self._on_scrape(ScrapeStarted(pod=self.name, t=time.monotonic_ns(), outcome=outcome))
        for target, future in self._waiting:
            if self.scrapes >= target and not future.done():
                future.set_result(True)
        if self._page is None:
            self._page = self._render()
        return self._page

    def _render(self) -> Response:
        fault = self._fault
        headers = ((b"content-type", CONTENT_TYPE),)
        match fault and fault.kind:
            case FaultKind.DOWN:
                return Response(reset=True)
            case FaultKind.GARBAGE:
                return Response(headers=headers, body=GARBAGE)
            case FaultKind.STALE:
                return Response(headers=headers, body=self._frozen)
            case FaultKind.STATUS:
                assert fault is not None
                return error_response(fault.status, "The metrics are out of order.", kind="InternalServerError")
        page = render(self._identity, self._gauges, updated=self._updated, fault=fault)
        delay = fault.delay if fault is not None and fault.kind is FaultKind.SLOW else 0.0
        return Response(headers=headers, body=page, delay=delay)

    # -- answering -----------------------------------------------------------------------------------------------------

    def _answer(self, address: Address, request: Request) -> Response:
        if request.path == "/metrics" and request.method in ("GET", "HEAD"):
            return self._scrape()
        script = request.header(HEADER)
        scripted = self.script(request) if self.script is not None else None
        if scripted is not None:
            response = scripted
        elif script is None:
            response = self._own(request)
        else:
            try:
                response = Reply.parse(script).response(request, self.name, lambda: self._own(request))
            except BadReplyError as problem:
                response = error_response(400, f"{HEADER.decode()}: {problem}", param=HEADER.decode())
        self._record(address, request, response)
        return response

    def _own(self, request: Request) -> Response:
        if request.path == "/health":
            return Response(status=200 if self.healthy else 503)
        if request.path not in _ROUTES:
            return error_response(404, f"{request.path} is not served here.", kind="NotFoundError")
        method, serve = _ROUTES[request.path]
        if request.method != method and (request.method, method) != ("HEAD", "GET"):
            return error_response(405, f"{request.path} takes {method}.", headers=((b"allow", method.encode()),))
        return serve(
            request,
            openai.Catalogue(
                pod=self.name,
                models=self.spec.models,
                adapters=self.adapters | self._gauges.adapters,
                any_model=self.spec.any_model,
            ),
        )

    def _record(self, address: Address, request: Request, response: Response) -> None:
        self.served += 1
        if self._on_request is None:
            return
        self._on_request(
            Served(
                pod=self.name,
                endpoint=str(address),
                t=time.monotonic_ns(),
                method=request.method,
                path=request.target,
                headers=request.headers,
                trailers=request.trailers,
                body=request.body[: self._keep_body],
                body_size=len(request.body),
                body_sha256=hashlib.sha256(request.body).hexdigest(),
                model=openai.model_of(request),
                status=None if response.reset else response.status,
            )
        )


_ROUTES: dict[str, tuple[str, Callable[[Request, openai.Catalogue], Response]]] = {
    "/v1/completions": ("POST", openai.completions),
    "/v1/chat/completions": ("POST", openai.chat_completions),
    "/v1/models": ("GET", lambda _, catalogue: openai.models(catalogue)),
}
