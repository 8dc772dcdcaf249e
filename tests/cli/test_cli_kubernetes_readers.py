"""Endpoint pickers that read the Kubernetes API: ways of reading it wrong are found, right ways pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conformance.run.epp.pool import PoolController
from conformance.scenario.pool import PoolStep

pytestmark = pytest.mark.program

SUPPORT = Path(__file__).parents[1] / "support"
TRIES = 4
SOON = 5.0
"""Seconds in which a reader must follow a change, at most, where scenarios give clients time to back off: these connect
again at once, and one that is wrong never follows."""

UNREADY = "destination.not-known-to-be-ready"
WATCHES = "pool.bookmarks-and-ends-of-watches"
WRONG = {
    "reads-the-first-condition": ("pool.no-longer-ready", "EPP-DEST-06"),
    "takes-listed-pods-for-ready": ("pool.unready-at-start", "EPP-DEST-06"),
    "takes-any-pool": ("pool.others-beside-it", "EPP-SUB-02"),
    "forgets-by-parts-of-names": ("pool.names-alike", "EPP-SUB-02"),
    "reads-the-phase": ("pool.no-longer-ready", "EPP-DEST-06"),
    "reads-all-containers": (f"{UNREADY}[ready=gated]", "EPP-DEST-06"),
    "ignores-deletion": ("pool.terminating", "EPP-DEST-06"),
    "goes-by-address": ("pool.address-passed-on", "EPP-SUB-02"),
    "keeps-the-address": ("pool.address-comes-later", "EPP-SUB-02"),
    "passes-over-pods-without-a-pool": ("pool.pods-change-while-it-is-gone", "EPP-DEST-06"),
    "reads-the-pool-once": ("pool.ports-changed", "EPP-DEST-06"),
    "counts-the-ports": ("pool.port-moved", "EPP-DEST-06"),
    "counts-on-from-the-first-port": ("subset.one-of-two-ports", "EPP-SUB-06"),
    "keeps-its-selector": ("pool.selector-changed", "EPP-DEST-06"),
    "takes-the-first-pool": ("pool.others-beside-it", "EPP-DEST-06"),
    "looks-in-every-namespace": ("pool.same-name-elsewhere", "EPP-DEST-06"),
    "takes-models-of-every-pool": ("model.of-other-pools[model=of-another-pool]", "EPP-MODEL-01"),
    "takes-models-of-every-namespace": ("model.of-other-pools[model=of-another-namespace]", "EPP-MODEL-01"),
    "never-learns-models": ("model.follows-changes", "EPP-DEST-01"),
    "keeps-deleted-models": ("model.follows-changes", "EPP-MODEL-01"),
    "forgets-a-model-with-the-first-that-goes": ("model.named-twice", "EPP-DEST-01"),
    "takes-bookmarks-for-pods": (f"{WATCHES}[fault=bookmark]", "EPP-DEST-06"),
    "ends-with-its-watch": (f"{WATCHES}[fault=end-watches]", "EPP-DEST-06"),
    "takes-pieces-for-events": ("pool.no-longer-ready", "EPP-DEST-06"),
    "skips-long-lines": ("pool.no-longer-ready", "EPP-DEST-06"),
    "compares-versions-as-text": ("pool.versions-grow-longer", "EPP-DEST-06"),
    "never-lists-again": ("pool.outage", "EPP-DEST-06"),
    "keeps-what-a-list-has-not": ("pool.outage", "EPP-DEST-06"),
    "gives-up": ("pool.churn-during-api-trouble[fault=drop-watches]", "EPP-DEST-06"),
}
"""Habits of `kubernetes_epp.py`, the scenario that shows each, and a requirement that it breaks there."""


@pytest.fixture
def judged(cli, tmp_path: Path):
    """Runs scenarios against a reader of the API with some habit: the requirements that each scenario fails on.

    It runs them again where the machine stood still while the reader was waited for: that is no verdict.
    """

    def run(habit: str, *scenarios: str) -> dict[str, set[str]]:
        command = [sys.executable, str(SUPPORT / "kubernetes_epp.py"), str(tmp_path / "endpoints"), habit]
        profile = {
            "start": {
                "command": [
                    *command,
                    "--listen",
                    "127.0.0.1:{port}",
                    "--log-level",
                    "error",
                    "--protocol-version",
                    "{version}",
                ],
                "env": {"KUBECONFIG": "{kubeconfig}"},
            },
            "discovery": {"kubernetes": {"models": ["llama-3"]}},
            "timeouts": {"convergence": 1},
            "protocolVersions": ["0.4.0"],
            "bodyModes": ["full-duplex"],
        }
        (tmp_path / "epp.yaml").write_text(json.dumps(profile))
        chosen = [word for one in scenarios for word in ("--scenario", one)]
        jobs = ("--jobs", "1", "--exit-zero")
        for _ in range(TRIES):
            ran = cli("run", "--profile", tmp_path / "epp.yaml", *chosen, *jobs, "-o", tmp_path / "r")
            assert ran.code == 0, ran.out + ran.err
            assert cli("report", "verify", tmp_path / "r").code == 0
            results = json.loads((tmp_path / "r" / "report.json").read_text())["results"]
            if all(one["verdict"] != "error" for one in results):
                break
        else:
            pytest.fail(ran.out + ran.err)
        return {
            one["id"]: {finding["requirement"] for finding in one["findings"] if finding["verdict"] == "fail"}
            for one in results
        }

    return run


@pytest.mark.parametrize("habit", WRONG)
def test_a_reader_that_is_wrong_is_found(judged, monkeypatch: pytest.MonkeyPatch, habit: str) -> None:
    change = PoolController.change

    async def soon(pool: PoolController, step: PoolStep) -> None:
        await change(pool, step.model_copy(update={"convergence": min(step.convergence or 0.0, SOON)}))

    monkeypatch.setattr(PoolController, "change", soon)
    scenario, requirement = WRONG[habit]
    found = judged(habit, scenario)
    assert requirement in set().union(*found.values()), found


@pytest.mark.parametrize("habit", ["returns", "lists-after-each-watch", "compares-versions"])
def test_a_reader_that_is_right_passes(judged, habit: str) -> None:
    found = judged(habit, *{scenario for scenario, _ in WRONG.values()})
    assert set().union(*found.values()) == set(), found


def test_a_reader_that_is_still_at_the_first_of_several_changes_passes(judged) -> None:
    assert judged("takes-its-time", "pool.flapping") == {"pool.flapping": set()}


@pytest.mark.parametrize("habit", ["takes-its-time", "reads-models-now-and-then"])
def test_a_reader_that_follows_models_in_time_passes(judged, habit: str) -> None:
    found = judged(habit, "model.*")
    assert "model.follows-changes" in found
    assert set().union(*found.values()) == set(), found
