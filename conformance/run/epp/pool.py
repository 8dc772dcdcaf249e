"""The pool of one target: fake model servers, their standing and load, changed on request and settled.

Settling never tests: it ends on facts that a wrong target reaches too, or when the bounded convergence time has passed.
What the target does with the new state is for the judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from conformance.errors import UsageError
from conformance.evidence.episode import GaugesShown, PodFact, PoolState
from conformance.run.epp import loads
from conformance.run.epp.binding import cant_bind
from conformance.run.epp.discovery import PoolDiscovery
from conformance.run.epp.followed import Followed, Probe
from conformance.run.epp.members import Member, PoolSpec, target_ports
from conformance.scenario.pool import IDLE, Load, Pod, Pool, PoolStep
from conformance.scenario.references import NOBODY
from conformance.targets.ports import free_port
from conformance.targets.profile import Profile
from ext_proc.record import Event, Wait
from fake_modelserver import FaultKind, Fleet, FleetError, PodSpec

UNREAD = 3
"""After so many waits in which no metrics of any pod were ever read, the target is taken for one that reads none. A
slow one may be meant: from the first scrape on it is waited for again."""


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
        self._spec = PoolSpec((self._first_port,), Pool().selector)
        self.probe: Probe | None = None
        """Set once the target answers."""
        self.ipv6_host: str | None = "::1"
        """Where pods of the IPv6 family are; None if the target reaches no such address."""
        self.supports_subset = True
        """False for protocol versions without the subset hint."""
        self.was_scraped = False
        """Whether the target has ever read any pod's metrics; its owner, who hears of scrapes, sets it."""
        self._was_read = False  # whether there was a pool since the target was started
        self._doubtful: set[str] = set()
        """Endpoints of which it is not known that the target has followed their last change."""
        self._in_time = 0.0
        """By this time of the loop the target must have followed the last change, wherever it is asked."""
        self.patient = False  # whether it is always given that time
        self.patience = 0.0  # seconds for which the target was last polled, at most, until it follows
        self.lag = ""
        """What a target did that has not followed its last change: `did not follow`, or `gave no endpoint after`."""
        self._unread = 0
        """Waits in which no metrics of any pod were read, of a target that never did."""

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """What scenario references stand for: `nobody`, each pod's endpoints, the last ones of pods that are gone."""
        nobody = tuple(f"{self._nobody.host}:{port}" for port in self._spec.ports)
        members = {name: member.endpoints for name, member in self._members.items()}
        return {NOBODY: nobody} | members | {name: own for name, own in self._gone.items() if name not in members}

    def __contains__(self, endpoint: str) -> bool:
        """Whether an endpoint that the target names is one of these, so that the data plane may connect to it."""
        return any(endpoint in own for own in self.endpoints.values())

    @property
    def facts(self) -> tuple[PodFact, ...]:
        """The pool as it stands."""
        return tuple(member.fact for member in self._members.values()) if self._exists else ()

    @property
    def reads_no_metrics(self) -> bool:
        """Whether the target has been given time enough to read metrics, and never did."""
        return self._unread >= UNREAD and not self.was_scraped

    @property
    def synced(self) -> bool | None:
        """Whether the target has read its pool, empty or not; None if that is gone, as what has been read stays so."""
        return self._exists or (None if self._was_read else False)

    @property
    def eligible(self) -> tuple[str, ...]:
        """Every endpoint that may be picked now."""
        return tuple(endpoint for fact in self.facts if fact.eligible for endpoint in fact.endpoints)

    @property
    def followed(self) -> bool:
        """Whether the target is known to have followed the pool."""
        return not self._doubtful

    # -- changing ------------------------------------------------------------------------------------------------------

    async def reset(self, pool: Pool) -> None:
        """Make the pool that a scenario starts from, and let it settle."""
        wanted = {pod.name: pod for pod in pool.pods}
        # One port for all pods, and only one IPv6 address: the port is one that is free there.
        on_ipv6 = any(pod.family == "ipv6" for pod in pool.pods)
        first = free_port(self.ipv6_host) if on_ipv6 and self.ipv6_host else self._first_port
        spec = PoolSpec(target_ports(first, pool.ports), pool.selector)
        same_ports = spec.ports == self._spec.ports
        keep = {
            name: dataclasses.replace(member, pod=wanted[name])
            for name, member in self._members.items()
            if name in wanted and member.serves and same_ports and _same_place(member.pod, wanted[name])
        }
        await self._become(keep, [pod for pod in pool.pods if pod.name not in keep], spec, exists=True)
        await self.load({pod.name: loads.full(pod) for pod in pool.pods})

    async def change(self, step: PoolStep) -> None:
        """Carry out a pool step."""
        missing = [name for name in (*step.remove, *step.set) if name not in self._members]
        if missing:
            raise UsageError(f"the pool has no pod {', '.join(missing)}")
        keep = {name: member for name, member in self._members.items() if name not in step.remove}
        keep |= {name: keep[name].changed(change) for name, change in step.set.items()}
        ports = self._spec.ports
        if step.ports is not None:
            ports = target_ports(free_port(self._nobody.host) if step.other_ports else self._first_port, step.ports)
        if ports != self._spec.ports:
            keep = {name: await self._moved(member, ports) for name, member in keep.items()}
        spec = PoolSpec(ports, step.selector or self._spec.selector)
        exists = self._exists if step.pool is None else step.pool == "create"
        await self._become(keep, step.add, spec, exists=exists, settle=step.settle, convergence=step.convergence)
        await self.load(
            {name: loads.only_load(change) for name, change in step.set.items()}
            | {p.name: loads.full(p) for p in step.add}
        )

    async def load(self, changes: Mapping[str, Load]) -> None:
        """Set gauges and metric faults, and wait until they have been read."""
        marks: dict[str, int] = {}
        for name, load in changes.items():
            member = self._members[name]
            if not member.serves:
                continue
            changed = member.changed(load)
            server = self._fleet.pod(self._server(member))
            gauges, fault = loads.gauges(changed.pod), loads.fault(changed.pod)
            moves = self._shown.get(name, IDLE)["course"] != changed.pod.shown["course"]
            if self._shown.get(name) != changed.pod.shown:
                self._shown[name] = changed.pod.shown
                self._emit(GaugesShown(pod=name, values=self._shown[name]))
            if (gauges, fault) == (server.gauges, server.metrics_fault) and not moves:
                continue
            server.gauges, server.metrics_fault = gauges, fault
            loads.moved(server, changed.pod)
            if changed.pod.course == "restarts":
                await server.restart()
            self._members[name] = changed
            if self._is_read(changed.pod) and (fault is None or fault.kind is not FaultKind.DOWN):
                marks[server.name] = server.mark()
        if marks:
            await self._scraped(marks)

    @contextlib.asynccontextmanager
    async def unloaded(self, *, readable: bool = False) -> AsyncIterator[None]:
        """Meanwhile no pod is busy, as a target may hold or drop requests while pods are, by its own measure.

        With `readable` all metrics can be read, too: those of before may have ended it.
        """
        busy = {name: loads.full(member.pod) for name, member in self._members.items()}
        idle = Load(**IDLE) if readable else loads.RESTING
        await self.load(dict.fromkeys(busy, idle))
        try:
            yield
        finally:
            await self.load({name: load for name, load in busy.items() if name in self._members})

    async def relieve(self) -> None:
        """Let no pod be busy and all metrics be readable, until a scenario says otherwise."""
        await self.load(dict.fromkeys(self._members, Load(**IDLE)))

    def begin(self) -> None:
        """The target is started: it has read nothing yet."""
        self.probe, self._was_read = None, self._exists

    async def begun(self, probe: Probe) -> None:
        """At least one worker of the target answers; `probe` asks it."""
        self.probe = probe
        self._in_time = asyncio.get_running_loop().time() + self._profile.timeouts.convergence
        await self.give_time()

    async def give_time(self) -> None:
        """For who is `patient`: wait until the target must have followed anywhere."""
        if self.patient:
            await asyncio.sleep(self.left)

    async def publish(self) -> None:
        """Hand the pool as it stands to the target, by its way of discovery."""
        await self._channel.publish(tuple(self._members.values()), self._spec if self._exists else None)

    async def settle(self) -> None:
        """Poll the target until it follows, as after a change."""
        if self._doubtful:
            await self._settle({}, self._profile.timeouts.convergence)

    @property
    def left(self) -> float:
        """In so many seconds the target must have followed the pool anywhere: some workers may never be polled."""
        return max(self._in_time - asyncio.get_running_loop().time(), 0)

    def take_for_followed(self) -> None:
        """Ask no more whether the target follows the pool as it is."""
        self._doubtful.clear()

    def forget_gone(self, keep: Collection[str]) -> None:
        """Keep nothing of pods that are gone, but for the endpoints of those to `keep`."""
        self._gone = {name: own for name, own in self._gone.items() if name in keep}
        self._shown = {name: shown for name, shown in self._shown.items() if name in self._members}

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _first_port(self) -> int:
        kubernetes = self._profile.discovery.kubernetes
        return kubernetes.pod_port if kubernetes and kubernetes.pod_port != 8000 else self._nobody.port

    async def _become(
        self,
        keep: Mapping[str, Member],
        add: Iterable[Pod],
        spec: PoolSpec,
        *,
        exists: bool,
        settle: bool | Literal["quietly"] = True,
        convergence: float | None = None,
    ) -> None:
        before, existed, old_spec = dict(self._members), self._exists, self._spec
        order = {**before, **keep}
        members = {name: dataclasses.replace(keep[name], spec=spec) for name in order if name in keep}
        for name, member in before.items():
            if name not in members:
                self._gone[name] = member.endpoints
                await self._stop(member)
        for pod in add:
            if pod.address_of in members:
                members[pod.address_of] = await self._stop(members[pod.address_of])
            members[pod.name] = await self._started(pod, spec, before)
        if (members, exists, spec) == (before, existed, old_spec) and before and self.followed:
            return
        old = _eligible(before.values()) if existed else set()
        self._members, self._exists, self._spec = members, exists, spec
        self._was_read = self._was_read or exists
        self._doubtful |= old ^ set(self.eligible)
        self._emit(PoolState(phase="asked", pods=self.facts))
        await self.publish()
        patience = max(convergence or 0.0, self._profile.timeouts.convergence)
        self._in_time = asyncio.get_running_loop().time() + patience
        listening = self.probe is not None  # no one does before the start
        if await self._channel.delivered(patience if listening else 0.0):
            self._emit(PoolState(phase="delivered", pods=self.facts))
        if settle == "quietly":
            await asyncio.sleep(patience)
        elif settle:  # else either state may be followed, until a later change has settled
            await self._settle(before if existed else {}, patience)
        if settle:
            await self.give_time()
            self._emit(PoolState(phase="effective", pods=self.facts))

    async def _started(self, pod: Pod, spec: PoolSpec, before: Mapping[str, Member]) -> Member:
        """Start the model server of a new pod, on a new address or on that of a pod that is gone."""
        self._generation += 1
        member = Member(pod=pod, endpoints=(), generation=self._generation, spec=spec)
        served = [spec.ports[index] for index in pod.active_ports] if pod.active_ports else list(spec.ports)
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
        return await self._serving(member, host, served)

    async def _moved(self, member: Member, ports: tuple[int, ...]) -> Member:
        """The pod on other target ports, at the same address."""
        host = member.endpoints[0].rpartition(":")[0]
        await self._stop(member)
        return await self._serving(member, host, [0 for _ in ports] if self._fleet.shares_address else ports)

    async def _serving(self, member: Member, host: str | None, ports: Iterable[int]) -> Member:
        """The pod with its model server started, on these ports of `host` (None: of the next free address)."""
        spec = PodSpec(
            name=self._server(member),
            address=host,
            ports=tuple(ports),
            models=(self._profile.requests.model,),
            any_model=True,
            gauges=loads.gauges(member.pod),
            **loads.page(member.pod),
        )
        try:
            server = await self._fleet.add(spec)
        except FleetError as problem:
            raise cant_bind(problem) from problem
        server.metrics_fault = loads.fault(member.pod)
        loads.moved(server, member.pod)
        return dataclasses.replace(member, endpoints=server.endpoints)

    async def _stop(self, member: Member) -> Member:
        """The pod without its model server."""
        if member.serves:
            await self._fleet.remove(self._server(member))
        return dataclasses.replace(member, serves=False)

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
        now = set(self.eligible)
        new = [m for name, m in self._members.items() if m.serves and now & set(m.endpoints) and before.get(name) != m]
        servers = [self._fleet.pod(self._server(m)) for m in new if self._is_read(m.pod)]
        await self._scraped({server.name: server.mark() for server in servers if server.metrics_fault is None})
        if self.probe is None:
            self._doubtful.clear()  # it reads the pool when it starts, and passes the gate then
        elif self._doubtful:
            async with self.unloaded():
                await self._wait_until_followed(self.probe, now, patience)

    async def _wait_until_followed(self, probe: Probe, now: set[str], patience: float) -> None:
        self.patience = patience
        loop = asyncio.get_running_loop()
        start = loop.time()
        met = given = False

        async def asking(subset: Sequence[str] | None) -> str | None:
            nonlocal given
            named = await probe(subset)
            given = given or named is not None
            return named

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * patience):
                asked = Followed(
                    probe=asking, changed=self._doubtful, now=now, connections=self._profile.connect.connections
                )
                met = await asked.by(start + patience, hints=self.supports_subset)
        self.lag = "did not follow" if given or not now else "gave no endpoint after"
        if met:
            self._doubtful.clear()
        what = "the target follows the pool change"
        self._emit(Wait(what=what, outcome="met" if met else "expired", seconds=loop.time() - start))

    def _is_read(self, pod: Pod) -> bool:
        """Whether the target claims to read the metrics of such a pod: other engines may have theirs elsewhere."""
        return pod.engine is None or pod.engine in self._profile.claims.engines

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


def _eligible(members: Iterable[Member]) -> set[str]:
    return {endpoint for member in members if member.fact.eligible for endpoint in member.endpoints}


def _same_place(old: Pod, new: Pod) -> bool:
    """Whether a pod of the last scenario can serve as one of the next, standing and load apart."""
    where = ("family", "address_of", "shares_name_with", "active_ports", "namespace", "engine", "ranks")
    return all(getattr(old, name) == getattr(new, name) for name in where)
