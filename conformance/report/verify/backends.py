"""Whether the pools behind a gateway, as its judges were told of them, are those of the run's plan."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.evidence.episode import Context, Episode, PoolState
from conformance.planning.gateway import pod_names
from conformance.report.document.basis import GatewayBasis
from conformance.report.verify.steps import short
from conformance.report.verify.stimulus import Learned
from conformance.scenario.pool import Pool
from conformance.targets.gateway import EPPS


def problems(context: Context, episode: Episode, basis: GatewayBasis, pool: Pool, learned: Learned) -> Iterator[str]:
    """What speaks against the pools in `context`: their number, their sizes, and the pods that there were, by the names
    that those of the scenario's `pool` have."""
    known = context.gateway.backends if context.gateway is not None else ()
    found = [(backend.epp, *_sizes(backend.endpoints)) for backend in known]
    wanted = [(name, *sizes) for name, sizes in zip(EPPS, basis.pools, strict=False)]
    if found != wanted:
        yield f"it was judged with the pools {short(found)}, the run had {short(wanted)}"
        return
    target = (context.version, episode.id.partition("-")[0])
    if not learned.same(("pools", *target), known):
        yield "the pools that it was judged with are others than in other episodes of the same target"
    names = pod_names(pool, {one.epp: one.endpoints for one in known})
    pods = {(name, (endpoint,)) for endpoint, name in names.items()}
    if any({(fact.name, fact.endpoints) for fact in state.pods} != pods for _, state in episode.of(PoolState)):
        yield "its pods are not those of the pools that it was judged with"


def _sizes(endpoints: tuple[str, ...]) -> tuple[int, int]:
    """How many IPv4 and IPv6 endpoints."""
    ipv6 = sum(1 for endpoint in endpoints if endpoint.startswith("["))
    return len(endpoints) - ipv6, ipv6
