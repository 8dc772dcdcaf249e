"""Many fake model servers in one process, on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from fake_modelserver.addresses import PORT, Address, Addresses
from fake_modelserver.errors import FleetStoppedError, PodExistsError, UnknownPodError
from fake_modelserver.messages import Request, Response
from fake_modelserver.pod import Pod
from fake_modelserver.record import ScrapeStarted, Served
from fake_modelserver.spec import PodSpec


class Fleet:
    """A pool of pods that come and go.

    `mode`, `port` and `hosts` are those of `Addresses`: how pods without their own address get one. `on_scrape`
    is called when a scrape starts, `on_request` when any other request has arrived, both on the event loop and before
    the answer; `script` gives the answer to a request, or None for the pod's own; `keep_body` is how many bytes of a
    body `Served` holds.

        async with Fleet() as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            pod.gauges = Gauges(queue=8)
            await pod.scraped(timeout=5)
    """

    def __init__(
        self,
        *,
        mode: Literal["auto", "own", "shared", "ipv6"] = "auto",
        port: int | None = None,
        hosts: Sequence[str] = (),
        on_scrape: Callable[[ScrapeStarted], None] | None = None,
        on_request: Callable[[Served], None] | None = None,
        script: Callable[[Request], Response | None] | None = None,
        keep_body: int = 16384,
    ) -> None:
        self._mode, self._port, self._hosts = mode, port, hosts
        self._on_scrape, self._on_request, self._keep_body = on_scrape, on_request, keep_body
        self._script = script
        self._addresses: Addresses | None = None
        self._pods: dict[str, Pod] = {}
        self._given: dict[str, tuple[Address, ...]] = {}

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make the fleet ready for pods. Idempotent."""
        if self._addresses is None:
            self._addresses = Addresses(mode=self._mode, port=self._port, hosts=self._hosts)

    async def stop(self) -> None:
        """Remove every pod and give all addresses back; no socket is left. Idempotent."""
        for name in tuple(self._pods):
            await self.remove(name)
        if self._addresses is not None:
            self._addresses.close()
            self._addresses = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- pods ----------------------------------------------------------------------------------------------------------

    @property
    def pods(self) -> Mapping[str, Pod]:
        """The pods by name, in the order in which they were added. A live view."""
        return MappingProxyType(self._pods)

    def pod(self, name: str) -> Pod:
        """The pod of that name. Raises `UnknownPodError`."""
        try:
            return self._pods[name]
        except KeyError:
            raise UnknownPodError(name, list(self._pods)) from None

    def at(self, endpoint: str) -> Pod | None:
        """The pod that has `endpoint` (`ip:port`) among its own, or None."""
        return next((pod for pod in self._pods.values() if endpoint in pod.endpoints), None)

    async def add(self, spec: PodSpec) -> Pod:
        """Start a pod; when this returns, it accepts connections.

        Raises `PodExistsError`, `AddressTakenError`, `AddressUnavailableError`, `FleetStoppedError`.
        """
        pool = self._running()
        if spec.name in self._pods:
            raise PodExistsError(spec.name)
        addresses, metrics, given = self._places(spec, pool)
        for address in (*addresses, *given):
            pool.occupied(address)
        pod = Pod(
            spec,
            addresses,
            metrics_address=metrics,
            on_scrape=self._on_scrape,
            on_request=self._on_request,
            script=self._script,
            keep_body=self._keep_body,
        )
        self._pods[spec.name], self._given[spec.name] = pod, given
        try:
            await pod.accept()
        except BaseException:
            self._forget(spec.name)
            raise
        return pod

    async def remove(self, name: str) -> None:
        """Stop a pod: its connections are dropped, later ones refused. Raises `UnknownPodError`."""
        await self.pod(name).close()
        self._forget(name)

    @property
    def shares_address(self) -> bool:
        """True if pods share one address and have a port each. Raises `FleetStoppedError`."""
        return self._running().mode != "own"

    def allocate(self) -> Address:
        """An address on which no one listens, and that no pod will get by itself: an endpoint outside the pool.

        A later `PodSpec` may name it. Raises `FleetStoppedError`.
        """
        return self._running().take()

    # -- scrapes -------------------------------------------------------------------------------------------------------

    def scrapes(self, name: str) -> int:
        """How many scrapes of pod `name` have started. Raises `UnknownPodError`."""
        return self.pod(name).scrapes

    def marks(self) -> dict[str, int]:
        """The mark of every pod, for `scraped`."""
        return {name: pod.mark() for name, pod in self._pods.items()}

    async def scraped(self, *, times: int = 2, after: Mapping[str, int], timeout: float) -> dict[str, bool]:
        """Wait for `times` scrapes of each pod in `after` (from `marks`): which pods had them within `timeout` seconds.

        Raises `UnknownPodError`.
        """
        pods = [self.pod(name) for name in after]
        waits = [pod.scraped(times=times, after=after[pod.name], timeout=timeout) for pod in pods]
        return dict(zip(after, await asyncio.gather(*waits), strict=True))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _places(
        self, spec: PodSpec, pool: Addresses
    ) -> tuple[tuple[Address, ...], Address | None, tuple[Address, ...]]:
        """Where a pod serves, where its page is if that is elsewhere, and which of these the fleet gave it."""
        ports, page = spec.ports, spec.page_port
        count = spec.ranks if spec.rank_ports else 1
        if spec.address is not None:
            ports = ports or tuple((self._port or PORT) + index for index in range(count))
            addresses = tuple(Address(spec.address, port) for port in ports)
            given: tuple[Address, ...] = ()
        elif ports or pool.mode == "own":
            first = pool.take()
            given = (first,)
            addresses = tuple(Address(first.host, port) for port in ports or range(first.port, first.port + count))
        else:
            addresses = given = tuple([pool.take() for _ in range(count)])
        # Where pods share an address they can't share a fixed port, too.
        shared = spec.metrics_port is None and pool.mode != "own"
        return addresses, None if page is None else Address(addresses[0].host, 0 if shared else page), given

    def _running(self) -> Addresses:
        if self._addresses is None:
            raise FleetStoppedError
        return self._addresses

    def _forget(self, name: str) -> None:
        self._pods.pop(name, None)
        given = self._given.pop(name, ())
        if self._addresses is not None:
            for address in given:
                self._addresses.give_back(address)
