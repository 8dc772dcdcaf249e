"""The profile of the bundled gateway with one deviation."""

from __future__ import annotations

from typing import Any

from conformance.selftest.deviation import PROGRAM, Deviation
from conformance.targets.gateway import GatewayProfile
from conformance.targets.profile import Timeouts

PATIENCE = Timeouts(answer=7, start=30)
"""Longer than the gateways' own patience with an EPP or a model server (4 s), and no longer than needed."""

_ADDRESSES = (("{epp}", "{endpoints}"), ("{epp2}", "{endpoints2}"))


def gateway_profile(deviation: Deviation) -> GatewayProfile:
    """How the gateway is started with this deviation, and what it claims: all that the right one keeps."""
    command = ["{python}", "-m", PROGRAM["data-plane"], *deviation.flags, "--listen=127.0.0.1:{port}"]
    for epp, endpoints in _ADDRESSES[: deviation.pools]:
        command += [f"--epp={epp}", f"--endpoints={endpoints}"]
    if split := deviation.claims.get("splitHeader"):
        command.append(f"--split-header={split}")
    ours = deviation.envoy is None  # a real Envoy makes a hint only as it is told to
    claims: dict[str, Any] = {
        "follows": "either",
        "retries": 3,
        "retryStatuses": [503],
        "walksList": True,
        "reportsServed": True,
        "sendsSubset": ours,
        **deviation.claims,
    }
    profile = GatewayProfile.model_validate(
        {
            "role": "data-plane",
            "name": deviation.name,
            "start": {"command": [*command, "--protocol-version={version}"]},
            "backends": [{}] * deviation.pools,
            "subsetHeader": "x-subset" if ours else None,
            "protocolVersions": list(deviation.versions),
            "claims": claims,
        }
    )
    return profile.model_copy(update={"timeouts": PATIENCE})
