"""Every fault of the gateway, and the variants that must not be accused."""

from __future__ import annotations

from fake_proxy.gateway.fault import Fault
from fake_proxy.gateway.faults import envoy, pools, relay, talk, variants

__all__ = ["FAULTS", "VARIANTS"]

FAULTS: tuple[Fault, ...] = (*talk.FAULTS, *relay.FAULTS, *pools.FAULTS, *envoy.FAULTS)
VARIANTS: tuple[Fault, ...] = (*variants.VARIANTS, *envoy.VARIANTS)
