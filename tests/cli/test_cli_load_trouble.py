"""`load` with trouble that is made: what it does to exchanges, how it is recovered from, and whose fault is what."""

from __future__ import annotations

import gzip
import json
import re
import signal
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
ARGUMENTS = "--listen 127.0.0.1:{port} --endpoints-file {endpointsFile} --log-level error"
REFERENCE = f"cmd:{sys.executable} -m reference_epp {ARGUMENTS}"
KILL = "{kind: kill-target, at: 1, lasts: 0.2}"


def second_life(habit: str, folder: Path) -> str:
    return f"cmd:{sys.executable} {SUPPORT / 'second_life.py'} {habit} {folder / 'mark'} {ARGUMENTS}"


def load(
    folder: Path, *trouble: str, arrivals: str = "{seconds: 6, rate: 60}", more: str = "", requests: str = ""
) -> Path:
    """A load's file with this trouble."""
    file = folder / "load.yaml"
    listed = "".join(f"  - {one}\n" for one in trouble)
    asked = f"  - {{name: plain}}\n{requests}"
    file.write_text(f"pods: 4\nmix:\n{asked}arrivals: [{arrivals}]\n{more}trouble:\n{listed}")
    return file


def document(folder: Path) -> dict:
    return json.loads((folder / "r" / "load.json").read_text())


def broken(folder: Path) -> set[str]:
    return {row["id"] for row in document(folder)["requirements"] if row["verdict"] == "fail"}


def accounted(found: dict) -> bool:
    """Whether every request that began is in one of the counts."""
    exchanges = found["exchanges"]
    ends = ("judged", "lostToTrouble", "lostWithTheProcess", "unfinished")
    return exchanges["begun"] == sum(exchanges[one] for one in ends)


# -- the target is killed ----------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize(("processes", "arrivals"), [(1, "{seconds: 6, concurrent: 8}"), (2, "{seconds: 6, rate: 60}")])
def test_a_target_that_is_killed_recovers(cli, tmp_path, processes, arrivals) -> None:
    """What is lost with it is counted, and held against no one; open and closed loops go on afterwards."""
    file = load(tmp_path, KILL, arrivals=arrivals, more="churn: [{change: remove, every: 0.4, lasts: 0.2}]\n")
    ran = cli("load", file, "--processes", processes, "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 0, ran.out + ran.err
    found = document(tmp_path)
    assert found["crashes"] == []
    (trouble,) = found["troubles"]
    assert trouble["kind"] == "kill-target"
    assert trouble["lost"] == found["exchanges"]["lostToTrouble"] > 0
    assert trouble["violations"] == {"during": {}, "after": {}}
    assert 0 < trouble["recoveredAfter"] < found["figures"]["seconds"]
    assert accounted(found)
    assert re.search(r"trouble: kill-target at \d\.\d to .*recovered from after .*; violations: none", ran.out)


@pytest.mark.program
def test_a_violation_after_a_restart_is_found(cli, tmp_path) -> None:
    file = load(tmp_path, KILL)
    ran = cli("load", file, "--processes", "2", "-o", tmp_path / "r", "--epp", second_life("faulty", tmp_path))
    assert ran.code == 1, ran.out + ran.err
    assert broken(tmp_path) == {"EPP-DEST-05"}
    found = document(tmp_path)
    (trouble,) = found["troubles"]
    assert trouble["violations"] == {"during": {}, "after": {"EPP-DEST-05": found["exchanges"]["failed"]}}
    assert trouble["recoveredAfter"] is None
    assert "NOT recovered from" in ran.out
    again = cli("judge", tmp_path / "r" / "load-evidence.ndjson.gz")
    assert again.code == 1
    assert "EPP-DEST-05" in again.out


@pytest.mark.program
def test_an_unrequested_crash_after_a_requested_one_is_a_finding(cli, tmp_path) -> None:
    """Here after one that was."""
    aborted = "  - {name: aborted, weight: 0.05, exchange: {abort: request-body}}\n"
    file = load(tmp_path, KILL, arrivals="{seconds: 60, concurrent: 8}", requests=aborted)
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", second_life("dies", tmp_path))
    assert ran.code == 1, ran.out + ran.err
    assert broken(tmp_path) == {"ENV-27"}
    found = document(tmp_path)
    assert len(found["crashes"]) == 1
    assert found["troubles"][0]["lost"] > 0
    assert found["exchanges"]["lostWithTheProcess"] > 0
    assert accounted(found)


@pytest.mark.program
def test_a_target_that_ends_instead_of_starting_again_is_a_finding(cli, tmp_path) -> None:
    file = load(tmp_path, KILL, arrivals="{seconds: 60, rate: 60}")
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", second_life("refuses", tmp_path))
    assert ran.code == 1, ran.out + ran.err
    assert broken(tmp_path) == {"ENV-27"}
    assert "the lock of the last life is still there" in ran.out


@pytest.mark.program
def test_a_target_that_does_not_come_back_ends_the_load_with_a_report(cli, tmp_path) -> None:
    """No requirement says that it must."""
    profile = tmp_path / "epp.yaml"
    command = second_life("never", tmp_path).removeprefix("cmd:").split()
    profile.write_text(
        f"start: {{command: {json.dumps(command)}}}\ndiscovery: {{file: {{}}}}\ntimeouts: {{start: 3, stop: 0.3}}\n"
    )
    file = load(tmp_path, KILL, arrivals="{seconds: 60, rate: 60}")
    ran = cli("load", file, "-o", tmp_path / "r", "--profile", profile)
    assert ran.code == 4, ran.out + ran.err
    found = document(tmp_path)
    assert not found["complete"]
    assert found["exchanges"]["judged"] > 0
    assert "connection refused" in found["troubles"][0]["problem"].lower()


@pytest.mark.program
def test_a_limit_for_the_recovery_fails_the_run_when_it_is_exceeded_and_only_then(cli, tmp_path) -> None:
    slow = ("-o", tmp_path / "r", "--epp", second_life("slow", tmp_path))
    ran = cli("load", load(tmp_path, KILL.replace("}", ", recovers: 0.5}")), *slow)
    assert ran.code == 1, ran.out + ran.err
    assert broken(tmp_path) == set()
    assert document(tmp_path)["troubles"][0]["recoveredAfter"] > 0.5
    assert "NOT recovered from trouble within the limit" in ran.out
    assert "0.5 s were allowed" in ran.out
    ran = cli("load", load(tmp_path, KILL.replace("}", ", recovers: 9}"), arrivals="{seconds: 10.5, rate: 20}"), *slow)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.program
def test_a_load_that_ends_before_the_recovery_is_incomplete(cli, tmp_path) -> None:
    """It has room in the load, but a process takes a moment to end, so that the limit is not over either."""
    file = load(
        tmp_path, "{kind: kill-target, at: 0.5, lasts: 0.1, recovers: 0.9}", arrivals="{seconds: 1.5, rate: 20}"
    )
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", second_life("slow", tmp_path))
    assert "the load was over before the 0.9 s that are allowed" in ran.out
    assert ran.code == 4, ran.out + ran.err


@pytest.mark.program
def test_trouble_comes_again_and_again_and_a_program_can_follow_it(program, tmp_path) -> None:
    file = load(
        tmp_path, "{kind: kill-target, every: 3, lasts: 0.1}", "{kind: model-servers-reset, every: 2, lasts: 0.5}",
        arrivals="{seconds: 60, rate: 60}",
    )  # fmt: skip
    process = program("load", file, "--json-lines", "-o", tmp_path / "r", "--epp", REFERENCE)
    seen = set()
    for line in process.stdout:
        seen |= {(one["kind"], one["second"]) for one in json.loads(line)["troubles"]}
        if sum(kind == "kill-target" for kind, _ in seen) > 1:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert seen <= {(one["kind"], one["second"]) for one in document(tmp_path)["troubles"]}
    assert broken(tmp_path) == set()


# -- its surroundings --------------------------------------------------------------------------------------------------


@pytest.mark.program
def test_model_servers_that_reset_connections_do_so_for_real_exchanges(cli, tmp_path) -> None:
    """A right EPP is right then, too; the evidence of a wrong one has the resets, and ends with them."""
    file = load(tmp_path, "{kind: model-servers-reset, at: 0, lasts: 1}", arrivals="{seconds: 3, rate: 60}")
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 0, ran.out + ran.err
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", f"{REFERENCE} --fault metadata-differs")
    assert ran.code == 1, ran.out + ran.err
    (trouble,) = document(tmp_path)["troubles"]
    violations = trouble["violations"]
    assert violations["during"]["EPP-DEST-05"] > 0
    assert (
        violations["during"]["EPP-DEST-05"] + violations["after"]["EPP-DEST-05"]
        == document(tmp_path)["exchanges"]["failed"]
    )
    with gzip.open(tmp_path / "r" / "load-evidence.ndjson.gz", "rt") as evidence:
        assert re.search(r'"outcome": ?"reset"', evidence.read())


@pytest.mark.program
def test_metrics_are_lost_to_the_target(cli, tmp_path) -> None:
    """It can read no pod's, those that join meanwhile included; what it says of that when it ends is in the report."""
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, sys, threading\n"
        "from reference_epp.__main__ import main\n"
        "threading.Timer(6, os._exit, (7,)).start()\n"
        "main()\n"
    )
    epp = REFERENCE.replace("-m reference_epp", str(dying)).replace("level error", "level warning")
    file = load(
        tmp_path, "{kind: metrics-lost, at: 0.5, lasts: 30}", arrivals="{seconds: 60, rate: 60}",
        more="churn: [{change: remove, every: 0.5, lasts: 0.2}, {change: saturate, every: 0.5, lasts: 0.2}]\n",
    )  # fmt: skip
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", epp)
    assert ran.code == 1, ran.out + ran.err
    assert broken(tmp_path) == {"ENV-27"}
    found = document(tmp_path)
    assert "no metrics from" in found["crashes"][0]["output"]
    assert found["pool"]["changes"]["remove"] > 0


@pytest.mark.program
@pytest.mark.parametrize("kind", ["metrics-lost", "metrics-hang"])
def test_metrics_come_back(cli, tmp_path, kind) -> None:
    file = load(tmp_path, f"{{kind: {kind}, at: 0.5, lasts: 0.5}}", arrivals="{seconds: 4, rate: 60}")
    ran = cli("load", file, "--processes", "2", "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 0, ran.out + ran.err
    (trouble,) = document(tmp_path)["troubles"]
    assert trouble["seconds"] >= 0.5
    assert trouble["recoveredAfter"] is not None


@pytest.mark.program
@pytest.mark.parametrize("habit", ["returns", "gives-up"])
def test_a_target_that_loses_the_kubernetes_api_must_follow_the_pool_again_afterwards(cli, tmp_path, habit) -> None:
    """While the API is lost it can't know better, for however long; one that does not connect again is found out."""
    endpoints = tmp_path / "endpoints"
    command = [sys.executable, str(SUPPORT / "kubernetes_epp.py"), str(endpoints), habit]
    profile = tmp_path / "epp.yaml"
    profile.write_text(
        f"start:\n  command: {json.dumps([*command, '--listen', '127.0.0.1:{port}', '--log-level', 'error'])}\n"
        "  env: {KUBECONFIG: '{kubeconfig}'}\n"
        "discovery: {kubernetes: {}}\ntimeouts: {convergence: 1}\n"
    )
    file = load(
        tmp_path, "{kind: kubernetes-api-lost, at: 1, lasts: 2}", arrivals="{seconds: 10, rate: 40}",
        more="churn: [{change: remove, every: 0.4, lasts: 0.1}]\n",
    )  # fmt: skip
    ran = cli("load", file, "--grace", "0.7", "-o", tmp_path / "r", "--profile", profile)
    assert ran.code == (0 if habit == "returns" else 1), ran.out + ran.err
    assert broken(tmp_path) == (set() if habit == "returns" else {"EPP-DEST-06"})
    (trouble,) = document(tmp_path)["troubles"]
    assert trouble["violations"]["during"] == {}
    assert (trouble["recoveredAfter"] is not None) == (habit == "returns")
    if habit == "returns":
        assert endpoints.with_suffix(".refused").read_text()


# -- files that can't be carried out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (("{kind: explode, at: 1}",), "load.yaml:7:12: trouble[0].kind"),
        (("{kind: metrics-lost}",), "load.yaml:7:5: trouble[0]: give `at`, `every` or both"),
        (("{kind: metrics-lost, every: 1, lasts: 2}",), "it comes every 1 s, but needs 2 s"),
        (("{kind: metrics-lost, every: 2, lasts: 1, recovers: 5}",), "it comes every 2 s, but needs 6 s"),
        (("{kind: metrics-lost, at: 7}",), "load.yaml:7:5: trouble[0]: it begins at 7 s and needs 1 s, but the load"),
        (("{kind: metrics-lost, at: 1}", "{kind: metrics-lost, at: 1.5}"), "load.yaml:8:5: trouble[1]: at 1.5 s it"),
        (("{kind: metrics-lost, at: 1}", "{kind: metrics-hang, at: 1.5}"), "load.yaml:8:5: trouble[1]: at 1.5 s it"),
        (("{kind: kubernetes-api-lost, at: 1}",), "load.yaml:7:12: trouble[0].kind: this target does not learn"),
    ],
)
def test_trouble_that_can_not_be_made_is_refused_with_its_place(cli, tmp_path, trouble, said) -> None:
    ran = cli("load", load(tmp_path, *trouble, more="churn: []\n"), "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 2, ran.out + ran.err
    assert said in ran.err


def test_flags_that_leave_no_time_for_trouble_are_refused(cli, tmp_path) -> None:
    ran = cli("load", load(tmp_path, KILL), "--rate", "10", "--seconds", "1", "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 2
    assert "the load ends after 1 s" in ran.err


def test_trouble_needs_a_target_that_the_suite_started_and_that_reads_metrics(cli, tmp_path) -> None:
    file = load(tmp_path, KILL, "{kind: metrics-lost, at: 1}")
    profile = tmp_path / "epp.yaml"
    profile.write_text("address: 127.0.0.1:9\ndiscovery: {fixed: {endpoints: ['127.0.0.1:8011']}, scrapes: false}\n")
    ran = cli("load", file, "-o", tmp_path / "r", "--profile", profile)
    assert ran.code == 2
    assert "trouble[0].kind: the suite did not start this target" in ran.err
    assert "trouble[1].kind: this target reads no metrics" in ran.err
