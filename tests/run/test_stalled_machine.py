"""A machine that stands still or gives the target no processor: no correct target is accused, and a wrong one is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli import call
from tests.support.standstills import standstills

pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the time without a processor"),
]

EPP = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"
REFERENCE = (sys.executable, "-m", "reference_epp", "--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}")
ONCE = ("-k", "destination.completion[http=1]", "--body-mode", "full-duplex", "--jobs", "1")
BUSY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while os.getppid() != 1:
    pass
"""


@contextlib.contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many other programs share the first core equally with the target."""
    with contextlib.ExitStack() as stack:
        for _ in range(programs):
            command = (sys.executable, "-c", BUSY)
            program = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
            stack.callback(program.kill)
            assert program.stdout is not None
            program.stdout.readline()
        yield


def flags(folder: Path, *command: str, answer: float) -> list[str]:
    """Flags of a run or load with this target, which has `answer` seconds for each answer."""
    profile = {
        "timeouts": {"answer": answer, "convergence": 1, "start": 60},
        "discovery": {"file": {"reread": 0.05}, "scrapes": False},
        "start": {"command": list(command)},
    }
    (folder / "profile.yaml").write_text(json.dumps(profile))
    return ["--profile", str(folder / "profile.yaml"), "-o", str(folder / "r")]


def computes(folder: Path, seconds: float, *, good: int, answer: float) -> list[str]:
    """An EPP that takes so many seconds of the first core for each answer, after so many quick ones."""
    target = (sys.executable, str(EPP), "{port}", "{endpointsFile}", f"computes:{seconds}", str(good))
    return flags(folder, *target, answer=answer)


@pytest.mark.parametrize(("more", "accused"), [((), []), (("--fault=metadata-differs",), ["EPP-DEST-05"])])
def test_standstills_do_not_change_the_accusation(tmp_path: Path, more: tuple[str, ...], accused: list[str]) -> None:
    """Suite and target stand still again and again, for longer than an answer may take."""
    command = ("run", *flags(tmp_path, *REFERENCE, *more, answer=0.5), "-q", *ONCE)
    run = subprocess.Popen([sys.executable, "-m", "conformance", *command])
    with standstills(run.pid, seconds=(0.7, 1.3), between=(0.2, 0.8), seed=1):
        run.wait()
    rows = json.loads((tmp_path / "r/report.json").read_text())["requirements"]
    assert [row["id"] for row in rows if row["verdict"] in ("fail", "warn")] == accused


def test_a_target_without_processor_time_is_not_accused(tmp_path: Path) -> None:
    with busy(7):  # the target has an eighth of a core
        code = call(["run", *computes(tmp_path, 0.9, good=3, answer=1), "-q", *ONCE])
    results = json.loads((tmp_path / "r/report.json").read_text())["results"]
    assert (code, [result["verdict"] for result in results]) == (3, ["error"])
    assert "the target got no processor for" in json.dumps(results)


@pytest.mark.parametrize("how", [("--concurrent", "1"), ("--concurrent", "2", "--processes", "2")])
def test_a_loaded_target_without_processor_time_is_not_accused(tmp_path: Path, how: tuple[str, ...]) -> None:
    with busy(7):
        code = call(["load", *computes(tmp_path, 2, good=40, answer=1.5), "--seconds", "10", *how])
    document = json.loads((tmp_path / "r/load.json").read_text())
    assert code == 3
    assert "the target got no processor for" in json.dumps(document)
    assert "fail" not in {row["verdict"] for row in document["requirements"]}
    assert call(["judge", str(tmp_path / "r" / "load-evidence.ndjson.gz")]) == 3
