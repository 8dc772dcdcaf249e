"""The registry of the gateway's deviations. A deviation is one row: its name, what it breaks, why, and its parts.

What a fault breaks is declared by hand and before it first runs. Importing `reference_gateway.faults` fills the
registry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from reference_gateway.epp_client import Talk
from reference_gateway.relay import Gateway

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One deviation. `breaks` None: a variant, which is odd and right. As a decorator it takes the class that does it.

    `parts` are subclasses of `Gateway` and `Talk`. `settings` change `relay.Settings`; `claims` are what the profile
    says differently, by its keys. `effect` is the most that the violation counts for. `envoy` names the configuration
    (`gateway.envoy.BROKEN`) of a fault that is one of a real Envoy. `unjudged`: words of the reason for which some
    scenarios can't judge it.
    """

    name: str
    why: str
    breaks: str | None = None
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: Literal["fail", "warn"] = "fail"
    version: str = "1.0.0"
    parts: list[type] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    pools: int = 1
    envoy: str | None = None
    unjudged: str = ""

    def __call__(self, cls: C) -> C:
        """Take `cls` as a part."""
        self.parts.append(cls)
        return cls

    @property
    def gateway(self) -> type[Gateway]:
        """The gateway that deviates so."""
        made = next((one for one in self.parts if issubclass(one, Gateway)), Gateway)
        talk = next((one for one in self.parts if issubclass(one, Talk)), made.talk_type)
        return type(made.__name__, (made,), {"talk_type": talk})

    def listed(self) -> dict[str, Any]:
        """It as `--list-faults` and `--list-variants` print it."""
        skipped = ("parts", "settings")
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in skipped}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}


FAULTS: list[Fault] = []
VARIANTS: list[Fault] = []


def fault(
    name: str, breaks: str, why: str, *parts: type, also: Mapping[str, str] | None = None, **declared: Any
) -> Fault:
    """Declare a gateway with one mistake; the keywords are the fields of `Fault`."""
    made = Fault(name=name, breaks=breaks, why=why, parts=[*parts], also_breaks=also or {}, **declared)
    FAULTS.append(made)
    return made


def variant(name: str, why: str, *parts: type, **declared: Any) -> Fault:
    """Declare a gateway that is odd, or configured otherwise, and right."""
    made = Fault(name=name, why=why, parts=[*parts], **declared)
    VARIANTS.append(made)
    return made
