"""Running the command line: in this process where that is enough, else as a program."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.cli import call
from conformance.targets.ports import LOOPBACK, PortTakenError, hold


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """A shell that runs the tests in the background ignores SIGINT, and `nohup` SIGHUP; so would every program that
    they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command in this process."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        code = call([str(argument) for argument in arguments])
        sys.stdout.flush()
        printed = capfd.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    """A socket that is bound and does not listen, on a port that no run beside these tests was given."""
    with contextlib.ExitStack() as stack:
        while True:
            found = stack.enter_context(socket.socket())
            found.bind((LOOPBACK, 0))
            with contextlib.suppress(PortTakenError):
                os.close(hold(*found.getsockname()))
                break
        yield found


@pytest.fixture
def program() -> Callable[..., subprocess.Popen[str]]:
    """Start a command as a program; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, module: str = "conformance", **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def a_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report about a faulty EPP: one failure, some passes."""
    folder = tmp_path_factory.mktemp("report")
    fault = (
        f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
        "--fault metadata-differs --log-level error"
    )
    code = call(["run", "--epp", fault, "-k", "destination.list", "-k", "subset.nobody", "-o", str(folder), "-q"])
    assert code == 1
    return folder
