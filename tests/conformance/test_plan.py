"""Which instances a selection takes."""

from __future__ import annotations

import pytest

from conformance.planning.epp import EppTraits
from conformance.planning.plan import Plan, Selection, make_plan, selected
from conformance.report.document.basis import basis_of
from conformance.report.document.blocks import Topology
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load
from conformance.targets.profile import Profile
from conformance.verdict import Verdict
from fake_modelserver import has_ipv6_loopback


def test_in_turn_every_instance_of_a_scenario_is_taken() -> None:
    catalogue = Catalogue.load()
    instances = load(catalogue)
    everything = selected(instances, catalogue, "1.0.0", Selection(slow=True))
    scenarios = list(dict.fromkeys(one.group for one in everything))
    turns = [selected(instances, catalogue, "1.0.0", Selection(slow=True, turn=turn)) for turn in range(60)]
    assert all([one.group for one in chosen] == scenarios for chosen in turns)
    assert {one.id for chosen in turns for one in chosen} == {one.id for one in everything}
    assert not Selection(turn=0).everything


def test_all_instances_of_a_named_requirement_are_selected() -> None:
    catalogue = Catalogue.load()
    instances = load(catalogue)
    everything = selected(instances, catalogue, "1.0.0", Selection())
    chosen = selected(instances, catalogue, "1.0.0", Selection(turn=0, whole=("EPP-ERR-02",)))
    naming = [one for one in everything if "EPP-ERR-02" in one.scenario.requirements]
    assert len(naming) > len({one.group for one in naming})
    assert [one for one in chosen if "EPP-ERR-02" in one.scenario.requirements] == naming
    others = [one.group for one in chosen if one not in naming]
    assert len(others) == len(set(others))


def plan(version: str, **profile: object) -> Plan:
    catalogue = Catalogue.load()
    target = Profile.model_validate({"discovery": {"file": {}}, **profile})
    return make_plan(load(catalogue), catalogue, version, EppTraits.of(target), Selection())


def test_a_model_that_is_unknown_must_be_known_to_be() -> None:
    """Without InferenceModels only the vendor can say which models the target knows."""

    def skipped(**profile: object) -> set[str]:
        made = plan("0.3.0", **profile)
        return {one.work.instance.id for one in made.skips if one.verdict is Verdict.SKIPPED}

    assert {"model.known", "model.unknown"} <= skipped()
    assert not {"model.known", "model.unknown"} & skipped(requests={"unknownModel": "none"})
    assert not {"model.known", "model.unknown"} & skipped(discovery={"kubernetes": {}})


@pytest.mark.parametrize(("version", "verdict"), [("1.0.0", Verdict.NOT_APPLICABLE), ("next", Verdict.SKIPPED)])
def test_a_target_without_full_duplex_lacks_it_where_it_is_demanded(version: str, verdict: Verdict) -> None:
    made = plan(version, bodyModes=["buffered"])
    about = [one for one in made.skips if "EPP-STRM-02" in one.work.instance.scenario.requirements]
    assert {one.verdict for one in about} == {verdict}


@pytest.mark.parametrize(
    ("group", "asked"), [("inference.networking.k8s.io", True), ("inference.networking.x-k8s.io", False)]
)
def test_a_pool_of_the_experimental_group_has_one_port(group: str, asked: bool) -> None:
    made = plan("0.3.0", discovery={"kubernetes": {"group": group}})
    assert any(batch.pool.ports > 1 for batch in made.batches) is asked
    assert any("of the experimental group" in one.reason for one in made.skips) is not asked


@pytest.mark.parametrize(("mark", "unmarked"), [({"headers": {"x-batch": "1"}}, set()), ({"model": "m"}, {"GET"})])
def test_requests_without_a_body_are_sheddable_by_headers_only(mark: dict[str, object], unmarked: set[str]) -> None:
    made = plan("1.0.0", requests={"sheddable": mark}, claims={"sheds": True})
    name = "subset.beside-an-objective"
    skips = {one.work.instance.id: one.verdict for one in made.skips if one.work.instance.id.startswith(name)}
    assert skips == {f"{name}[method={method}]": Verdict.NOT_APPLICABLE for method in unmarked}


@pytest.mark.parametrize(
    "target",
    [
        {"discovery": {"kubernetes": {"group": "inference.networking.x-k8s.io"}}},
        {"discovery": {"fixed": {"endpoints": ["127.0.0.2:8000"]}}, "bodyModes": ["buffered"]},
        {"discovery": {"file": {}}, "requests": {"sheddable": {"headers": {"x-batch": "1"}}}},
    ],
)
def test_a_report_holds_all_that_decides_the_plan(target: dict[str, object]) -> None:
    profile = Profile.model_validate(target)
    traits = EppTraits.of(profile, ipv6=has_ipv6_loopback())
    around = Topology(
        discovery=traits.discovery, scrapes=True, tls="plaintext", connections=1, body_modes=traits.body_modes
    )
    assert basis_of(profile, command="", selection=Selection()).traits(around, profile.claims) == traits


def test_model_scenarios_are_left_out_if_the_model_is_rewritten() -> None:
    def left_out(*names: str) -> set[str]:
        made = plan("1.0.0", claims={"bodyRewrites": list(names)})
        found = {one.work.instance.id for one in made.skips if one.verdict is Verdict.NOT_APPLICABLE}
        return {name for name in found if name.startswith("transparency.model-of-another-request")}

    assert left_out("model")
    assert not left_out("other")


def test_scenarios_of_several_body_modes_need_them_all() -> None:
    def leaves_out(*modes: str) -> bool:
        made = plan("1.0.0", bodyModes=list(modes))
        return any(one.work.instance.id == "ext-proc.modes-of-their-own" for one in made.skips)

    assert leaves_out("full-duplex")
    assert not leaves_out("full-duplex", "buffered")


def test_a_target_of_ipv4_only_is_given_no_ipv6_pod() -> None:
    def given(*, ipv6: bool) -> tuple[set[str], set[Verdict]]:
        made = plan("1.0.0", claims={"ipv6": ipv6})
        six = {one.id for one in load(Catalogue.load()) if any(pod.family == "ipv6" for pod in one.scenario.pool.pods)}
        left_out = [one for one in made.skips if one.work.instance.id in six]
        return {one.work.instance.id for one in left_out}, {one.verdict for one in left_out}

    assert {"subset.ipv6", "destination.ipv6"} <= {name.partition("[")[0] for name in given(ipv6=False)[0]}
    assert given(ipv6=False)[1] == {Verdict.NOT_APPLICABLE}
    assert given(ipv6=True) == (set(), set())


def test_shared_batches_come_first_then_the_longest_waits() -> None:
    batches = plan("1.0.0").batches
    alone = [len(batch.work) == 1 for batch in batches]
    assert alone == sorted(alone)
    steps = [batch.work[0].instance.scenario.steps for batch in batches if len(batch.work) == 1]
    quiet = [any(step.pool is not None and step.pool.settle == "quietly" for step in one) for one in steps]
    assert any(quiet)
    assert quiet == sorted(quiet, reverse=True)
