"""Every fault of the gateway, and the variants that must not be accused."""

from __future__ import annotations

from reference_gateway.fault import Fault
from reference_gateway.faults import (
    answers,
    changes,
    contents,
    ejecting,
    envoy,
    epp_client,
    failing,
    hedging,
    passage,
    pools,
    relay,
    splits,
    variants,
)

__all__ = ["FAULTS", "VARIANTS"]

FAULTS: tuple[Fault, ...] = (
    *epp_client.FAULTS,
    *changes.FAULTS,
    *contents.FAULTS,
    *passage.FAULTS,
    *relay.FAULTS,
    *failing.FAULTS,
    *answers.FAULTS,
    *hedging.FAULTS,
    *pools.FAULTS,
    *splits.FAULTS,
    *envoy.FAULTS,
)
VARIANTS: tuple[Fault, ...] = (
    *variants.VARIANTS,
    *answers.VARIANTS,
    *ejecting.VARIANTS,
    *hedging.VARIANTS,
    *splits.VARIANTS,
    *envoy.VARIANTS,
)
