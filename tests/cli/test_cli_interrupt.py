"""A signal that Python handles in a finalizer, where it drops what is raised, ends the command all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

IN_FINALIZERS = """
import os, signal, threading, time
from conformance.cli.interrupt import interruptible

class Slow:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        while True:
            time.sleep(0.01)

def start(thread, started=threading.Thread.start):
    started(thread)
    time.sleep({starting})

threading.Thread.start = start
interruptible()
for _ in range({times}):
    Slow()
try:
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("interrupted")
"""

LOST = """
from conformance.cli.interrupt import Interrupt

heed, left = Interrupt.__call__, [3]

class Finalized:
    def __init__(self, *signal):
        self.signal = signal

    def __del__(self):
        heed(*self.signal)

def handle(*signal):
    if left[0]:
        left[0] -= 1
        Finalized(*signal)
    else:
        heed(*signal)

Interrupt.__call__ = handle
"""


@pytest.mark.parametrize("starting", [0, 0.2])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_finalizer_comes_again(name: str, times: int, starting: float) -> None:
    """The second one is lost as the first comes again; or that comes while the thread is started that sends it."""
    code = IN_FINALIZERS.format(name=name, times=times, starting=starting)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False)
    assert (ran.stdout, ran.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize(
    ("arguments", "begun", "code"),
    [
        (("run", "-o", "r"), "passed", 4),
        (("load", "--seconds", "60", "--json-lines", "-o", "r"), "judged", 4),
        (("tap", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1"), "127.0.0.1:", 4),
        (("selftest", "metadata-differs", "slow", "--jobs", "1"), "metadata-differs", 4),
    ],
    ids=["run", "load", "tap", "selftest"],
)
def test_ctrl_c_ends_each_command(tmp_path: Path, arguments: tuple[str, ...], begun: str, code: int) -> None:
    """The first three times, what is raised is lost in a finalizer."""
    (tmp_path / "sitecustomize.py").write_text(LOST)
    seen = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "conformance", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **seen},
    ) as command:
        assert command.stdout is not None
        said = ""
        for line in command.stdout:
            said += line
            if begun in line:
                break
        command.send_signal(signal.SIGINT)
        try:
            said += command.communicate(timeout=60)[0]
        finally:
            command.kill()
    assert command.returncode == code, said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
