"""The record of noticing instances (`selftest --quick`), shares of the deviations, and the choice of a CI run."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.selftest.deviation import Deviation, deviations, part, places, select
from conformance.selftest.record import KEPT, TRIED, beginnings, load_record, save_record, updated
from conformance.selftest.together import run_trials
from conformance.selftest.trial import Trial

(FAULT,) = select(deviations("faults"), ["path-changed"])
EXACT = Trial(
    deviation=FAULT, version="1.0.0", accused={"EPP-TRN-03": ("a", "b")}, noticed_by=("a[text=1, 2]", "b", "c", "d")
)
NOTICING = ("subset.pick-stays-inside[only=a]", "subset.pick-stays-inside[only=b]")

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("rotation", ROOT / ".ci" / "rotation.py")
assert _SPEC is not None
assert _SPEC.loader is not None
rotation = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(rotation)


# -- the record --------------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "noticed.txt"
    assert load_record(path) == {}
    save_record(updated({"epp/other": ("x",)}, EXACT), path)
    record = load_record(path)
    assert record == {"epp/other": ("x",), "epp/path-changed": EXACT.noticed_by[:KEPT]}
    assert beginnings(record, [FAULT]) == {"path-changed": EXACT.noticed_by[:TRIED]}


def test_instances_that_notice_a_fault_again_stay_on_record() -> None:
    record = updated({"epp/path-changed": ("gone", "d", "c")}, EXACT)
    assert record["epp/path-changed"] == ("d", "c", "a[text=1, 2]")


@pytest.mark.parametrize("wrong", [{"accused": {}}, {"trouble": ("x",)}])
def test_an_inexact_trial_leaves_the_record_without_its_fault(tmp_path: Path, wrong: dict) -> None:
    path = tmp_path / "noticed.txt"
    save_record(updated({"epp/path-changed": ("a",)}, dataclasses.replace(EXACT, **wrong)), path)
    assert load_record(path) == {}


def test_a_record_of_other_lines_leads_to_complete_trials(tmp_path: Path) -> None:
    path = tmp_path / "noticed.txt"
    path.write_text("<<<<<<< HEAD\n\nepp/path-changed\n=======\tx\n")
    assert beginnings(load_record(path), [FAULT]) == {"path-changed": ()}


def quick(fault: Deviation, *instances: str) -> Trial:
    (trial,) = run_trials([fault], lambda _: None, jobs=1, begin={fault.name: instances})
    return trial


@pytest.mark.program
def test_recorded_instances_are_enough_if_they_are_exact() -> None:
    trial = quick(FAULT, *NOTICING)
    assert trial.exact
    assert {name.split("@")[0] for name in trial.accused["EPP-TRN-03"]} == {*NOTICING}


@pytest.mark.program
@pytest.mark.parametrize(
    "instance", ["no.such-scenario", "gateway.asks-about-head", "ext-proc.header-encoding[method=GET]"]
)
def test_a_wrong_record_leads_to_a_complete_trial(instance: str) -> None:
    (fault,) = select(deviations("faults"), ["content-type-changed"])
    trial = quick(fault, instance)
    assert trial.exact
    assert len(trial.noticed_by) > 1


@pytest.mark.program
def test_a_fault_of_another_rule_is_inexact_with_recorded_instances_too() -> None:
    trial = quick(dataclasses.replace(FAULT, breaks="EPP-TRN-02"), *NOTICING)
    assert not trial.caught
    assert trial.wrongly == ("EPP-TRN-03",)


# -- shares and the choice of a CI run ---------------------------------------------------------------------------------


@pytest.mark.program
def test_the_parts_are_all_deviations_once() -> None:
    known = (*deviations("faults"), *deviations("variants"))
    parts = [one.name for number in (1, 2, 3) for one in part(known, f"{number}/3")]
    assert sorted(parts) == sorted(one.name for one in known)
    assert all(part(known, f"{number}/3") for number in (1, 2, 3))


@pytest.mark.parametrize("share", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3"])
def test_a_share_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(UsageError, match="is no part I/N"):
        part([FAULT], share)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.mark.program
def test_a_change_is_one_from_the_main_branch_or_from_the_parent(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rotation.base() == ""
    git(tmp_path, "init", "-q", "-b", "main")
    for _ in range(2):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "on main")
    first, fork = git(tmp_path, "rev-parse", "HEAD^", "HEAD").split()
    assert rotation.base() == first
    git(tmp_path, "switch", "-q", "-c", "topic")
    for _ in range(2):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "on the branch")
    assert rotation.base() == fork
    assert rotation.turn(whole=True) == 4
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    assert rotation.base() == ""
    assert rotation.turn(whole=False) == int(git(tmp_path, "rev-parse", "HEAD"), 16)


@pytest.mark.program
def test_deviations_of_a_changed_file_or_requirement_are_chosen() -> None:
    known = deviations("faults")
    place = places(known)[FAULT.name].rpartition(":")[0]
    assert FAULT.name in rotation.changed(known, [place], set())
    assert FAULT.name in rotation.changed(known, [], {"EPP-TRN-03"})
    assert rotation.changed(known, ["README.md"], {"EPP-TRN-99"}) == []


def test_a_changed_judge_or_scenario_changes_its_requirements(monkeypatch) -> None:
    old = "scenarios:\n" + (ROOT / "scenarios" / "transparency.yaml").read_text().partition("scenarios:\n")[2]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(rotation, "git", lambda *_: old.replace("repeat: 2", "repeat: 3", 1))
    assert "EPP-TRN-03" in set(rotation.changed_requirements(["conformance/judges/epp/transparency.py"], "main"))
    changed = set(rotation.changed_requirements(["scenarios/transparency.yaml"], "main"))
    assert changed
    monkeypatch.setattr(rotation, "git", lambda *_: old)
    assert set(rotation.changed_requirements(["scenarios/transparency.yaml"], "main")) == set()
