"""The pool of one target: fake model servers, their standing and load, changed on request and settled.

Settling never tests: it ends on facts that a wrong target reaches too, or when the bounded convergence time has passed.
What the target does with the new state is for the judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from conformance.errors import UsageError
from conformance.evidence.episode import GaugesShown, PodFact, PoolState
from conformance.run.epp.binding import cant_bind
from conformance.run.epp.discovery import PoolDiscovery
from conformance.run.epp.members import Member
from conformance.scenario.pool import Load, Pod, PodState, Pool
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import PoolStep
from conformance.targets.launch import free_port
from conformance.targets.profile import Profile
from ext_proc.record import Event, Wait
from fake_modelserver import FaultKind, Fleet, FleetError, Gauges, MetricsFault, PodSpec

Probe = Callable[[Sequence[str] | None], Awaitable[str | None]]
"""Ask the target for a pick within some endpoints (None: no subset hint); gives its first endpoint, or None."""

POLL_INTERVAL = 0.02
ENOUGH_POLLS = 25
"""So many that are answered as before the change show that it is not followed."""

AGREEING_POLLS = 3
"""Without a subset hint a pool change shows only by chance; so many picks in a row must agree with it."""

UNREAD = 3
"""After so many waits in which no metrics of any pod were ever read, the target is taken for one that reads none. A
slow one may be meant: from the first scrape on it is waited for again."""

IDLE = {"queue": 0, "running": 0, "kv": 0.1, "loras": (), "waiting_loras": (), "metrics": "ok"}


class PoolController:
    """Owns the fleet's pods. One per target; its methods are called one at a time."""

    def __init__(self, fleet: Fleet, channel: PoolDiscovery, profile: Profile, emit: Callable[[Event], object]) -> None:
        self._fleet = fleet
        self._channel = channel
        self._profile = profile
        self._emit = emit
        self._members: dict[str, Member] = {}
        self._gone: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, Mapping[str, object]] = {}
        """What the log says that each pod's metrics show."""
        self._generation = 0
        self._exists = True
        self._nobody = fleet.allocate()
        self._ports: tuple[int, ...] = (self._first_port,)
        self.probe: Probe | None = None
        """Set once the target answers."""
        self.ipv6_host: str | None = "::1"
        """Where pods of the IPv6 family are; None if the target reaches no such address."""
        self.supports_subset = True
        """False for protocol versions without the subset hint."""
        self.was_scraped = False
        """Whether the target has ever read any pod's metrics; its owner, who hears of scrapes, sets it."""
        self._unread = 0
        """Waits in which no metrics of any pod were read, of a target that never did."""

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """What scenario references stand for: each pod's endpoints, the last ones of pods that are gone, `nobody`."""
        nobody = tuple(f"{self._nobody.host}:{port}" for port in self._ports)
        return {NOBODY: nobody} | self._gone | {name: member.endpoints for name, member in self._members.items()}

    @property
    def facts(self) -> tuple[PodFact, ...]:
        """The pool as it stands."""
        return tuple(member.fact for member in self._members.values()) if self._exists else ()

    @property
    def reads_no_metrics(self) -> bool:
        """Whether the target has been given time enough to read metrics, and never did."""
        return self._unread >= UNREAD and not self.was_scraped

    @property
    def exists(self) -> bool:
        """Whether the target has been told of a pool, empty or not."""
        return self._exists

    @property
    def eligible(self) -> tuple[str, ...]:
        """Every endpoint that may be picked now."""
        return tuple(endpoint for fact in self.facts if fact.eligible for endpoint in fact.endpoints)

    # -- changing ------------------------------------------------------------------------------------------------------

    async def reset(self, pool: Pool) -> None:
        """Make the pool that a scenario starts from, and let it settle."""
        wanted = {pod.name: pod for pod in pool.pods}
        # One port for all pods, and only one IPv6 address: the port is one that is free there.
        on_ipv6 = any(pod.family == "ipv6" for pod in pool.pods)
        first = free_port(self.ipv6_host) if on_ipv6 and self.ipv6_host else self._first_port
        ports = tuple(first + index for index in range(pool.ports))
        same_ports = ports == self._ports
        keep = {
            name: dataclasses.replace(member, pod=wanted[name])
            for name, member in self._members.items()
            if name in wanted and same_ports and _same_place(member.pod, wanted[name])
        }
        await self._become(keep, [pod for pod in pool.pods if pod.name not in keep], ports, exists=True)
        await self.load({pod.name: Load(**{**IDLE, **_load(pod)}) for pod in pool.pods})

    async def change(self, step: PoolStep) -> None:
        """Carry out a pool step."""
        missing = [name for name in (*step.remove, *step.set) if name not in self._members]
        if missing:
            raise UsageError(f"the pool has no pod {', '.join(missing)}")
        keep = {name: member for name, member in self._members.items() if name not in step.remove}
        keep |= {name: keep[name].changed(change) for name, change in step.set.items()}
        ports = self._ports if step.ports is None else tuple(self._first_port + i for i in range(step.ports))
        if ports != self._ports:
            keep = {name: await self._moved(member, ports) for name, member in keep.items()}
        exists = self._exists if step.pool is None else step.pool == "create"
        await self._become(keep, step.add, ports, exists=exists, settle=step.settle, convergence=step.convergence)
        await self.load(
            {name: _only_load(change) for name, change in step.set.items()} | {p.name: _full(p) for p in step.add}
        )

    async def load(self, loads: Mapping[str, Load]) -> None:
        """Set gauges and metric faults, and wait until they have been read."""
        marks: dict[str, int] = {}
        for name, load in loads.items():
            member = self._members[name]
            changed = member.changed(load)
            server = self._fleet.pod(self._server(member))
            gauges, fault = _gauges(changed.pod), _fault(changed.pod)
            if self._shown.get(name) != _shown(changed.pod):
                self._shown[name] = _shown(changed.pod)
                self._emit(GaugesShown(pod=name, values=self._shown[name]))
            if (gauges, fault) == (server.gauges, server.metrics_fault):
                continue
            server.gauges, server.metrics_fault = gauges, fault
            self._members[name] = changed
            if fault is None or fault.kind is not FaultKind.DOWN:
                marks[server.name] = server.mark()
        if marks:
            await self._scraped(marks)

    async def close(self) -> None:
        """Stop every pod."""
        await self._fleet.stop()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _first_port(self) -> int:
        kubernetes = self._profile.discovery.kubernetes
        return kubernetes.pod_port if kubernetes and kubernetes.pod_port != 8000 else self._nobody.port

    async def _become(
        self,
        keep: Mapping[str, Member],
        add: Iterable[Pod],
        ports: tuple[int, ...],
        *,
        exists: bool,
        settle: bool = True,
        convergence: float | None = None,
    ) -> None:
        before, existed, old_ports = dict(self._members), self._exists, self._ports
        order = {**before, **keep}
        members = {name: keep[name] for name in order if name in keep}
        for name, member in before.items():
            if name not in members:
                self._gone[name] = member.endpoints
                await self._fleet.remove(self._server(member))
        for pod in add:
            members[pod.name] = await self._started(pod, ports, before)
        if (members, exists, ports) == (before, existed, old_ports) and before:
            return
        self._members, self._exists, self._ports = members, exists, ports
        self._emit(PoolState(phase="asked", pods=self.facts))
        await self._channel.publish(tuple(members.values()), ports, exists=exists)
        patience = convergence or self._profile.timeouts.convergence
        if await self._channel.delivered(
            patience if self.probe is not None else 0.0
        ):  # nobody listens before the start
            self._emit(PoolState(phase="delivered", pods=self.facts))
        if settle:  # else either state may be followed, until a later change has settled
            await self._settle(before if existed else {}, patience)
            self._emit(PoolState(phase="effective", pods=self.facts))

    async def _started(self, pod: Pod, ports: tuple[int, ...], before: Mapping[str, Member]) -> Member:
        """Start the model server of a new pod, on a new address or on that of a pod that is gone."""
        self._generation += 1
        member = Member(pod=pod, endpoints=(), generation=self._generation)
        served = [ports[index] for index in pod.active_ports] if pod.active_ports else list(ports)
        host: str | None = None
        if pod.address_of is not None:
            host, _, port = before[pod.address_of].endpoints[0].rpartition(":")
            served = [int(port)] if self._fleet.shares_address else served
        elif pod.family == "ipv6":
            if self.ipv6_host is None:
                raise UsageError("the target's container reaches no IPv6 address of this machine")
            host = self.ipv6_host
        elif self._profile.discovery.fixed is not None:
            host, number = self._fixed(pod)
            served = [number]
        elif self._fleet.shares_address:
            host, served = self._nobody.host, [0 for _ in served]
        spec = PodSpec(
            name=self._server(member),
            address=host,
            ports=tuple(served),
            models=(self._profile.requests.model,),
            any_model=True,
            gauges=_gauges(pod),
        )
        try:
            server = await self._fleet.add(spec)
        except FleetError as problem:
            raise cant_bind(problem) from problem
        server.metrics_fault = _fault(pod)
        return dataclasses.replace(member, endpoints=server.endpoints)

    async def _moved(self, member: Member, ports: tuple[int, ...]) -> Member:
        """The pod on other target ports, at the same address."""
        host = member.endpoints[0].rpartition(":")[0]
        await self._fleet.remove(self._server(member))
        spec = PodSpec(
            name=self._server(member),
            address=host,
            ports=tuple(0 for _ in ports) if self._fleet.shares_address else ports,
            models=(self._profile.requests.model,),
            any_model=True,
            gauges=_gauges(member.pod),
        )
        return dataclasses.replace(member, endpoints=(await self._fleet.add(spec)).endpoints)

    def _fixed(self, pod: Pod) -> tuple[str, int]:
        """The first endpoint that the target knows and that no pod has."""
        assert self._profile.discovery.fixed is not None
        for endpoint in self._profile.discovery.fixed.endpoints:
            if self._fleet.at(endpoint) is None:
                host, _, port = endpoint.rpartition(":")
                return host.strip("[]"), int(port)
        raise UsageError(f"no endpoint is left for pod {pod.name}")

    @staticmethod
    def _server(member: Member) -> str:
        return f"{member.pod.name}-{member.generation}"

    # -- settling ------------------------------------------------------------------------------------------------------

    async def _settle(self, before: Mapping[str, Member], patience: float) -> None:
        old = {endpoint for member in before.values() if member.fact.eligible for endpoint in member.endpoints}
        now = set(self.eligible)
        new_servers = [self._server(m) for name, m in self._members.items() if name not in before or before[name] != m]
        marks = {name: pod.mark() for name, pod in self._fleet.pods.items() if name in new_servers}
        readable = {name: mark for name, mark in marks.items() if self._fleet.pod(name).metrics_fault is None}
        if readable and now:
            await self._scraped({name: mark for name, mark in readable.items() if self._is_eligible(name)})
        if self.probe is None or old == now:
            return
        loop = asyncio.get_running_loop()
        start = loop.time()
        met = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * patience):
                met = await self._followed(old ^ now, now, start + patience)
        what = "the target follows the pool change"
        self._emit(Wait(what=what, outcome="met" if met else "expired", seconds=loop.time() - start))

    async def _followed(self, changed: set[str], now: set[str], deadline: float) -> bool:
        """Whether the picks agree with the pool before loop time `deadline`."""
        if not self.supports_subset:
            return await self._until(self._picks_from_the_pool, deadline)
        for endpoint in sorted(changed):
            if not await self._until(lambda one=endpoint: self._follows(one, one in now), deadline):  # type: ignore[misc]
                return False
        return True

    def _is_eligible(self, server: str) -> bool:
        return any(self._server(member) == server and member.fact.eligible for member in self._members.values())

    async def _follows(self, endpoint: str, wanted: bool) -> bool:
        assert self.probe is not None
        return (await self.probe([endpoint]) == endpoint) is wanted

    async def _picks_from_the_pool(self) -> bool:
        assert self.probe is not None
        allowed: set[str | None] = set(self.eligible) or {None}
        return all([await self.probe(None) in allowed for _ in range(AGREEING_POLLS)])

    @staticmethod
    async def _until(condition: Callable[[], Awaitable[bool]], deadline: float) -> bool:
        """Whether it came true in time. A target that stood still meanwhile, and answered few polls, gets more."""
        loop = asyncio.get_running_loop()
        polls = 0
        while not await condition():
            polls += 1
            if polls >= ENOUGH_POLLS and loop.time() > deadline:
                return False
            await asyncio.sleep(POLL_INTERVAL)
        return True

    async def _scraped(self, marks: Mapping[str, int]) -> None:
        """Two scrapes that started after the change have read it; a target that does not scrape is not waited for."""
        if not self._profile.discovery.scrapes or self.probe is None or not marks or self.reads_no_metrics:
            return
        loop = asyncio.get_running_loop()
        start = loop.time()
        done = await self._fleet.scraped(times=2, after=marks, timeout=self._profile.timeouts.scrape)
        outcome = "met" if all(done.values()) else "expired"
        self._unread += not self.was_scraped
        what = "two scrapes of " + ", ".join(sorted(name.rpartition("-")[0] for name in marks))
        self._emit(Wait(what=what, outcome="met" if outcome == "met" else "expired", seconds=loop.time() - start))


# -- a pod's load ------------------------------------------------------------------------------------------------------

_LOAD = tuple(Load.model_fields)


def _load(pod: PodState) -> dict[str, object]:
    return {name: value for name in _LOAD if (value := getattr(pod, name)) is not None}


def _only_load(change: PodState) -> Load:
    return Load.model_validate(_load(change))


def _full(pod: Pod) -> Load:
    return Load.model_validate({**IDLE, **_load(pod)})


def _shown(pod: Pod) -> dict[str, object]:
    return {**IDLE, **_load(pod)}


def _gauges(pod: Pod) -> Gauges:
    loras, waiting = pod.loras or (), pod.waiting_loras or ()
    return Gauges(
        queue=pod.queue or 0,
        running=pod.running or 0,
        kv=0.1 if pod.kv is None else pod.kv,
        running_loras=loras,
        waiting_loras=waiting,
        max_lora=4 if loras or waiting else 0,
    )


_FAULTS = {
    "down": MetricsFault(kind=FaultKind.DOWN),
    "slow": MetricsFault(kind=FaultKind.SLOW, delay=5.0),
    "garbage": MetricsFault(kind=FaultKind.GARBAGE),
    "nan": MetricsFault(kind=FaultKind.NAN),
    "stale": MetricsFault(kind=FaultKind.STALE),
    "error": MetricsFault(kind=FaultKind.STATUS, status=500),
    "empty": MetricsFault(kind=FaultKind.MISSING),
}


def _fault(pod: Pod) -> MetricsFault | None:
    return _FAULTS.get(pod.metrics or "ok")


def _same_place(old: Pod, new: Pod) -> bool:
    """Whether a pod of the last scenario can serve as one of the next, standing and load apart."""
    where = ("family", "address_of", "shares_name_with", "active_ports", "namespace")
    return all(getattr(old, name) == getattr(new, name) for name in where)
