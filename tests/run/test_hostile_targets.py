"""Every target of `hostile`: the run ends, with the right exit code and a report that can be verified, in bounded
memory, and leaves no process behind."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile import TARGETS, Party, Target

from conformance.cli import call

pytestmark = pytest.mark.program

MEMORY = 320 * 1024 * 1024
"""Bytes that no process of a run may exceed, the target's included."""

REPORT = 16 * 1024 * 1024
"""Bytes that the files of a report may come to."""

AT_ONCE = 4
"""Runs side by side: most of the time of each is waiting."""

LIMIT = 90
"""Seconds after which a run is taken for one that never ends."""

MEASURED = """
import pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(code)
"""
"""Runs a command and writes down the memory of its largest process. The system counts what a process was before it
began the command, so a large one, as pytest may be, can't start it by itself."""

SHORT = {"start": 4, "answer": 0.5, "convergence": 0.3, "stop": 0.3}
FEW = ("-k", "destination.completion", "-k", "subset.only-unready", "--body-mode", "full-duplex")

PARTIES: dict[Party, tuple[dict, tuple[str, ...]]] = {
    "endpoint picker": ({"discovery": {"file": {"reread": 0.05}, "scrapes": False}}, FEW),
    "gateway": ({"role": "data-plane"}, ("-k", "gateway.asks-about-head", "-k", "gateway.follows-the-pick")),
    "model server": (
        {"role": "model-server", "url": "http://127.0.0.1:{port}"},
        ("-k", "server.answers-with-*", "-k", "metrics.page"),
    ),
}
"""What a profile of each says beside its command and its time limits, and the scenarios that it is tried with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run went; `left` are the commands of processes that outlived it, `outside` are the files of a
    folder that is none of the suite's or the target's."""

    code: int
    printed: str
    memory: int
    left: list[str]
    outside: dict[str, str]
    folder: Path


def conduct(target: Target, folder: Path) -> Ran:
    """Run the suite against `target`, as a program."""
    more, scenarios = PARTIES[target.party]
    (scratch := folder / "scratch").mkdir(parents=True)
    (outside := folder / "outside").mkdir()
    (outside / "file").write_text("of the user")
    profile, mark = folder / "profile.yaml", uuid.uuid4().hex
    said = {"name": target.name, "timeouts": SHORT, "start": {"command": list(target.command)}, **more}
    profile.write_text(json.dumps(said))
    arguments = ("--profile", str(profile), *scenarios, "--jobs", "1", "--seed", "1", "-o", str(folder / "r"))
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-c", MEASURED, folder / "memory", sys.executable, "-m", "conformance", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "NO_COLOR": "1",
                "TMPDIR": str(scratch),
                "HOSTILE_RUN": mark,
                "OUTSIDE": str(outside),
                "PYTHONDONTWRITEBYTECODE": "",
            },
        )
    killer = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
    killer.start()
    code = process.wait()
    killer.cancel()
    return Ran(
        code=code,
        printed=(folder / "printed").read_text(errors="backslashreplace"),
        memory=int((folder / "memory").read_text()),
        left=list(_end(mark)) + [str(path) for path in scratch.iterdir()],
        outside={path.name: path.read_text() for path in outside.iterdir()},
        folder=folder / "r",
    )


def _end(mark: str) -> Iterator[str]:
    """End every process that has `mark` in its environment; the commands of those that there were."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Target], Ran]]:
    """The run against a target. Those of all tests that are selected are begun together."""
    wanted = [one.callspec.params["target"] for one in request.session.items if one.module is request.module]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs: dict[str, Future[Ran]] = {
            one.name: pool.submit(conduct, one, tmp_path_factory.mktemp("hostile") / "run") for one in wanted
        }
        yield lambda target: runs[target.name].result()
        for run in runs.values():
            run.cancel()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_that_misbehaves(ran: Callable[[Target], Ran], target: Target, capsys) -> None:
    run = ran(target)
    assert run.code == target.code, run.printed
    assert not {*run.printed} & {"\x1b", "\x00", "\x07"}
    assert run.left == []
    assert run.outside == {"file": "of the user"}
    assert run.memory < MEMORY
    assert sum(file.stat().st_size for file in run.folder.iterdir()) < REPORT
    report = json.loads((run.folder / "report.json").read_text())
    assert report["result"] == {1: "non-conformant", 4: "incomplete"}[target.code]
    assert call(["report", "verify", str(run.folder)]) == 0, capsys.readouterr().out
