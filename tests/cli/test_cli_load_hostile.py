"""`load` on endpoint pickers that misbehave: what it finds is what `judge` finds again in its evidence."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

EPP = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"


def profile(folder: Path, mode: str, *, answer: float = 2) -> Path:
    """That of the endpoint picker, which misbehaves from the fourth stream on."""
    found = {
        "timeouts": {"answer": answer, "convergence": 1},
        "discovery": {"file": {"reread": 0.05}, "scrapes": False},
        "start": {"command": [sys.executable, str(EPP), "{port}", "{endpointsFile}", mode, "3"]},
    }
    file = folder / "profile.yaml"
    file.write_text(json.dumps(found))
    return file


@pytest.mark.parametrize(
    "mode",
    [
        "closes",
        "garbage",
        "floods",
        "mixes_up",
        "mixes_up_responses",
        "breaks",
        "no_trailers",
        "answers_after_its_end",
        "repeats:200",
        "bytes_of:empty",
        "wire:endless-1xx",
    ],
)
def test_findings_are_found_again_in_the_evidence(cli, tmp_path: Path, mode: str) -> None:
    ran = cli("load", "--profile", profile(tmp_path, mode), "--rate", "20", "--seconds", "0.5", "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    report = json.loads((tmp_path / "r" / "load.json").read_text())
    broken = {row["id"] for row in report["requirements"] if row["verdict"] == "fail"}
    assert broken
    again = cli("judge", tmp_path / "r", "--json")
    assert again.code == 1, again.out + again.err
    said = [json.loads(line) for line in again.out.split("\n") if line]
    assert {one["requirement"] for one in said if one["verdict"] == "fail"} == broken

    told = {(one["episode"], one["requirement"], one["actual"], tuple(one["expected"])) for one in report["findings"]}
    assert told <= {(one["exchange"], one["requirement"], one["actual"], tuple(one["expected"])) for one in said}
    lines = gzip.decompress((tmp_path / "r" / "load-evidence.ndjson.gz").read_bytes()).decode().strip().split("\n")
    names = Counter(one["episode"] for one in map(json.loads, lines) if "episode" in one)
    assert set(names.values()) == {1}
    assert set(names) == {one["episode"] for one in report["findings"]}


def test_a_message_that_waits_for_the_flow_window_is_not_late(cli, tmp_path: Path) -> None:
    """The target's flow control keeps each request longer than it has for an answer."""
    large = tmp_path / "load.yaml"
    large.write_text("mix: [{name: large, exchange: {body: {size: 900000}}}]")
    flags = ("--profile", profile(tmp_path, "reads_slowly", answer=1), "--rate", "4", "--seconds", "1")
    ran = cli("load", large, *flags, "-o", tmp_path / "r")
    assert ran.code == 0, ran.out + ran.err
    times = json.loads((tmp_path / "r" / "load.json").read_text())["figures"]["milliseconds"]
    assert times["addedTimeToFirstByte"]["p50"] > 1000


def test_a_generator_that_is_always_at_work_does_not_keep_up(cli, tmp_path: Path) -> None:
    """In a closed loop nothing begins late, but what has to be judged in full keeps all answers waiting."""
    flags = ("--profile", profile(tmp_path, "mixes_up"), "--concurrent", "100", "--seconds", "2.5")
    ran = cli("load", *flags, "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    generator = json.loads((tmp_path / "r" / "load.json").read_text())["generator"]
    assert generator["neverIdle"] > 0.2
    assert not generator["keptUp"]
    assert "did NOT keep up: it had no time to spare for" in ran.out


def test_a_process_that_ends_after_the_last_exchange_is_a_finding(cli, tmp_path: Path) -> None:
    flags = ("--profile", profile(tmp_path, "dies_when_idle"), "--rate", "20", "--seconds", "1")
    ran = cli("load", *flags, "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    found = json.loads((tmp_path / "r" / "load.json").read_text())
    assert {row["id"] for row in found["requirements"] if row["verdict"] == "fail"} == {"ENV-27"}
    assert found["exchanges"]["judged"] == found["exchanges"]["begun"]
    assert ran.out.count("FAIL") == 1, ran.out  # the process, and no exchange


def test_requests_without_an_answer_count_in_the_times(cli, tmp_path: Path) -> None:
    """Else the percentiles of a target that answers no one are those of the few that it answered before."""
    flags = ("--profile", profile(tmp_path, "silent", answer=1), "--rate", "20", "--seconds", "1")
    ran = cli("load", *flags, "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    found = json.loads((tmp_path / "r" / "load.json").read_text())
    times = found["figures"]["milliseconds"]
    for one in ("timeToPick", "addedTimeToFirstByte"):
        assert times[one]["count"] == found["exchanges"]["begun"] > 0
        assert times[one]["p99"] >= 1000


def test_exchanges_that_waited_for_a_stream_are_reported(cli, tmp_path: Path) -> None:
    flags = ("--profile", profile(tmp_path, "one_at_a_time"), "--concurrent", "8", "--seconds", "1")
    ran = cli("load", *flags, "-o", tmp_path / "r")
    assert ran.code == 0, ran.out + ran.err
    waited = json.loads((tmp_path / "r" / "load.json").read_text())["exchanges"]["waitedForAStream"]
    assert waited > 0
    assert f"{waited} exchanges waited for a stream" in ran.out
    assert f"{waited:,}</" in (tmp_path / "r" / "load.html").read_text()
