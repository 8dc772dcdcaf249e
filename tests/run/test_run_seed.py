"""The same seed sends the same requests: alone or with others, on one target or several, through either data plane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from programs import needs_envoy

from conformance.events import RunEvent, ScenarioFinished
from conformance.planning.plan import Selection
from conformance.run.data_plane.plane import chosen
from conformance.run.session import RunSettings, run
from conformance.targets.resolve import REFERENCE, load_profile
from ext_proc.record import UpstreamRequest

pytestmark = pytest.mark.program

SOME = ("destination.completion", "destination.chat", "errors.recovers", "pool.removed")


def sent(*scenarios: str, seed: int = 1, jobs: int = 1, data_plane: str = "fake") -> Mapping[str, Sequence[bytes]]:
    """The bodies that reached pods, by result and in the order of its exchanges."""
    events: list[RunEvent] = []
    settings = RunSettings(
        profile=load_profile(REFERENCE),
        selection=Selection(scenarios=scenarios),
        seed=seed,
        jobs=jobs,
        data_plane=chosen(data_plane),
    )
    run(settings, events.append)
    bodies: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for event in events:
        if isinstance(event, ScenarioFinished) and event.episode is not None:
            own = f"{event.episode.id}."
            for _, one in event.episode.of(UpstreamRequest):
                if one.exchange is not None and one.exchange.startswith(own):
                    bodies[event.result.id].append((int(one.exchange.removeprefix(own)), one.body))
    return {name: [body for _, body in sorted(found)] for name, found in bodies.items()}


def test_with_others_alone_and_on_several_targets():
    together = sent(*SOME)
    assert {"destination.chat", "errors.recovers"} <= set(together)
    assert sent(*SOME, jobs=3) == together
    for name in ("destination.chat", "pool.removed"):
        assert sent(name)[name] == together[name]
    assert sent(*SOME, seed=2) != together


def test_no_two_requests_of_a_run_are_alike():
    bodies = [body for found in sent(*SOME).values() for body in found if body]
    assert len(bodies) == len(set(bodies))


@needs_envoy
def test_through_envoy_as_through_the_fake():
    some = ("destination.completion", "pool.removed")
    assert sent(*some, data_plane="envoy") == sent(*some)
