"""One fake model server: its listeners, its ranks and their gauges, its faults, and what it answers."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Callable

from fake_modelserver import openai
from fake_modelserver.addresses import Address, bind
from fake_modelserver.connection import Connection, Connections
from fake_modelserver.exporter import Exporter
from fake_modelserver.faults.befall import befall
from fake_modelserver.faults.fault import Active, Fault, Faults
from fake_modelserver.faults.kinds import FaultType
from fake_modelserver.faults.metrics import NAME as METRICS
from fake_modelserver.faults.metrics import MetricsFault
from fake_modelserver.gauges import Gauges
from fake_modelserver.messages import Request, Response, error_response, json_response
from fake_modelserver.ranks import Ranks
from fake_modelserver.record import ScrapeStarted, Served
from fake_modelserver.reply import HEADER, BadReplyError, Reply
from fake_modelserver.signals import Signal
from fake_modelserver.spec import PodSpec


class Pod:
    """A running fake model server. Made by `Fleet.add`; every method belongs to the fleet's event loop."""

    def __init__(
        self,
        spec: PodSpec,
        addresses: tuple[Address, ...],
        *,
        metrics_address: Address | None = None,
        on_scrape: Callable[[ScrapeStarted], None] | None = None,
        on_request: Callable[[Served], None] | None = None,
        script: Callable[[Request], Response | None] | None = None,
        keep_body: int = 16384,
    ) -> None:
        self.spec = spec
        self.addresses = addresses
        self.metrics_address = metrics_address
        """Where the page is, if it has a port for itself."""
        self.adapters: frozenset[str] = frozenset(spec.adapters)
        """LoRA adapters accepted as `model`, besides those in the gauges. May be replaced."""
        self.healthy = True
        """What /health says: 200 or 503. May be changed."""
        self.scrapes = 0
        """How many scrapes have started."""
        self.served = 0
        """How many requests other than scrapes have arrived."""
        self._kind = spec.kind
        self._on_scrape, self._on_request, self._keep_body = on_scrape, on_request, keep_body
        self.script = script
        """Gives the answer to a request, or None for its own. May be set."""
        self.faults = Faults(spec.page_path, seed=spec.name)
        """What is wrong with it. Look here; change by `inject` and `heal`."""
        self._metrics_fault: MetricsFault | None = None
        self._ranks = Ranks(spec)
        self._servers: list[asyncio.Server] = []
        self.peers = Connections()
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
        """`ip:port` of every serving port."""
        return tuple(str(address) for address in self.addresses)

    @property
    def metrics_endpoint(self) -> str:
        """`ip:port` where the page is; with a page for each rank, that of the first."""
        return str(self.metrics_address or self.addresses[0])

    # -- listening -----------------------------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """True if the pod listens; False if connections to it are refused."""
        return bool(self._servers)

    @property
    def connections(self) -> int:
        """How many client connections are open."""
        return len(self.peers)

    async def accept(self) -> None:
        """Listen on every port; nothing happens if the pod listens already.

        Raises `AddressTakenError`, `AddressUnavailableError`.
        """
        if self._servers:
            return
        self.peers.welcome = True
        bound: list[Address] = []
        try:
            for index, address in enumerate(self.addresses):
                page = min(index, len(self._ranks.exporters) - 1) if self.metrics_address is None else None
                bound.append(await self._listen(address, page, serves=True))
            if self.metrics_address is not None:
                self.metrics_address = await self._listen(self.metrics_address, 0, serves=False)
        except BaseException:
            await self.refuse()
            raise
        self.addresses = tuple(bound)  # port 0 has become a real one, which the pod keeps

    async def _listen(self, address: Address, page: int | None, *, serves: bool) -> Address:
        sock = bind(address.host, address.port)
        bound = Address(address.host, sock.getsockname()[1])
        answer = functools.partial(self._answer, bound, page, serves)
        factory = functools.partial(Connection, answer, self.peers)
        try:
            self._servers.append(await asyncio.get_running_loop().create_server(factory, sock=sock, backlog=2048))
        except BaseException:
            sock.close()
            raise
        return bound

    async def refuse(self) -> None:
        """Stop listening and drop every connection: what a crashed pod looks like. `accept` brings it back."""
        servers, self._servers = self._servers, []
        self.peers.welcome = False
        for server in servers:
            server.close()
        await self.peers.abort()
        for server in servers:
            await server.wait_closed()

    async def close(self) -> None:
        """`refuse`, and end every wait for a scrape."""
        await self.refuse()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(False)

    # -- gauges --------------------------------------------------------------------------------------------------------

    @property
    def gauges(self) -> Gauges:
        """What the first rank reports. Set a new value (`dataclasses.replace`) to change it, all at once."""
        return self._ranks.ranks[0].gauges

    @gauges.setter
    def gauges(self, gauges: Gauges) -> None:
        self._ranks.set(gauges, 0)

    @property
    def all_gauges(self) -> tuple[Gauges, ...]:
        """What every rank reports."""
        self._ranks.refresh()
        return tuple(rank.gauges for rank in self._ranks.ranks)

    def set_gauges(self, gauges: Gauges, *, rank: int = 0) -> None:
        """Set what the rank at that place reports (0 is the first).

        A pod that takes requests by a model has `queue`, `running` and `kv` pinned so. Raises `IndexError`.
        """
        self._ranks.set(gauges, rank)

    def pin(self, gauge: str, signal: Signal, *, rank: int = 0) -> None:
        """Let `queue`, `running` or `kv` of a rank follow `signal` from now on, whatever happens.

        Raises `ValueError` if that leaves the range of the gauge, `IndexError`.
        """
        self._ranks.pin(gauge, signal, rank)

    def unpin(self, gauge: str | None = None, *, rank: int = 0) -> bool:
        """Let a gauge (None: all) be again what it is by itself; False if it was not pinned."""
        return self._ranks.unpin(gauge, rank)

    def pinned(self, *, rank: int = 0) -> dict[str, Signal]:
        """The gauges of a rank that are pinned, and what they follow."""
        return self._ranks.pinned(rank)

    def page(self, *, rank: int = 0) -> bytes:
        """The page that shows the rank at that place, without its faults and without a scrape."""
        self._ranks.refresh()
        return self._ranks.exporters[min(rank, len(self._ranks.exporters) - 1)].render()

    async def restart(self, *, down: float = 0.0) -> None:
        """End as a process does, and after `down` seconds begin again: no connection, counters at zero."""
        await self.refuse()
        self._ranks.restart()
        await asyncio.sleep(down)
        await self.accept()

    # -- faults --------------------------------------------------------------------------------------------------------

    async def inject(self, fault: Fault) -> None:
        """Let `fault` come, in the place of one of the same name. Raises `ValueError` if this pod can't have it."""
        known = {name for family in self._kind.families for name in (family.name, family.meaning) if name}
        if unknown := sorted(set(fault.attributes.get("families", ())) - known):
            raise ValueError(f"families: {unknown[0]!r} is not on this page; known: {', '.join(sorted(known))}")
        active = self.faults.add(fault)
        active.kept = {id(exporter): exporter.render() for exporter in self._ranks.exporters}
        if fault.type is FaultType.DOWN:
            await self.refuse()
            if fault.duration is not None:
                asyncio.get_running_loop().call_later(fault.duration / 1000, self._up_again, active)

    async def heal(self, name: str | None = None) -> bool:
        """Let the fault of that name go, or all; False if there was none."""
        gone = [active.fault for active in self.faults if name in (None, active.fault.name)]
        for fault in gone:
            self.faults.remove(fault.name)
        if any(fault.type is FaultType.DOWN for fault in gone):
            await self.accept()
        return bool(gone)

    def _up_again(self, active: Active) -> None:
        if active in tuple(self.faults):
            self._waking = asyncio.get_running_loop().create_task(self.heal(active.fault.name))
            self._waking.add_done_callback(lambda task: task.cancelled() or task.result())  # the loop tells of errors

    @property
    def metrics_fault(self) -> MetricsFault | None:
        """How the page fails now; None: it does not. May be set."""
        return self._metrics_fault

    @metrics_fault.setter
    def metrics_fault(self, fault: MetricsFault | None) -> None:
        self._metrics_fault = fault
        self.faults.remove(METRICS)
        if fault is not None:
            active = self.faults.add(fault.fault(self.spec.page_path))
            active.kept = {id(exporter): exporter.render() for exporter in self._ranks.exporters}

    # -- scrapes -------------------------------------------------------------------------------------------------------

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

    def _scrape(self, exporter: Exporter, request: Request, met: list[Active]) -> Response:
        self.scrapes += 1
        if self._on_scrape is not None:
            outcome = "+".join([active.fault.type.value for active in met]) or "ok"
            self._on_scrape(ScrapeStarted(pod=self.name, t=time.monotonic_ns(), outcome=outcome))
        for target, future in self._waiting:
            if self.scrapes >= target and not future.done():
                future.set_result(True)
        self._ranks.refresh()
        return exporter.serve(request, met)

    # -- answering -----------------------------------------------------------------------------------------------------

    def _answer(self, address: Address, page: int | None, serves: bool, request: Request) -> Response:
        path = request.path
        exporter = None if page is None else self._ranks.exporters[page]
        met = self.faults.meet(path) if self.faults else []
        if exporter is not None and path == self.spec.page_path and request.method in ("GET", "HEAD"):
            response = self._scrape(exporter, request, met)
            return self._with_faults(response, met) if met else response
        if exporter is not None and self._kind.iterations and path == "/metrics" and request.method == "GET":
            response = exporter.iterations()
        elif not serves:
            response = self._refused(404, f"{path} is not served on this port.")
        else:
            response = self._served(request, page)
        if met:
            response = self._with_faults(response, met)
        self._record(address, request, response)
        return response

    def _with_faults(self, response: Response, met: list[Active]) -> Response:
        running = sum(gauges.running for gauges in self.all_gauges)
        return befall(response, met, chance=self.faults.random, running=running, refusal=self._refused)

    def _refused(self, status: int, message: str) -> Response:
        kind = {404: "NotFoundError"}.get(status, "BadRequestError" if status < 500 else "InternalServerError")
        return error_response(status, message, kind=kind, shape=self._kind.errors)

    def _served(self, request: Request, page: int | None) -> Response:
        script = request.header(HEADER)
        scripted = self.script(request) if self.script is not None else None
        if scripted is not None:
            return scripted
        if script is None:
            return self._own(request, page)
        try:
            return Reply.parse(script).response(request, self.name, lambda: self._own(request, page))
        except BadReplyError as problem:
            return error_response(400, f"{HEADER.decode()}: {problem}", param=HEADER.decode())

    def _own(self, request: Request, page: int | None) -> Response:
        path = request.path
        if path in _COMPLETIONS and request.method == "POST":
            return self._completed(request, page if self.spec.rank_ports else None)
        method, serve = _ROUTES.get(path, ("GET", None))
        if serve is None and path in (self._kind.load_paths or ()) and self.spec.adapters_loadable:
            method, serve = "POST", _change_adapter
        if serve is None and path.startswith("/v1/models/") and not self._kind.names_checked:
            serve = _one_model
        if path in _COMPLETIONS:
            method = "POST"
        elif serve is None:
            return self._refused(404, f"{path} is not served here.")
        if serve is None or (request.method != method and (request.method, method) != ("HEAD", "GET")):
            answer = self._refused(405, f"{path} takes {method}.")
            return Response(status=405, headers=(*answer.headers, (b"allow", method.encode())), body=answer.body)
        return serve(self, request, self._catalogue)

    def _completed(self, request: Request, rank: int | None) -> Response:
        serving = self.spec.serving
        return openai.completions(
            request,
            self._catalogue,
            chat=_COMPLETIONS[request.path],
            natural=serving.output_tokens if serving else None,
            generate=functools.partial(self._ranks.generate, rank=rank) if serving else None,
        )

    @property
    def _catalogue(self) -> openai.Catalogue:
        loaded = self.adapters.union(*[rank.gauges.adapters for rank in self._ranks.ranks])
        return openai.Catalogue(
            pod=self.name, models=self.spec.models, adapters=loaded, any_model=self.spec.any_model, kind=self._kind
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
                answer_headers=response.headers,
                answer_body=response.whole(request.method),
            )
        )


def _one_model(_: Pod, request: Request, catalogue: openai.Catalogue) -> Response:
    return openai.model(catalogue, request.path.removeprefix("/v1/models/"))


def _change_adapter(pod: Pod, request: Request, catalogue: openai.Catalogue) -> Response:
    load = "/unload" not in request.path
    response, name = openai.adapter_change(request, catalogue, load=load)
    if name is not None:
        pod.adapters = pod.adapters | {name} if load else pod.adapters - {name}
    return response


_COMPLETIONS = {"/v1/completions": False, "/v1/chat/completions": True}
"""Where completions are, and whether they are of a chat."""

_ROUTES: dict[str, tuple[str, Callable[[Pod, Request, openai.Catalogue], Response]]] = {
    "/v1/models": ("GET", lambda _, __, catalogue: openai.models(catalogue)),
    **dict.fromkeys(("/health", "/ping"), ("GET", lambda pod, _, __: Response(status=200 if pod.healthy else 503))),
    "/version": ("GET", lambda pod, _, __: json_response(200, {"version": pod.spec.kind.name})),
}
