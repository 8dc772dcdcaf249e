"""What a target with fixed endpoints is asked, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UsageError
from conformance.planning.fixed import fitted, pod_names
from conformance.planning.plan import Selection
from conformance.requirements.catalogue import Catalogue
from conformance.run.epp.binding import check_bindable
from conformance.run.session import RunSettings, run
from conformance.scenario import references
from conformance.scenario.loader import Instance, load
from conformance.scenario.pool import Pool
from conformance.scenario.schema import Scenario
from conformance.targets.ports import free_ports
from conformance.targets.profile import Discovery, Fixed, Profile, Start
from conformance.verdict import Verdict

pytestmark = pytest.mark.program

SCENARIOS: dict[str, Instance] = {one.id: one for one in load(Catalogue.load())}


def pods(name: str, count: int) -> list[str]:
    pool = fitted(SCENARIOS[name].scenario, count)
    assert isinstance(pool, Pool), pool
    return [f"{pod.name}{pod.queue or ''}" for pod in pool.pods]


def reason(name: str, count: int) -> str:
    found = fitted(SCENARIOS[name].scenario, count)
    assert isinstance(found, str)
    return found


@given(st.sampled_from(sorted(SCENARIOS)), st.integers(1, 40))
def test_every_pod_is_an_endpoint_and_every_endpoint_a_pod(name: str, count: int) -> None:
    scenario = SCENARIOS[name].scenario
    pool = fitted(scenario, count)
    if isinstance(pool, str):
        assert "endpoint" in pool
        return
    names = [pod.name for pod in pool.pods]
    assert len(set(names)) == len(names) == count
    referred = {one for _, one in references.names(scenario.model_dump(mode="json", include={"steps"}))}
    assert referred & {pod.name for pod in scenario.pool.pods} <= set(names)


def test_endpoints_that_are_left_over_are_idle_pods() -> None:
    assert pods("subset.pick-stays-inside[only=a]", 5) == ["a2", "b2", "c", "d", "e"]


def test_a_pool_that_is_busy_all_over_stays_so() -> None:
    assert pods("errors.load-unclaimed[method=GET]", 4) == ["a100", "b100", "c100", "d100"]


def test_one_pod_stays_outside_of_a_subset() -> None:
    assert pods("subset.pick-stays-inside[only=b]", 2) == ["b2", "c"]
    assert reason("subset.large-body[only=a]", 1) == "needs 2 endpoints, the target knows 1"


@pytest.mark.parametrize(
    ("scenario", "what"),
    [
        ("errors.empty-pool[method=POST]", "an empty pool"),
        ("destination.not-ready", "a pod that may not be picked"),
        ("destination.several-ports", "a pool with 2 ports"),
        ("destination.ipv6[method=POST]", "an IPv6 pod"),
        ("pool.removed", "a pool that changes"),
    ],
)
def test_scenarios_that_need_another_pool_are_skipped_with_a_reason(scenario: str, what: str) -> None:
    assert reason(scenario, 3) == f"needs {what}; this target's endpoints are fixed"


def test_no_pods_are_added_where_each_pod_matters() -> None:
    scenario = Scenario.model_validate(
        {
            "id": "vendor.idle-one",
            "title": "The idle pod is picked",
            "requirements": ["EPP-DEST-01"],
            "pool": {"pods": [{"name": "a", "queue": 9}, {"name": "b"}]},
            "steps": [{"exchange": {}, "expect": {"within": ["{b}"]}}],
        }
    )
    assert fitted(scenario, 2) == scenario.pool
    assert fitted(scenario, 3) == "is about a pool of exactly 2 endpoints, the target knows 3"


def test_names_beyond_the_alphabet() -> None:
    assert pod_names(28)[-3:] == ("z", "p27", "p28")


def test_an_address_of_another_machine() -> None:
    with pytest.raises(UsageError, match=r"no model server can be bound at 192\.0\.2\.7:8000") as raised:
        check_bindable(["127.0.0.1:0", "192.0.2.7:8000"])
    assert "127.0.0.1:8001" in raised.value.hint


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def verdicts(tmp_path: Path) -> Callable[..., dict[str, Verdict]]:
    """Run scenarios on the reference EPP that knows so many endpoints: the verdicts of those that were not skipped."""

    def of(count: int, *patterns: str, fault: str | None = None) -> dict[str, Verdict]:
        endpoints = [f"127.0.0.1:{port}" for port in free_ports(count)]
        file = tmp_path / "endpoints"
        file.write_text("".join(f"{endpoint}\n" for endpoint in endpoints))
        command = ("{python}", "-m", "reference_epp", "--listen=127.0.0.1:{port}", f"--endpoints-file={file}")
        profile = Profile(
            start=Start(command=(*command, *([f"--fault={fault}"] if fault else ()))),
            discovery=Discovery(fixed=Fixed(endpoints=tuple(endpoints))),
        )
        outcome = run(RunSettings(profile=profile, selection=Selection(scenarios=patterns)), lambda _: None)
        results = outcome.versions[0].results
        return {one.id: one.verdict for one in results if one.verdict is not Verdict.SKIPPED}

    return of


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_right_target_is_not_accused(verdicts, count: int) -> None:
    found = verdicts(count, "subset.*", "destination.list", "pool.metrics", "robustness.interleaved-subsets")
    assert set(found.values()) <= {Verdict.PASS, Verdict.NOT_APPLICABLE}
    assert ("subset.pick-stays-inside[only=a]" in found) is (count > 1)
    assert ("robustness.interleaved-subsets" in found) is (count > 2)


@pytest.mark.parametrize(
    ("fault", "scenario"),
    [
        ("subset-ignored", "subset.large-body[only=a]"),
        ("better-endpoint-outside-wins", "subset.pick-stays-inside[only=a]"),
        ("subset-by-address", "subset.wrong-port"),
    ],
)
def test_a_wrong_target_is_caught(verdicts, fault: str, scenario: str) -> None:
    assert verdicts(4, scenario, fault=fault)[scenario] is Verdict.FAIL
