"""The plan of role model-server: what a server can't be asked, by what its profile says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.evidence.model_server import ModelServerFacts
from conformance.planning.plan import Obstacle
from conformance.planning.undriven import Undriven
from conformance.scenario.pool import Pool
from conformance.scenario.schema import Role, Scenario
from conformance.targets.model_server import ModelServerProfile
from conformance.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerTraits(Undriven):
    """What of a model server decides which scenarios it can run (`Traits`)."""

    mode = "direct"
    role: Role = "model-server"
    claims: ModelServerFacts

    @classmethod
    def of(cls, profile: ModelServerProfile, *, ipv6: bool = True, data_plane: object = None) -> ModelServerTraits:  # noqa: ARG003
        """The traits of the model server that a profile describes."""
        return cls(claims=profile.claims)

    def start(self, scenario: Scenario) -> Pool | Obstacle:
        """The scenario runs, unless it needs adapters that the profile does not have."""
        claims = self.claims
        unmet: Mapping[str, tuple[bool, Verdict, str]] = {
            "lora": (not claims.lora, Verdict.NOT_APPLICABLE, "the profile claims no dynamic LoRA"),
            "adapters": (
                not claims.adapters,
                Verdict.SKIPPED if claims.lora else Verdict.NOT_APPLICABLE,
                "the profile names no loaded adapter (`adapters`)",
            ),
        }
        for need in scenario.needs:
            missing, verdict, reason = unmet.get(need, (False, Verdict.SKIPPED, ""))
            if missing:
                return Obstacle(verdict=verdict, reason=reason)
        return Pool()
