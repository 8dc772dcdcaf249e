"""A target that is late because other programs had the processor: it is waited for, and never accused of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli import call

EPP = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"
BUSY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while os.getppid() != 1:
    pass
"""
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread was kept from running"),
]


@contextlib.contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many other programs want the first core, which the system divides among all alike."""
    with contextlib.ExitStack() as stack:
        for _ in range(programs):
            command = (sys.executable, "-c", BUSY)
            program = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
            stack.callback(program.kill)
            assert program.stdout is not None
            program.stdout.readline()
        yield


def profile(folder: Path, mode: str, *, answer: float, good: int = 3, **timeouts: float) -> Path:
    """That of an EPP that goes over to `mode` after so many `good` streams, with `answer` seconds for each answer."""
    found = {
        "timeouts": {"answer": answer, "convergence": 1, **timeouts},
        "discovery": {"file": {"reread": 0.05}, "scrapes": False},
        "start": {"command": [sys.executable, str(EPP), "{port}", "{endpointsFile}", mode, str(good)]},
    }
    (folder / "profile.yaml").write_text(json.dumps(found))
    return folder / "profile.yaml"


def run(folder: Path, mode: str, *, answer: float, **timeouts: float) -> tuple[int, dict]:
    """The exit code and the report of a run. The gate takes the good streams."""
    code = call(arguments(folder, mode, answer, **timeouts))
    return code, json.loads((folder / "r/report.json").read_text())


def arguments(folder: Path, mode: str, answer: float, **timeouts: float) -> list[str]:
    few = ("--scenario", "destination.completion[http=1]", "--body-mode", "full-duplex", "--jobs", "1")
    return [
        "run",
        "--profile",
        str(profile(folder, mode, answer=answer, **timeouts)),
        *few,
        "-q",
        "-o",
        str(folder / "r"),
    ]


def load(folder: Path, mode: str, *flags: str, answer: float) -> tuple[int, dict]:
    """The exit code and the document of a load, longer than the good streams take on a busy core."""
    made = str(profile(folder, mode, answer=answer, good=40))
    code = call(["load", "--profile", made, "--seconds", "10", *flags, "-o", str(folder / "r")])
    return code, json.loads((folder / "r/load.json").read_text())


def test_a_target_without_processor_time_is_not_accused(tmp_path: Path) -> None:
    with busy(7):
        code, report = run(tmp_path, "computes:0.9", answer=1)  # an eighth of a core: after 7 s
    assert [result["verdict"] for result in report["results"]] == ["error"]
    assert "the target got no processor for" in json.dumps(report["results"])
    assert code == 3


@pytest.mark.parametrize("flags", [("--concurrent", "1"), ("--concurrent", "2", "--processes", "2")])
def test_a_loaded_target_without_processor_time_is_not_accused(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with busy(7):
        code, document = load(tmp_path, "computes:2", *flags, answer=1.5)  # an eighth of a core: after 16 s
    assert code == 3
    assert "the target got no processor for" in json.dumps(document)
    assert "fail" not in {row["verdict"] for row in document["requirements"]}
    assert call(["judge", str(tmp_path / "r" / "load-evidence.ndjson.gz")]) == 3  # and so does its evidence
