"""The plan of role data-plane: what a gateway can't be asked, as it is configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.errors import UsageError
from conformance.evidence.episode import GatewayFacts
from conformance.planning.plan import Obstacle
from conformance.planning.undriven import Undriven
from conformance.scenario.pool import Pool
from conformance.scenario.schema import Role, Scenario
from conformance.targets.gateway import EPPS, GatewayProfile
from conformance.verdict import Verdict

OWN = (4, 2)
"""How many pods on IPv4 the suite gives the first pool, and the second, where the profile names no endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTraits(Undriven):
    """What of a gateway decides which scenarios it can run (`Traits`)."""

    mode = "gateway"
    role: Role = "data-plane"
    claims: GatewayFacts
    takes_a_subset: bool
    """Whether a request can make it send a subset hint."""
    pools: tuple[tuple[int, int], ...]
    """How many IPv4 and IPv6 endpoints each of its pools has."""

    @classmethod
    def of(cls, profile: GatewayProfile, *, ipv6: bool = True, data_plane: object = None) -> GatewayTraits:  # noqa: ARG003
        """The traits of the gateway that a profile describes; `ipv6`: whether this machine has such an address."""
        pools: list[tuple[int, int]] = []
        for name, backend, own in zip(EPPS, profile.backends, OWN, strict=False):
            known = sum(map(is_ipv6, backend.endpoints))
            chosen = (own, int(ipv6 and name == EPPS[0]))
            pools.append((len(backend.endpoints) - known, known) if backend.endpoints else chosen)
        takes_a_subset = profile.subset_header is not None or profile.start.envoy is not None
        return cls(claims=profile.claims, takes_a_subset=takes_a_subset, pools=tuple(pools))

    def start(self, scenario: Scenario) -> Pool | Obstacle:
        """All scenarios share the gateway's pools, so that one batch has them all."""
        claims = self.claims
        unmet: Mapping[str, tuple[bool, str]] = {
            "retries": (not claims.retries, "the profile says that retry is not configured"),
            "two-pools": (
                len(self.pools) < 2 or bool(claims.split_header),
                "the gateway has no second pool that takes over for the first",
            ),
            "split": (not claims.split_header, "the profile names no route that splits requests (claims.splitHeader)"),
            "subset-hint": (
                not self.takes_a_subset,
                "the profile says no `subsetHeader`, which makes it send a subset hint",
            ),
            "fail-open": (claims.failure_mode != "open", "the profile says that the gateway fails closed"),
            "reads-header": (claims.follows not in ("header", "either"), _reads(claims)),
            "reads-metadata": (claims.follows not in ("metadata", "either"), _reads(claims)),
            "fail-closed": (claims.failure_mode != "closed", "the profile says that the gateway fails open"),
        }
        for need in scenario.needs:
            missing, reason = unmet.get(need, (False, ""))
            if missing:
                return Obstacle(verdict=Verdict.NOT_APPLICABLE, reason=reason)
        return self._too_few(scenario) or Pool()

    def _too_few(self, scenario: Scenario) -> Obstacle | None:
        for name, counts in zip(EPPS, self.pools, strict=False):
            for family, known in zip(("ipv4", "ipv6"), counts, strict=True):
                needed = sum(pod.backend == name and pod.family == family for pod in scenario.pool.pods)
                if needed > known:
                    reason = f"needs {needed} {family} endpoints in the {name} pool, which has {known}"
                    return Obstacle(verdict=Verdict.SKIPPED, reason=reason)
        return None


def _reads(claims: GatewayFacts) -> str:
    """Why a destination that is in one place only need not be followed: no gateway has to read both."""
    if claims.follows is None:
        return "nothing says where the gateway reads the destination (claims.follows, --follows)"
    return f"the profile says that the gateway follows the {claims.follows}"


def is_ipv6(endpoint: str) -> bool:
    """Whether an endpoint is written with an IPv6 address."""
    return endpoint.startswith("[")


def pod_names(pool: Pool, pools: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """What a scenario calls each endpoint: its pods take those of their pool and family, in order. Raises `UsageError`
    where there are too few."""
    free = {name: list(endpoints) for name, endpoints in pools.items()}
    taken: dict[str, str] = {}
    for pod in pool.pods:
        found = [one for one in free.get(pod.backend, ()) if is_ipv6(one) == (pod.family == "ipv6")]
        if not found:
            raise UsageError(f"the gateway's pool has no endpoint left for pod {pod.name}")
        free[pod.backend].remove(found[0])
        taken[found[0]] = pod.name
    spare = (endpoint for endpoints in free.values() for endpoint in endpoints)
    return taken | {endpoint: f"spare-{number}" for number, endpoint in enumerate(spare, 1)}
