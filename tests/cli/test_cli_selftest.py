"""`epp-conformance selftest`: exact trials, declarations that are wrong, and workers that end."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from conformance.cli.selftest import details
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import Role
from conformance.selftest.deviation import Deviation, deviations, select
from conformance.selftest.table import OBSERVED
from conformance.selftest.together import run_trials, together
from conformance.selftest.trial import Trial

PATIENT = 60
QUICK = "path-changed"
LONG = "slow"


def processes(mark: str) -> dict[int, str]:
    """The processes that have `mark` in their environment, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended, or is not ours to look at
    return found


def fault(name: str, **changes: object) -> Deviation:
    return dataclasses.replace(select(deviations("faults"), [name])[0], **changes)


def trial(deviation: Deviation, keep: Path | None = None) -> Trial:
    seen: list[Trial] = []
    assert run_trials([deviation], seen.append, jobs=1, keep=keep) == tuple(seen)
    return seen[0]


def test_faults_are_caught_in_several_processes(cli, tmp_path: Path) -> None:
    ran = cli("selftest", QUICK, "content-type-changed", "--jobs", 2, "--table", tmp_path / "new" / "faults.md")
    assert ran.code == 0, ran.out + ran.err
    exact = {line.split()[1] for line in ran.out.splitlines() if line.startswith("exact ")}
    assert exact == {QUICK, "content-type-changed"}
    assert "2 faults: 2 caught, 0 missed · 0 of 2 wrongly accused" in ran.out
    observed = (tmp_path / "new" / "faults.md").read_text().split(OBSERVED)[1]
    rows = [line for line in observed.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[1:] for row in rows] == [["EPP-TRN-02", "yes |"], ["EPP-TRN-03", "yes |"]]


def test_a_table_that_cant_be_written_is_refused_before_anything_runs(cli, tmp_path: Path) -> None:
    ran = cli("selftest", QUICK, "--table", tmp_path)
    assert ran.code == 2
    assert "--table" in ran.err
    assert str(tmp_path) in ran.err
    assert "selftest:" not in ran.err


def test_a_refused_selftest_leaves_no_table(cli, tmp_path: Path) -> None:
    assert cli("selftest", "no-such-fault", "--table", tmp_path / "new" / "faults.md").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_fault_that_breaks_something_else_is_seen() -> None:
    seen = trial(fault(QUICK, breaks="EPP-TRN-02"))
    assert not seen.caught
    assert seen.wrongly == ("EPP-TRN-03",)
    assert not seen.exact


def test_what_made_a_trial_inexact_is_said_and_can_be_judged_again(cli, tmp_path: Path) -> None:
    seen = trial(fault(QUICK, breaks="EPP-TRN-02"), keep=tmp_path / "kept")
    assert any("EPP-TRN-03" in line and "expected" in line for line in seen.doubts), seen.doubts
    assert any("should have accused EPP-TRN-02" in line for line in seen.doubts), seen.doubts
    assert seen.evidence == tmp_path / "kept" / f"{QUICK}.ndjson.gz"
    shown = details(seen)
    assert str(seen.evidence) in shown
    assert seen.doubts[0] in shown
    judged = cli("judge", seen.evidence)
    assert "EPP-TRN-03" in judged.out


def test_a_fault_that_is_called_right_is_seen() -> None:
    seen = trial(fault(QUICK, also_breaks={"EPP-TRN-02": "it does not"}))
    assert seen.exact, "what may be broken need not be"
    assert not dataclasses.replace(seen, deviation=fault(QUICK, breaks=None)).exact


def test_a_warning_is_not_enough_for_what_must_fail() -> None:
    seen = Trial(
        deviation=fault(QUICK, effect="warn"),
        version="1.0.0",
        accused={"EPP-TRN-03": ("x",)},
        weak=frozenset({"EPP-TRN-03"}),
    )
    assert seen.exact
    assert not dataclasses.replace(seen, deviation=fault(QUICK, effect="fail")).caught


def test_trouble_is_not_exact() -> None:
    seen = Trial(deviation=fault(QUICK), version="1.0.0", accused={"EPP-TRN-03": ("x",)}, trouble=("no answer",))
    assert seen.caught
    assert not seen.exact


def test_an_unknown_name_is_answered_with_the_nearest(cli) -> None:
    ran = cli("selftest", "path-chanced")
    assert ran.code == 2
    assert QUICK in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(program, tmp_path: Path, number: signal.Signals) -> None:
    process = program("selftest", LONG, QUICK, "--jobs", 1, TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1")
    mark = f"TMPDIR={tmp_path}"
    assert process.stdout is not None
    assert QUICK in process.stdout.readline()
    assert any("--variant=slow" in command for command in processes(mark).values())
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENT)
    assert process.returncode == (-number if number is signal.SIGKILL else 4), out + err
    assert "Traceback" not in err
    until = time.monotonic() + PATIENT
    while left := processes(mark):
        assert time.monotonic() < until, left
    assert not list(tmp_path.iterdir())


def test_a_worker_that_dies_is_a_harness_error(program, tmp_path: Path) -> None:
    process = program("selftest", LONG, QUICK, "--jobs", 1, TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    assert QUICK in process.stdout.readline()
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert workers
    for pid in workers:
        os.kill(int(pid), signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENT)
    assert process.returncode == 3, out + err
    assert f"while these were tried: {LONG}: a process of the suite was ended by signal 9" in err


def test_variants_are_tried_as_one_if_they_change_different_things() -> None:
    chosen = (*deviations("variants"), fault(QUICK))
    made = together(chosen)
    members = [member for one in made for member in one.members or (one,)]
    assert sorted(member.name for member in members) == sorted(one.name for one in chosen)
    assert len(made) < len(chosen) / 2
    for one in made:
        overridden = [name for member in one.members for name in member.overrides]
        assert len(overridden) == len(set(overridden))
        assert {(member.version, member.modes, member.breaks) for member in one.members or (one,)} == {
            (one.version, one.modes, one.breaks)
        }


def test_variants_tried_as_one_are_told_one_by_one() -> None:
    seen: list[Trial] = []
    chosen = select(deviations("variants"), ["extra-keys", "sticky"])
    (both,) = together(chosen)
    assert both.flags == ["--variant=extra-keys", "--variant=sticky"]
    run_trials(chosen, seen.append, alone=False)
    assert {one.name: one.exact for one in seen} == {"extra-keys": True, "sticky": True}


def test_where_variants_are_inexact_as_one_each_is_tried_alone_too() -> None:
    wrong = dataclasses.replace(
        select(deviations("variants"), ["extra-keys"])[0], noted={"EPP-DEST-09": "no words of it"}
    )
    (right,) = select(deviations("variants"), ["sticky"])
    seen: list[Trial] = []
    run_trials([wrong, right], seen.append, alone=False)
    assert {one.name: one.exact for one in seen} == {"extra-keys+sticky": False, "extra-keys": False, "sticky": True}


@pytest.mark.parametrize("role", ["epp", "data-plane", "model-server"])
def test_what_a_fault_breaks_is_a_rule_in_each_of_its_versions(role: Role) -> None:
    catalogue = Catalogue.load()
    for one in deviations("faults", role):
        assert one.breaks is not None
        assert all(catalogue.effect(one.breaks, version) for version in one.versions), one.name
