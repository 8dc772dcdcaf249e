"""Whether the pools behind a gateway, as its judges were told of them, are those of the run's plan."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.evidence.episode import Context, Episode, PoolState
from conformance.report.document.basis import GatewayBasis
from conformance.report.verify.steps import short
from conformance.targets.gateway import EPPS


def problems(context: Context, episode: Episode, basis: GatewayBasis) -> Iterator[str]:
    """What speaks against the pools in `context`: their number, their sizes, and the pods that there were."""
    known = context.gateway.backends if context.gateway is not None else ()
    found = [(backend.epp, *_sizes(backend.endpoints)) for backend in known]
    wanted = [(name, *sizes) for name, sizes in zip(EPPS, basis.pools, strict=False)]
    if found != wanted:
        yield f"it was judged with the pools {short(found)}, the run had {short(wanted)}"
        return
    inside = sorted(endpoint for backend in known for endpoint in backend.endpoints)
    for _, state in episode.of(PoolState):
        if sorted(endpoint for fact in state.pods for endpoint in fact.endpoints) != inside:
            yield "its pods are not those of the pools that it was judged with"
            return


def _sizes(endpoints: tuple[str, ...]) -> tuple[int, int]:
    """How many IPv4 and IPv6 endpoints."""
    ipv6 = sum(1 for endpoint in endpoints if endpoint.startswith("["))
    return len(endpoints) - ipv6, ipv6
