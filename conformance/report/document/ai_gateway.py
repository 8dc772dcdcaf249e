"""With which configurations of Envoy AI Gateway a target would work, as far as a run has shown.

Its requirements of custom EPPs (proposal "Support Integration with Endpoint Picker", section "Non-GIE EPP Integration")
are an ext_proc server that adds `x-gateway-destination-endpoint` to the request headers. It knows two ways to follow
that header, an ORIGINAL_DST cluster and the load-balancing policy override_host, and passes no metadata on. What it
asks of an EPP beyond messages (awareness of InferencePools) is not seen here.

Derived from results alone, so that it can be computed again from a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from conformance.outcome import ScenarioResult
from conformance.requirements.catalogue import Catalogue
from conformance.strict_yaml import FileModel
from conformance.verdict import Verdict

HEADER = "EPP-DEST-01"
LIST = "EPP-DEST-09"
MEMBER = "EPP-DEST-06"

FOLLOWED = (HEADER, "EPP-DEST-04", "ENV-11", "ENV-12", "ENV-13")
"""What makes the header one that Envoy follows: there, well-formed, in the right field, over the client's, in time."""

Way = Literal["original-dst", "override-host", "full-duplex", "buffered", "streamed"]

MODES: tuple[Way, ...] = ("full-duplex", "buffered", "streamed")
"""Request body modes that its extension policy has. InferencePools are configured for full duplex; the proposal's
example for other EPPs buffers requests and streams responses."""


class Fit(FileModel):
    """One way of configuring the gateway. `requirements` are those that stand against it."""

    way: Way = Field(description="the way of routing, or the request body mode")
    works: Literal["yes", "no", "unknown"] = Field(description="unknown: the run did not show it")
    why: str = Field(description="the reason in words; empty if it works")
    requirements: tuple[str, ...] = Field(description="the requirements that stand against it")


class AiGateway(FileModel):
    """What a run has shown of every way."""

    routing: tuple[Fit, ...] = Field(description="ORIGINAL_DST by header, and override_host by header")
    body_modes: tuple[Fit, ...] = Field(description="by request body mode")


def assess(catalogue: Catalogue, version: str, results: Sequence[ScenarioResult]) -> AiGateway:
    """What the results of one protocol version show."""
    carrier = [one.id for one in catalogue.for_version(version) if one.kind == "ext_proc"]
    modes = tuple(_mode(mode, carrier, [one for one in results if one.mode == mode]) for mode in MODES)
    usable = {fit.way for fit in modes if fit.works == "yes"}
    telling = [one for one in results if one.mode in usable] or results
    return AiGateway(routing=(_original_dst(telling), _override_host(telling)), body_modes=modes)


def _mode(mode: Way, carrier: Sequence[str], results: Sequence[ScenarioResult]) -> Fit:
    """A body mode works if Envoy's rules are kept in it, and the header comes where it counts."""
    return _fit(mode, results, {*carrier, *FOLLOWED})


def _original_dst(results: Sequence[ScenarioResult]) -> Fit:
    found = _fit("original-dst", results, FOLLOWED)
    if found.works == "yes" and LIST in _passed(results):
        why = "it gives several endpoints in one value, and the cluster dials none of them"
        return Fit(way="original-dst", works="no", why=why, requirements=(LIST,))
    return found


def _override_host(results: Sequence[ScenarioResult]) -> Fit:
    """It replaces an endpoint that it does not know by any other, and says nothing."""
    return _fit("override-host", results, (*FOLLOWED, MEMBER))


def _fit(way: Way, results: Sequence[ScenarioResult], needs: Iterable[str]) -> Fit:
    wanted = set(needs)
    broken = sorted(
        {
            name
            for one in results
            if not one.provisional
            for name, verdict in one.said
            if verdict is Verdict.FAIL and name in wanted
        }
    )
    if broken:
        return Fit(way=way, works="no", why=f"it breaks {', '.join(broken)}", requirements=tuple(broken))
    if HEADER not in _passed(results):
        why = "no request that got an endpoint was seen" if results else "it was not driven"
        return Fit(way=way, works="unknown", why=why, requirements=())
    return Fit(way=way, works="yes", why="", requirements=())


def _passed(results: Sequence[ScenarioResult]) -> set[str]:
    return {name for one in results for name in one.passed}
