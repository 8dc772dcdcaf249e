"""The model that a scenario means, at targets with names of all kinds."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from conformance.report.verify.stimulus import Learned, _learn_nearly_known
from conformance.run.data_plane.stimuli import prepare
from conformance.scenario.models import NOT_SERVED, asked_model
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import Exchange
from conformance.targets.resolve import REFERENCE, load_profile

names = st.text(max_size=9)


def test_names_that_are_nearly_known() -> None:
    found = {said: asked_model(said, "org/Llama-3", "none") for said in NOT_SERVED}
    assert found == {
        "unknown": "none",
        "other-case": "ORG/lLAMA-3",
        "beginning": "org/L",
        "extended": "org/Llama-3-none",
        "prefixed": "none/org/Llama-3",
        "of-another-pool": "of-another-pool",
        "of-another-namespace": "of-another-namespace",
    }


@given(st.sampled_from(sorted(NOT_SERVED)), names, names)
def test_unserved_models_are_never_the_known_model(said: str, known: str, unknown: str) -> None:
    assert asked_model(said, known, f"{known}-{unknown}") != known
    assert asked_model(said, known, f"{known}-{unknown}") or not known


def test_other_names_are_themselves() -> None:
    assert asked_model("known", "a", "b") == "a"
    assert asked_model("adapter-7", "a", "b") == "adapter-7"


def test_similar_models_are_derived_from_the_known_model() -> None:
    """So evidence of another model in its place is not that of the scenario."""
    learned = Learned()
    assert learned.same(("model", "known", False), "a")
    assert learned.same(("model", "unknown", False), "none")
    _learn_nearly_known("extended", "asked", learned)
    assert not learned.same("asked", "none")
    assert learned.same("asked", "a-none")


def test_repeats_take_models_in_turn() -> None:
    exchange = Exchange(models=("known", "unknown", "adapter-7"), repeat=4)
    profile, found = load_profile(REFERENCE), []
    for index in range(4):
        one = prepare(
            exchange,
            index=index,
            mode="full-duplex",
            profile=profile,
            endpoints={NOBODY: ("127.0.0.2:8000",)},
            pool=(),
            rng=random.Random(1),
        )
        body = json.loads(b"".join(chunk.data for chunk in one.request.chunks))
        found.append((body["model"], one.note))
    known, unknown = profile.requests.model, profile.requests.unknown_model
    assert found == [(known, {}), (unknown, {"unknown_model": True}), ("adapter-7", {}), (known, {})]
