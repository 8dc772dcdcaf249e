"""Which instances a selection takes."""

from __future__ import annotations

from conformance.requirements.catalogue import Catalogue
from conformance.run.plan import Selection, selected
from conformance.scenario.loader import load


def test_in_turn_every_instance_of_a_scenario_is_taken() -> None:
    catalogue = Catalogue.load()
    instances = load(catalogue)
    everything = selected(instances, catalogue, "1.0.0", Selection(slow=True))
    scenarios = list(dict.fromkeys(one.group for one in everything))
    turns = [selected(instances, catalogue, "1.0.0", Selection(slow=True, turn=turn)) for turn in range(60)]
    assert all([one.group for one in chosen] == scenarios for chosen in turns)
    assert {one.id for chosen in turns for one in chosen} == {one.id for one in everything}
    assert not Selection(turn=0).everything


def test_what_names_a_requirement_is_taken_whole() -> None:
    catalogue = Catalogue.load()
    instances = load(catalogue)
    everything = selected(instances, catalogue, "1.0.0", Selection())
    chosen = selected(instances, catalogue, "1.0.0", Selection(turn=0, whole=("EPP-ERR-02",)))
    naming = [one for one in everything if "EPP-ERR-02" in one.scenario.requirements]
    assert len(naming) > len({one.group for one in naming})
    assert [one for one in chosen if "EPP-ERR-02" in one.scenario.requirements] == naming
    others = [one.group for one in chosen if one not in naming]
    assert len(others) == len(set(others))
