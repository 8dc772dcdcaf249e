"""What a fault declares, by hand and before it first runs: what it does wrongly, and what that breaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reference_gateway.relay import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One deviation. `breaks` None: a variant, which is odd and right.

    `gateway` does it. `settings` change `relay.Settings`; `claims` are what the profile says differently, by its keys.
    `effect` is the most that the violation counts for. `envoy` names the configuration (`gateway.envoy.BROKEN`) of a
    fault that is one of a real Envoy. `unjudged`: words of the reason for which some scenarios can't judge it.
    """

    name: str
    why: str
    breaks: str | None = None
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: Literal["fail", "warn"] = "fail"
    version: str = "1.0.0"
    gateway: type[Gateway] = Gateway
    settings: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    pools: int = 1
    envoy: str | None = None
    unjudged: str = ""

    def listed(self) -> dict[str, Any]:
        """It as `--list-faults` and `--list-variants` print it."""
        skipped = ("gateway", "settings")
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in skipped}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
