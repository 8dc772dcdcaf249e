"""The block `plan` of `report.json`: what decided which scenario instances were run, so that it can be decided again.

`basis_of` writes it from a profile; `traits` and `selection` give back what the plan is computed from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from conformance.evidence.episode import Claims, GatewayFacts
from conformance.evidence.model_server import ModelServerFacts
from conformance.planning.data_plane import FAKE, DataPlaneChoice
from conformance.planning.epp import EppTraits
from conformance.planning.gateway import GatewayTraits
from conformance.planning.model_server import ModelServerTraits
from conformance.planning.plan import Selection, Traits
from conformance.report.document.blocks import Block, GatewayTopology, ModelServerTopology, Topology
from conformance.roles import traits_of
from conformance.targets.gateway import AnyProfile


class SelectionBlock(Block):
    """What was selected, as `Selection` has it. Nothing but `slow`: all that belongs to a full verdict."""

    scenarios: tuple[str, ...] = Field((), description="ids or globs of scenarios")
    exclude: tuple[str, ...] = Field((), description="ids or globs of scenarios that were left out")
    requirements: tuple[str, ...] = Field((), description="requirements whose scenarios were run")
    levels: tuple[str, ...] = Field((), description="levels of requirements whose scenarios were run")
    sections: tuple[str, ...] = Field((), description="sections whose scenarios were run")
    smoke: bool = Field(False, description="the smoke set alone")
    with_smoke: bool = Field(False, description="the smoke set, besides the rest")
    smoke_once: bool = Field(False, description="the smoke set in the first body mode only")
    slow: bool = Field(False, description="slow scenarios, too")
    turn: int | None = Field(None, description="one instance of each scenario: the one whose turn it is")
    whole: tuple[str, ...] = Field((), description="requirements whose scenarios were run with all of their matrix")


class ScenarioSource(Block):
    """A file of scenarios that do not come with the suite, with its whole text."""

    file: str = Field(description="its name, as sources of results have it")
    text: str = Field(description="what it holds")


class EppBasis(Block):
    """What of an endpoint picker and its machine decides the plan, besides claims and topology."""

    endpoints: int = Field(ge=0, description="how many endpoints it knows, if they are fixed")
    knows_models: bool = Field(description="whether it can tell a model that no pod serves")
    experimental: bool = Field(False, description="whether its InferencePool is of the experimental group")
    marks_bodyless: bool = Field(True, description="whether a request without a body can be marked as sheddable")
    restartable: bool = Field(description="whether the suite starts it")
    configurable: bool = Field(False, description="whether the suite writes the configuration of its reporters")
    ipv6: bool = Field(description="whether the machine has an IPv6 loopback address")


class GatewayBasis(Block):
    """What of a gateway decides the plan, besides its claims."""

    takes_a_subset: bool = Field(description="whether a request can make it send a subset hint")
    pools: tuple[tuple[int, int], ...] = Field(description="how many IPv4 and IPv6 endpoints each of its pools has")


class PlanBasis(Block):
    """What decided the plan, and what every judge was told."""

    command: str = Field(description="what runs this target again: the beginning of each command to reproduce")
    selection: SelectionBlock = Field(description="what was selected")
    deadline: float = Field(gt=0, description="seconds within which the target must answer")
    destination_namespace: str = Field(description="where the destination is looked for in dynamic metadata")
    subset_namespace: str = Field(description="where the subset hint is, in the metadata context")
    epp: EppBasis | None = Field(description="of an endpoint picker")
    gateway: GatewayBasis | None = Field(description="of a gateway")
    sources: tuple[ScenarioSource, ...] = Field(
        description="scenarios that are not of the certified set: the vendor's own, and a generated one that failed"
    )

    def chosen(self) -> Selection:
        """The selection."""
        return Selection(**self.selection.model_dump())

    def traits(
        self,
        topology: Topology | GatewayTopology | ModelServerTopology,
        claims: Claims | GatewayFacts | ModelServerFacts,
    ) -> Traits:
        """The traits of the target. Raises `ValueError` for blocks that do not belong together."""
        if self.epp is not None and isinstance(topology, Topology) and isinstance(claims, Claims):
            return EppTraits(
                body_modes=topology.body_modes,  # type: ignore[arg-type]
                claims=claims,
                discovery=topology.discovery,
                data_plane=DataPlaneChoice.named(topology.data_plane),
                **self.epp.model_dump(),
            )
        if self.gateway is not None and isinstance(topology, GatewayTopology) and isinstance(claims, GatewayFacts):
            return GatewayTraits(claims=claims, **self.gateway.model_dump())
        alone = self.epp is None and self.gateway is None
        if alone and isinstance(topology, ModelServerTopology) and isinstance(claims, ModelServerFacts):
            return ModelServerTraits(claims=claims)
        raise ValueError("plan, topology and claims are of different roles")


def basis_of(
    profile: AnyProfile,
    *,
    command: str,
    selection: Selection,
    data_plane: str = FAKE,
    scenario_paths: Sequence[Path] = (),
    generated: Iterable[tuple[str, str]] = (),
) -> PlanBasis:
    """The basis of a run's plan. `generated` are failing generated conversations, by protocol version."""
    from fake_modelserver import has_ipv6_loopback

    choice = DataPlaneChoice.named(data_plane)
    traits = traits_of(profile, ipv6=has_ipv6_loopback(), data_plane=choice)
    own: dict[str, Any] = {"epp": None, "gateway": None}
    if isinstance(traits, EppTraits):
        own["epp"] = EppBasis(**{name: getattr(traits, name) for name in EppBasis.model_fields})
    elif isinstance(traits, GatewayTraits):
        own["gateway"] = GatewayBasis(takes_a_subset=traits.takes_a_subset, pools=traits.pools)
    sources = [ScenarioSource(file=str(path), text=path.read_text("utf-8")) for path in _files(scenario_paths)]
    sources += [ScenarioSource(file=f"{GENERATED_FILE}-{version}", text=text) for version, text in generated]
    return PlanBasis(
        command=command,
        selection=SelectionBlock(**dataclasses.asdict(selection)),
        deadline=profile.timeouts.answer,
        destination_namespace=profile.metadata.destination,
        subset_namespace=profile.metadata.subset,
        sources=tuple(sources),
        **own,
    )


GENERATED_FILE = "generated"
"""The name of the file of a generated conversation, before the protocol version."""


def is_generated(file: str) -> bool:
    """Whether the name of a source is that of a generated conversation, and of no file of the user's own."""
    return re.fullmatch(rf"{GENERATED_FILE}-(\d+\.\d+\.\d+|next)", file) is not None


def _files(paths: Sequence[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted((one for one in path.iterdir() if one.suffix in (".yaml", ".yml")), key=lambda p: p.name)
        else:
            yield path
