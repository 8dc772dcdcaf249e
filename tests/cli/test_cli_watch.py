"""`run --watch`: a program that is built again, scenario files and profiles that change, and Ctrl-C."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

PATIENT = 90.0
"""Bound of every wait, in seconds; none is expected to last so long."""

OWN = """\
section: acme
scenarios:
  - {id: acme.works, title: It works, requirements: [EPP-DEST-01], steps: [{exchange: {}}]}
  - {id: acme.subset, title: It keeps to subsets, requirements: [EPP-SUB-01], steps: [{exchange: {subset: ["{b}"]}}]}
"""


class Watching:
    """A program that watches: its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream) -> None:
        for line in stream:
            self._lines.put(line)

    def until(self, pattern: str) -> str:
        """All that is said until a line matches."""
        said = ""
        while not re.search(pattern, said):
            try:
                said += self._lines.get(timeout=PATIENT)
            except queue.Empty:
                pytest.fail(f"{pattern} was not said, but:\n{said}")
        return said

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENT)


class Built:
    """An endpoint picker as a build makes it: a program that is replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "my-epp"

    def build(self, *flags: str) -> None:
        fresh = self.path.with_suffix(".new")
        words = ", ".join(json.dumps(flag) for flag in flags)
        fresh.write_text(
            f"#!{sys.executable}\nimport sys\nfrom reference_epp.__main__ import main\nsys.argv += [{words}]\nmain()\n"
        )
        fresh.chmod(0o755)
        fresh.replace(self.path)


@pytest.fixture
def epp(tmp_path: Path) -> Built:
    return Built(tmp_path)


@pytest.fixture
def watching(program, epp: Built, tmp_path: Path):
    (tmp_path / "own.yaml").write_text(OWN)

    def start(*arguments: object) -> Watching:
        command = f"cmd:{epp.path} --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} --log-level error"
        own = ("--scenarios", tmp_path / "own.yaml", "-k", "acme.*", "-o", tmp_path / "r", "-q")
        return Watching(program("run", "--watch", "--epp", command, *own, *arguments))

    return start


def test_failed_scenarios_run_first_and_all_after_they_pass(epp: Built, watching, tmp_path: Path) -> None:
    epp.build("--fault", "metadata-differs")
    run = watching()
    assert "my-epp" in run.until("Ctrl-C ends it")
    run.until(r"scenarios +.*fail")
    run.until(r"report  ")
    epp.build("--fault", "subset-ignored")
    said = run.until(r"scenarios +1 pass · 1 fail")
    assert "my-epp changed" in said
    assert "first what failed: acme." in said
    run.until(r"report  ")
    epp.build()
    said = run.until(r"scenarios +2 pass")
    assert "first what failed: acme.subset\n" in said
    assert re.search(r"scenarios +1 pass \(", said)
    run.until(r"report  ")
    assert run.interrupt() == 4  # a selection of scenarios is no full verdict
    rows = json.loads((tmp_path / "r/report.json").read_text())["results"]
    assert {row["id"].partition("@")[0] for row in rows} == {"acme.works", "acme.subset"}


@pytest.mark.smoke
def test_ctrl_c_ends_with_the_code_of_the_last_run(epp: Built, watching) -> None:
    epp.build("--fault", "metadata-differs")
    run = watching()
    run.until(r"report  ")
    assert run.interrupt() == 1


def test_a_program_that_does_not_start_is_reported_and_awaited(epp: Built, watching) -> None:
    epp.build()
    run = watching()
    run.until(r"scenarios +2 pass")
    epp.path.write_text("#!/no/such/interpreter\n")
    run.until("can't be started")
    epp.build()
    run.until(r"scenarios +2 pass")


def test_scenario_files_and_named_folders_are_watched_and_the_report_is_not(epp: Built, watching, tmp_path) -> None:
    epp.build()
    run = watching("--watch-path", tmp_path)
    run.until(r"scenarios +2 pass")
    run.until(r"report  ")
    own = tmp_path / "own.yaml"
    own.write_text(OWN.replace("EPP-SUB-01", "NO-SUCH-01"))
    run.until(r"own\.yaml:\d+:\d+")
    own.write_text(OWN.replace("acme.subset", "acme.renamed"))
    run.until(r"scenarios +2 pass")
    (tmp_path / "further").write_text("a file that the build reads")
    assert "further" in run.until(r"scenarios +2 pass")


def test_modules_beside_a_python_script_are_watched(program, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "main.py").write_text("import serving\n")
    (tmp_path / "serving.py").write_text("from reference_epp.__main__ import main\n\nmain()\n")
    words = ("--listen 127.0.0.1:{port}", "--endpoints-file {endpointsFile}", "--log-level error")
    command = " ".join((f"cmd:{sys.executable} {tmp_path / 'main.py'}", *words))
    own = ("--scenarios", tmp_path / "own.yaml", "-k", "acme.*", "-o", tmp_path / "r", "-q")
    run = Watching(program("run", "--watch", "--epp", command, *own))
    assert "--watch-path adds to it" in run.until("Ctrl-C ends it")
    run.until(r"report  ")
    (tmp_path / "serving.py").rename(tmp_path / "renamed.py")
    assert re.search(r"(serving|renamed)\.py.* changed", run.until("No module named 'serving'"))
    (tmp_path / "main.py").write_text("import renamed\n")
    run.until(r"scenarios +2 pass")


def test_nothing_to_watch(cli, tmp_path: Path) -> None:
    ran = cli("run", "--watch", "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8001", "-o", tmp_path)
    assert ran.code == 2
    assert "--watch-path" in ran.err
    ran = cli("run", "--watch-path", tmp_path / "no", "-o", tmp_path / "r")
    assert ran.code == 2
    assert "there is no such file or folder" in ran.err
