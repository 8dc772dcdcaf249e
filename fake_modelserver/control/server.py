"""The control endpoint: each operation in one table, which routes requests and makes the OpenAPI document."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import ipaddress
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fake_modelserver.addresses import Address, bind
from fake_modelserver.connection import Connection, Connections
from fake_modelserver.control import schema
from fake_modelserver.control.openapi import Operation, document
from fake_modelserver.control.recorder import Recorder
from fake_modelserver.engines import GENERATIONS
from fake_modelserver.errors import FleetError, PodExistsError, UnknownPodError
from fake_modelserver.faults import KINDS
from fake_modelserver.fleet import Fleet
from fake_modelserver.messages import Request, Response, json_response
from fake_modelserver.pod import Pod

_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)


class BadRequestError(Exception):
    """A request that can't be carried out: status, what is wrong and where."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _check_host(request: Request, names: Collection[str]) -> None:
    """Only an address or one of `names` may be asked: by another name a web page could (DNS rebinding)."""
    host = (request.header(b"host") or b"localhost").decode("latin-1")
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname or ""
        if name in names or ipaddress.ip_address(name):
            return
    except ValueError:
        pass
    raise BadRequestError(421, f"this server is not called {host[:200]}")


class Control:
    """Serves the control API of `fleet` on `host`:`port` (0: any free port) between `start` and `stop`."""

    def __init__(self, fleet: Fleet, *, recorder: Recorder, host: str = "127.0.0.1", port: int = 0) -> None:
        self._fleet, self._recorder = fleet, recorder
        self._wanted = Address(host, port)
        self.address: Address | None = None
        """Where it listens."""
        self._server: asyncio.Server | None = None
        self._connections = Connections()

    async def start(self) -> None:
        """Listen. Raises `AddressTakenError`, `AddressUnavailableError`."""
        sock = bind(self._wanted.host, self._wanted.port)
        self.address = Address(self._wanted.host, sock.getsockname()[1])
        factory = functools.partial(Connection, self._answer, self._connections)
        self._server = await asyncio.get_running_loop().create_server(factory, sock=sock)

    async def stop(self) -> None:
        """Stop listening and drop every connection. Idempotent."""
        server, self._server = self._server, None
        self._connections.welcome = False
        if server is not None:
            server.close()
            await self._connections.abort()
            await server.wait_closed()

    async def __aenter__(self) -> Control:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- routing -------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Response:
        return Response(later=functools.partial(self._operate, request))

    async def _operate(self, request: Request) -> Response:
        try:
            _check_host(request, {self._wanted.host, "localhost"})
            operation, parameters = _find(request)
            query = dict(urllib.parse.parse_qsl(request.target.partition("?")[2], keep_blank_values=True))
            body = _read(operation.body, request) if operation.body is not None else None
            return await operation.carry_out(self, _Call(parameters, query, body))
        except BadRequestError as problem:
            return _refused(problem.status, str(problem))
        except UnknownPodError as problem:
            return _refused(404, str(problem))
        except PodExistsError as problem:
            return _refused(409, str(problem))
        except (FleetError, ValueError) as problem:
            return _refused(422, str(problem))

    # -- operations ----------------------------------------------------------------------------------------------------

    async def describe(self, _: _Call) -> Response:
        """The OpenAPI document."""
        return json_response(200, document(OPERATIONS))

    async def kinds(self, _: _Call) -> Response:
        """Every fault with its attributes."""
        listed = {
            kind.value: {
                "about": about.about,
                "stage": about.stage,
                "attributes": {
                    name: {"about": one.about, "default": one.default} for name, one in about.attributes.items()
                },
            }
            for kind, about in KINDS.items()
        }
        return json_response(200, listed)

    async def engines(self, _: _Call) -> Response:
        """Every engine with its generations."""
        return json_response(200, {engine.value: list(generations) for engine, generations in GENERATIONS.items()})

    async def pods(self, _: _Call) -> Response:
        """Every pod."""
        return json_response(200, [_shown(pod) for pod in self._fleet.pods.values()])

    async def add(self, call: _Call) -> Response:
        """Start a pod."""
        faults = [one.fault() for one in call.body.faults]
        pod = await self._fleet.add(call.body.spec())
        try:
            for fault in faults:
                await pod.inject(fault)
        except ValueError:
            await self._fleet.remove(pod.name)
            raise
        return json_response(201, _shown(pod))

    async def pod(self, call: _Call) -> Response:
        """One pod."""
        return json_response(200, _shown(self._pod(call)))

    async def change(self, call: _Call) -> Response:
        """Change a pod."""
        pod = self._pod(call)
        if call.body.healthy is not None:
            pod.healthy = call.body.healthy
        if call.body.adapters is not None:
            pod.adapters = frozenset(call.body.adapters)
        if call.body.accepting is not None:
            await (pod.accept() if call.body.accepting else pod.refuse())
        return json_response(200, _shown(pod))

    async def remove(self, call: _Call) -> Response:
        """Stop a pod."""
        await self._fleet.remove(self._pod(call).name)
        return Response(status=204)

    async def restart(self, call: _Call) -> Response:
        """Restart a pod: counters at zero, no connection."""
        pod = self._pod(call)
        await pod.restart(down=call.body.down)
        return json_response(200, _shown(pod))

    async def page(self, call: _Call) -> Response:
        """The page of a pod, without faults, and without counting as a scrape."""
        return Response(headers=_TEXT, body=self._pod(call).page(rank=_rank(call, self._pod(call))))

    async def set_gauges(self, call: _Call) -> Response:
        """Set the gauges of a rank, all at once."""
        pod = self._pod(call)
        pod.set_gauges(call.body, rank=_rank(call, pod))
        return json_response(200, _shown(pod))

    async def pin(self, call: _Call) -> Response:
        """Let a gauge of a rank follow a signal."""
        pod = self._pod(call)
        pod.pin(call.parameters["gauge"], call.body.signal(), rank=_rank(call, pod))
        return json_response(200, _shown(pod))

    async def unpin(self, call: _Call) -> Response:
        """Let a gauge of a rank be what it is by itself."""
        pod = self._pod(call)
        if not pod.unpin(call.parameters["gauge"], rank=_rank(call, pod)):
            raise BadRequestError(404, f"{call.parameters['gauge']!r} of pod {pod.name!r} is not pinned")
        return Response(status=204)

    async def inject(self, call: _Call) -> Response:
        """Let a fault come, in the place of one of the same name."""
        pod, fault = self._pod(call), call.body.fault()
        await pod.inject(fault)
        return json_response(201, _fault(fault, 0))

    async def heal(self, call: _Call) -> Response:
        """Let a fault go."""
        pod = self._pod(call)
        if not await pod.heal(call.parameters["fault"]):
            known = ", ".join(active.fault.name for active in pod.faults) or "none"
            raise BadRequestError(404, f"pod {pod.name!r} has no fault {call.parameters['fault']!r}; now: {known}")
        return Response(status=204)

    async def heal_all(self, call: _Call) -> Response:
        """Let every fault go."""
        await self._pod(call).heal()
        return Response(status=204)

    async def requests(self, call: _Call) -> Response:
        """What was served, oldest first."""
        return json_response(200, self._recorder.requests(**_which(call)))

    async def scrapes(self, call: _Call) -> Response:
        """The scrapes, oldest first."""
        return json_response(200, self._recorder.scrapes(**_which(call)))

    def _pod(self, call: _Call) -> Pod:
        return self._fleet.pod(call.parameters["pod"])


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


Carry = Callable[[Control, _Call], Awaitable[Response]]
_RANK = {"rank": "the rank by its place; default: 0"}
_WHICH = {"pod": "only of this pod", "after": "only with a number above this one", "limit": "at most so many, to 1000"}

OPERATIONS: tuple[Operation[Carry], ...] = (
    Operation("GET", "/openapi.json", Control.describe),
    Operation("GET", "/engines", Control.engines),
    Operation("GET", "/faults", Control.kinds),
    Operation("GET", "/pods", Control.pods),
    Operation("POST", "/pods", Control.add, TypeAdapter(schema.PodModel), status=201),
    Operation("GET", "/pods/{pod}", Control.pod),
    Operation("PATCH", "/pods/{pod}", Control.change, TypeAdapter(schema.PodChange)),
    Operation("DELETE", "/pods/{pod}", Control.remove, status=204),
    Operation("POST", "/pods/{pod}/restart", Control.restart, TypeAdapter(schema.Restart)),
    Operation("GET", "/pods/{pod}/page", Control.page, query=_RANK, media="text/plain"),
    Operation("PUT", "/pods/{pod}/gauges", Control.set_gauges, schema.GAUGES, query=_RANK),
    Operation("PUT", "/pods/{pod}/pins/{gauge}", Control.pin, schema.SIGNAL, query=_RANK),
    Operation("DELETE", "/pods/{pod}/pins/{gauge}", Control.unpin, query=_RANK, status=204),
    Operation("POST", "/pods/{pod}/faults", Control.inject, TypeAdapter(schema.FaultModel), status=201),
    Operation("DELETE", "/pods/{pod}/faults", Control.heal_all, status=204),
    Operation("DELETE", "/pods/{pod}/faults/{fault}", Control.heal, status=204),
    Operation("GET", "/requests", Control.requests, query=_WHICH),
    Operation("GET", "/scrapes", Control.scrapes, query=_WHICH),
)
"""Everything that can be asked for."""


def _find(request: Request) -> tuple[Operation[Carry], dict[str, str]]:
    allowed = []
    for operation in OPERATIONS:
        pattern = re.sub(
            r"\{(\w+)\}", r"(?P<\1>[^/]+)", re.escape(operation.path).replace(r"\{", "{").replace(r"\}", "}")
        )
        if found := re.fullmatch(pattern, request.path):
            if operation.method == request.method:
                return operation, {name: urllib.parse.unquote(value) for name, value in found.groupdict().items()}
            allowed.append(operation.method)
    if allowed:
        raise BadRequestError(405, f"{request.path} takes {', '.join(allowed)}, not {request.method}")
    raise BadRequestError(404, f"there is no {request.path}; GET /openapi.json lists what there is")


def _read(body: TypeAdapter[Any], request: Request) -> Any:
    try:
        return body.validate_json(request.body or b"{}")
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadRequestError(422, f"{where}: {first['msg']}") from problem


def _rank(call: _Call, pod: Pod) -> int:
    rank = _number(call, "rank", 0)
    if rank >= pod.spec.ranks:
        raise BadRequestError(422, f"rank is {rank}; pod {pod.name!r} has {pod.spec.ranks}, counted from 0")
    return rank


def _which(call: _Call) -> dict[str, Any]:
    limit = min(_number(call, "limit", 100), 1000)
    return {"pod": call.query.get("pod"), "after": _number(call, "after", 0), "limit": limit}


def _number(call: _Call, name: str, default: int) -> int:
    text = call.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequestError(422, f"{name} is {text!r}; it is a whole number from 0")
    return int(text)


def _refused(status: int, message: str) -> Response:
    return json_response(status, {"error": message})


def _shown(pod: Pod) -> dict[str, Any]:
    return {
        "name": pod.name,
        "engine": pod.spec.engine,
        "generation": pod.spec.kind.name,
        "endpoints": list(pod.endpoints),
        "metrics": f"http://{pod.metrics_endpoint}{pod.spec.page_path}",
        "accepting": pod.accepting,
        "healthy": pod.healthy,
        "adapters": sorted(pod.adapters),
        "connections": pod.connections,
        "scrapes": pod.scrapes,
        "served": pod.served,
        "gauges": [dataclasses.asdict(one) for one in pod.all_gauges],
        "pinned": [sorted(pod.pinned(rank=rank)) for rank in range(pod.spec.ranks)],
        "faults": [_fault(active.fault, active.befell) for active in pod.faults],
    }


def _fault(fault: Any, befell: int) -> dict[str, Any]:
    shown = {field.name: getattr(fault, field.name) for field in dataclasses.fields(fault)}
    return {**shown, "attributes": dict(fault.attributes), "befell": befell}
