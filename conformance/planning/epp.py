"""The plan of role epp: what an endpoint picker, and the data plane before it, can't be asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from conformance.evidence.episode import Claims
from conformance.evidence.reported import configured
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.fixed import fitted, fixed_pool
from conformance.planning.plan import Obstacle
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import BodyMode, Role, Scenario
from conformance.targets.http_request import bodyless
from conformance.targets.profile import Profile
from conformance.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EppTraits:
    """What of an endpoint picker decides which scenarios it can run (`Traits`)."""

    role: Role = "epp"
    body_modes: tuple[BodyMode, ...] = ("full-duplex",)
    claims: Claims = field(default_factory=Claims)
    discovery: Literal["kubernetes", "file", "fixed"] = "file"
    endpoints: int = 0
    """How many endpoints it knows, if they are fixed."""
    knows_models: bool = False
    """Whether it can tell a model that no pod serves: from InferenceModels, or because its vendor names one."""
    experimental: bool = False
    """Whether its InferencePool is of the experimental group, v1alpha2."""
    marks_bodyless: bool = True
    """Whether a request without a body can be marked as sheddable: by headers, as it names no model."""
    restartable: bool = True
    """Whether the suite starts it."""
    configurable: bool = False
    """Whether the suite writes the configuration of its reporters, and can start copies with others."""
    ipv6: bool = True
    """Whether this machine has an IPv6 loopback address."""
    data_plane: DataPlaneChoice = field(default_factory=DataPlaneChoice)

    @classmethod
    def of(cls, profile: Profile, *, ipv6: bool = True, data_plane: DataPlaneChoice | None = None) -> EppTraits:
        """The traits of the target that a profile describes."""
        discovery = profile.discovery
        return cls(
            body_modes=profile.body_modes,
            claims=profile.claims,
            discovery="kubernetes" if discovery.kubernetes else "file" if discovery.file else "fixed",
            endpoints=len(discovery.fixed.endpoints) if discovery.fixed else 0,
            knows_models=discovery.kubernetes is not None or "unknown_model" in profile.requests.model_fields_set,
            experimental=discovery.kubernetes is not None and discovery.kubernetes.group.endswith(".x-k8s.io"),
            marks_bodyless=bool(profile.requests.sheddable.headers),
            restartable=profile.started_by_us,
            configurable=profile.configurable,
            ipv6=ipv6,
            data_plane=data_plane or DataPlaneChoice(),
        )

    @property
    def first_pool(self) -> Pool:
        """The ordinary pool; on a target with fixed endpoints, one of all of them."""
        return fixed_pool(self.endpoints) if self.discovery == "fixed" else Pool()

    def modes(self, scenario: Scenario) -> tuple[BodyMode, ...]:
        """Those that the scenario is about; for the smoke set all that are driven, for others the first."""
        if scenario.modes:
            return tuple(mode for mode in self.body_modes if mode in scenario.modes)
        return self.body_modes if scenario.smoke else self.body_modes[:1]

    def start(self, scenario: Scenario) -> Pool | Obstacle:
        """The scenario's own pool; on a target with fixed endpoints, one of as many pods."""
        if (obstacle := self._unclaimed(scenario) or self._missing(scenario)) is not None:
            return obstacle
        if self.data_plane.variant is not None:
            from conformance.planning.envoy_limits import beyond  # takes a moment to import

            if (reason := beyond(scenario, self.data_plane)) is not None:
                return Obstacle(verdict=Verdict.NOT_APPLICABLE, reason=reason)
        if self.discovery != "fixed":
            return scenario.pool
        fit = fitted(scenario, self.endpoints)
        return fit if isinstance(fit, Pool) else Obstacle(verdict=Verdict.SKIPPED, reason=fit)

    def _unclaimed(self, scenario: Scenario) -> Obstacle | None:
        """What the scenario needs and the profile does not claim."""
        claims = self.claims
        unclaimed = {
            "shedding": claims.sheds is not True,
            "queueing": not claims.queues,
            "fallback-lists": claims.fallback_lists is not True,
            "reporter": claims.reporter is not True,
            **{mode: mode not in self.body_modes for mode in ("full-duplex", "buffered", "streamed")},
        }
        for need in scenario.needs:
            if unclaimed.get(need):
                return Obstacle(verdict=Verdict.NOT_APPLICABLE, reason=f"the profile does not claim {need}")
        if "engines" in scenario.needs:
            for name in sorted({pod.engine for pod in scenario.pool.pods if pod.engine} - set(claims.engines)):
                reason = f"the profile does not claim that the gauges of {name} are read (claims.engines)"
                return Obstacle(verdict=Verdict.NOT_APPLICABLE, reason=reason)
        return self._unreported(scenario)

    def _unreported(self, scenario: Scenario) -> Obstacle | None:
        """What the scenario needs of the reporter's configuration and the profile does not say."""
        reason = ""
        if any(step.start_with for step in scenario.steps) and not self.configurable:
            reason = "the suite can't start it with other configurations: nothing passes {reporterConfig}"
        wanted = {name for step in scenario.steps if step.expect is not None for name in step.expect.report}
        if wanted and not self.claims.attributes and not self.configurable:
            reason = "the profile does not say what is reported: neither claims.attributes nor {reporterConfig}"
        elif wanted and not wanted & set(configured(self.claims.attributes)):
            reason = "none of the attributes in claims.attributes is one that it is about"
        return Obstacle(verdict=Verdict.NOT_APPLICABLE, reason=reason) if reason else None

    def _missing(self, scenario: Scenario) -> Obstacle | None:
        """What this target, or this machine, does not have."""
        pods = (*scenario.pool.pods, *(pod for step in scenario.steps if step.pool for pod in step.pool.add))
        ports = max(scenario.pool.ports, *(step.pool.ports or 1 for step in scenario.steps if step.pool), 1)
        not_applicable, skipped = Verdict.NOT_APPLICABLE, Verdict.SKIPPED
        if "models" in scenario.needs and not self.knows_models:
            reason = "nothing says which models the target knows: its profile has no requests.unknownModel"
            return Obstacle(verdict=skipped, reason=reason)
        if not self.marks_bodyless and any(
            step.exchange and step.exchange.sheddable and bodyless(step.exchange) for step in scenario.steps
        ):
            reason = "a request without a body has no model to be marked by, and requests.sheddable names no headers"
            return Obstacle(verdict=not_applicable, reason=reason)
        names_models = any(step.exchange and step.exchange.models for step in scenario.steps)
        if names_models and "model" in self.claims.body_rewrites:
            reason = "the profile says that the target rewrites `model` (claims.bodyRewrites): any may be right"
            return Obstacle(verdict=not_applicable, reason=reason)
        if not self.claims.ipv6 and any(pod.family == "ipv6" for pod in pods):
            reason = "the profile says that the target knows IPv4 endpoints only"
            return Obstacle(verdict=not_applicable, reason=reason)
        if not self.ipv6 and any(pod.family == "ipv6" for pod in pods):
            return Obstacle(verdict=skipped, reason="this machine has no IPv6 loopback address")
        if ports > 1 and self.experimental:
            return Obstacle(
                verdict=not_applicable, reason="an InferencePool of the experimental group has one port only"
            )
        if ports > 1 and not self.claims.several_ports:
            return Obstacle(verdict=not_applicable, reason="the profile says that its pools have one port only")
        if self.discovery != "kubernetes":
            if "kubernetes" in scenario.needs or any(step.kubernetes or step.models for step in scenario.steps):
                reason = "only meaningful for a target that watches the Kubernetes API"
                return Obstacle(verdict=not_applicable, reason=reason)
            if any(_only_in_kubernetes(pod) for pod in pods):
                return Obstacle(verdict=not_applicable, reason="other namespaces and labels exist only in Kubernetes")
        if any(step.restart for step in scenario.steps) and not self.restartable:
            reason = "the suite did not start the target, so it can't restart it"
            return Obstacle(verdict=skipped, reason=reason)
        return None


def _only_in_kubernetes(pod: Pod) -> bool:
    return pod.namespace == "other" or pod.shares_name_with is not None or pod.active_ports is not None
