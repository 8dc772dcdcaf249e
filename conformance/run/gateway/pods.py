"""The model servers behind a gateway: where they are, what a scenario calls them, and how they take requests."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from conformance.errors import UsageError
from conformance.evidence.episode import BackendFact, PodConduct, PodFact, Unmet
from conformance.planning.gateway import OWN, pod_names
from conformance.run.served import attempt
from conformance.scenario.pool import Pool
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import Conduct
from conformance.targets import gateway
from ext_proc.record import Event, header
from fake_modelserver import Fleet, Pod, PodSpec, Reply, has_ipv6_loopback
from fake_modelserver.errors import FleetError
from fake_modelserver.messages import Request, Response
from fake_modelserver.record import Served

EXCHANGE = "x-conformance-exchange"
"""The request header by which a request is known again at the EPP and at the model servers."""

KEPT = 64 * 1024 * 1024
"""Bytes kept of a request's body."""

OTHERS = ("HTTP/2", "TLS")
"""Protocols that a gateway may have been set up for, and that no document forbids. What is none is its mistake."""

PLAIN = "those of the suite speak HTTP/1.1 without TLS, as engines do; set its pool up for that"
"""What helps then."""

FAILING = 500
"""The least status that a gateway may count against a pod."""

_BUSY = Response(status=503, headers=((b"content-type", b"text/plain"),), body=b"busy")
_RESET = Response(reset=True)


class Pods:
    """The pods of all pools. `emit` gets what happens at them; they are stopped by `close`."""

    def __init__(self, emit: Callable[[Event], object]) -> None:
        self.pools: Mapping[str, tuple[str, ...]] = {}
        """The endpoints of each pool, by the name of its EPP."""
        self.pods_of: Mapping[str, tuple[str, ...]] = {}
        """What the present scenario calls the endpoints, and `nobody`."""
        self.reached: Counter[str] = Counter()
        """How many requests have arrived, by exchange."""
        self._emit = emit
        self._fleet = Fleet(on_request=self._arrived, keep_body=KEPT)
        self._conduct: dict[str, Conduct] = {}
        self._failed: dict[str, str] = {}
        """Pods that have not served since they failed or began to fail, and their endpoints."""
        self._reply: Reply | None = None

    async def start(self, backends: Sequence[gateway.Backend], model: str) -> None:
        """Bind every endpoint. Raises `UsageError` for one that can't be bound."""
        await self._fleet.start()
        self._nobody = str(self._fleet.allocate())
        pools: dict[str, tuple[str, ...]] = {}
        for name, backend, count in zip(gateway.EPPS, backends, OWN, strict=False):
            specs = [_at(endpoint) for endpoint in backend.endpoints] or _chosen(count, ipv6=name == gateway.EPPS[0])
            found: list[str] = []
            for number, spec in enumerate(specs, 1):
                complete = dataclasses.replace(spec, name=f"{name}-{number}", models=(model,), any_model=True)
                try:
                    pod = await self._fleet.add(complete)
                    pod.script = functools.partial(self._answer, pod.name)
                    found.append(pod.endpoint)
                except FleetError as problem:
                    hint = "the suite serves the model servers of the gateway's pool there; free the address"
                    raise UsageError(str(problem), hint=hint) from problem
            pools[name] = tuple(found)
        self.pools = pools

    async def close(self) -> None:
        """Stop them all. Idempotent."""
        await self._fleet.stop()

    @property
    def backends(self) -> tuple[BackendFact, ...]:
        """The pools as judges know them."""
        return tuple(BackendFact(epp=name, endpoints=endpoints) for name, endpoints in self.pools.items())

    @property
    def spoken(self) -> Counter[tuple[str, str]]:
        """How often the gateway spoke something in place of HTTP/1.1 to a pod: its name there, and what it was."""
        pods = self._fleet.pods.values()
        return Counter({(pod.name, what): times for pod in pods for what, times in pod.peers.spoken.items()})

    @property
    def returned(self) -> tuple[str, ...]:
        """The endpoints that would serve again, which a gateway may leave out until it knows."""
        return tuple(at for name, at in self._failed.items() if self._conduct.get(name, "serves") == "serves")

    def has_served(self, endpoint: str) -> bool:
        """Whether a pod has served a request since it failed."""
        return endpoint not in self._failed.values()

    def known(self, endpoint: str) -> None:
        """The gateway has had time to know that this pod serves again."""
        self._failed = {name: at for name, at in self._failed.items() if at != endpoint}

    # -- for one scenario ----------------------------------------------------------------------------------------------

    async def cast(self, pool: Pool) -> tuple[PodFact, ...]:
        """Give the pods the names that a scenario has for them, and let all of them serve again.

        Those that it does not name are in the pool nevertheless, as `spare-1`, …
        """
        names = pod_names(pool, self.pools)
        self.pods_of = {NOBODY: (self._nobody,)} | {name: (endpoint,) for endpoint, name in names.items()}
        self._conduct.clear()
        for pod in self._fleet.pods.values():
            await self._accept(pod)
        return tuple(PodFact(name=name, endpoints=(endpoint,)) for endpoint, name in names.items())

    async def conduct(self, name: str, conduct: Conduct) -> None:
        """From here on the pod takes requests so."""
        pod = self._fleet.at(self.pods_of[name][0])
        assert pod is not None, f"{name} is a pod of the pool"
        self._conduct[pod.name] = conduct
        if conduct != "serves":
            self._failed[pod.name] = pod.endpoint
        if conduct == "refuses":
            await pod.refuse()
        else:
            await self._accept(pod)
        self._emit(PodConduct(pod=name, conduct=conduct))

    def reply(self, reply: Reply | None) -> None:
        """What the pods that serve answer from here on; None: each its own answer."""
        self._reply = reply

    def tell_of_others(self, exchange: str, before: Counter[tuple[str, str]]) -> None:
        """Tell of another protocol than ours that was spoken since `before`, while a request was under way: what the
        gateway sent so was not understood, and nothing can be told of the request. What arrived was: then the gateway
        only looks after its pods so."""
        if self.reached[exchange]:
            return
        for pod, protocol in self.spoken - before:
            if protocol in OTHERS:
                self._failed[pod] = self._fleet.pods[pod].endpoint
                self._emit(Unmet(exchange=exchange, what=f"the gateway spoke {protocol} to a model server: {PLAIN}"))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _answer(self, name: str, request: Request) -> Response | None:
        match self._conduct.get(name):
            case "resets":
                return _RESET
            case "503":
                return _BUSY
            case _ if self._reply is None or header(request.headers, EXCHANGE.encode()) is None:
                return None  # without its name it is a health check of the gateway
            case _:
                return self._reply.response(request, name, Response)

    @staticmethod
    async def _accept(pod: Pod) -> None:
        try:
            await pod.accept()
        except FleetError as problem:
            raise UsageError(str(problem), hint="somebody took the address of a pod during the run") from problem

    def _arrived(self, served: Served) -> None:
        exchange = (header(served.headers, EXCHANGE.encode()) or b"").decode("latin-1")
        self.reached[exchange] += 1
        if not exchange:
            return
        trailers = self._reply.trailers if self._reply is not None else ()
        told = self._reply if self._conduct.get(served.pod, "serves") == "serves" else None
        cut, delay = (told.cut, told.delay) if told is not None else (False, 0.0)
        if cut or served.status is None or served.status >= FAILING:
            self._failed[served.pod] = served.endpoint
        else:
            self._failed.pop(served.pod, None)
        for event in attempt(served, exchange, self.reached[exchange], trailers=trailers, cut=cut, delay=delay):
            self._emit(event)


def _at(endpoint: str) -> PodSpec:
    host, _, port = endpoint.rpartition(":")
    return PodSpec(name="-", address=host.strip("[]"), ports=(int(port),))


def _chosen(count: int, *, ipv6: bool) -> list[PodSpec]:
    """Pods on addresses of the suite's choice, one of them on IPv6 where the machine has it."""
    found = [PodSpec(name="-") for _ in range(count)]
    return [*found, PodSpec(name="-", address="::1", ports=(0,))] if ipv6 and has_ipv6_loopback() else found
