"""The plan for a gateway: which scenario instances run against it, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conformance.requirements.catalogue import Catalogue
from conformance.run.gateway.pods import OWN, is_ipv6
from conformance.run.plan import Batch, Plan, Selection, Skip, Work, selected
from conformance.scenario.loader import Instance
from conformance.scenario.pool import Pool
from conformance.targets.gateway import EPPS, GatewayProfile
from conformance.verdict import Verdict


def make_gateway_plan(
    instances: Iterable[Instance],
    catalogue: Catalogue,
    version: str,
    profile: GatewayProfile,
    selection: Selection,
    *,
    ipv6: bool = True,
) -> Plan:
    """The plan for one version: one batch, whose work is done piece by piece.

    Raises `UsageError` if the selection leaves nothing of this version.
    """
    work: list[Work] = []
    skips: list[Skip] = []
    for instance in selected(instances, catalogue, version, selection):
        one = Work(id=instance.id, instance=instance, mode="gateway")
        skip = _impossible(one, profile, ipv6=ipv6)
        if skip is None:
            work.append(one)
        else:
            skips.append(skip)
    batches = (Batch(pool=Pool(), work=tuple(work)),) if work else ()
    return Plan(version=version, batches=batches, skips=tuple(skips), complete=selection.everything)


def _impossible(work: Work, profile: GatewayProfile, *, ipv6: bool) -> Skip | None:
    """Why this gateway, or this machine, can't run it; None if it can."""
    claims = profile.claims
    takes_a_subset = profile.subset_header is not None or profile.start.envoy is not None
    unmet: Mapping[str, tuple[bool, str]] = {
        "retries": (not claims.retries, "the profile says that retry is not configured"),
        "two-pools": (len(profile.backends) < 2, "the gateway has one pool"),
        "subset-hint": (not takes_a_subset, "the profile says no `subsetHeader`, which makes it send a subset hint"),
        "fail-open": (claims.failure_mode != "open", "the profile says that the gateway fails closed"),
        "reads-header": (claims.follows == "metadata", "the profile says that the gateway follows the metadata"),
        "reads-metadata": (claims.follows == "header", "the profile says that the gateway follows the header"),
        "fail-closed": (claims.failure_mode != "closed", "the profile says that the gateway fails open"),
    }
    for need in work.instance.scenario.needs:
        missing, reason = unmet.get(need, (False, ""))
        if missing:
            return Skip(work=work, verdict=Verdict.NOT_APPLICABLE, reason=reason)
    return _too_few(work, profile, ipv6=ipv6)


def _too_few(work: Work, profile: GatewayProfile, *, ipv6: bool) -> Skip | None:
    pods = work.instance.scenario.pool.pods
    for name, backend, own in zip(EPPS, profile.backends, OWN, strict=False):
        for family in ("ipv4", "ipv6"):
            needed = sum(pod.backend == name and pod.family == family for pod in pods)
            known = sum(is_ipv6(one) == (family == "ipv6") for one in backend.endpoints)
            if not backend.endpoints:
                known = own if family == "ipv4" else int(ipv6 and name == EPPS[0])
            if needed > known:
                reason = f"needs {needed} {family} endpoints in the {name} pool, which has {known}"
                return Skip(work=work, verdict=Verdict.SKIPPED, reason=reason)
    return None
