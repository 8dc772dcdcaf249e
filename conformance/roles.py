"""The roles that the suite tests, and what is known of each: ask here, and test for no role.

How scenarios of a role are run is in `conformance.run.roles`, and its rules in a folder of `conformance.judges`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.epp import EppTraits
from conformance.planning.gateway import GatewayTraits
from conformance.planning.model_server import ModelServerTraits
from conformance.planning.plan import Traits
from conformance.targets.gateway import AnyProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """One role: the side of the protocol that is tested."""

    subject: str
    """What is tested, in words."""
    profile: str
    """What upstream's table calls that side."""
    folder: str
    """The folder of its reports among upstream's."""
    example: str
    """Flags of `run` that name a target, for commands that are shown; empty: the one that comes with the suite."""
    traits: Callable[..., Traits]
    """From a profile, whether the machine has IPv6 (`ipv6`) and the `data_plane`: what decides the plan."""


ROLES: Mapping[str, RoleFacts] = {
    "epp": RoleFacts(
        subject="endpoint picker",
        profile="EPP",
        folder="epp",
        example="",
        traits=EppTraits.of,
    ),
    "data-plane": RoleFacts(
        subject="gateway",
        profile="Gateway",
        folder="gateway",
        example="--profile envoy-override-host ",
        traits=GatewayTraits.of,
    ),
    "model-server": RoleFacts(
        subject="model server",
        profile="Model server",
        folder="model-server",
        example="--server URL ",
        traits=ModelServerTraits.of,
    ),
}


def traits_of(profile: AnyProfile, *, ipv6: bool = True, data_plane: DataPlaneChoice | None = None) -> Traits:
    """What of a target decides which scenarios it can run; `ipv6`: whether this machine has such a loopback address."""
    return ROLES[profile.role].traits(profile, ipv6=ipv6, data_plane=data_plane)
