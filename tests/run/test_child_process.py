"""Processes of the suite: forked or new interpreters, they carry out the same and end with their parent."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

SCRIPT = """
    import contextlib, os, signal, sys, threading
    from conformance.run.child_process import ChildProcess, warm

    class Adds:
        def __init__(self, engine, say, first):
            self.say, self.sum = say, first
        async def carry_out(self, command):
            self.sum += command
            self.say((self.sum, os.getpid(), os.getsid(0), os.fstat(0) == os.stat(os.devnull)))
        async def close(self, *, hurry):
            print("closed in a hurry" if hurry else "closed", flush=True)

    def receive(process):
        try:
            process.receive()
        except HarnessError as error:
            print(error, flush=True)

    if __name__ == "__main__":
        from adds import Adds
        from conformance.errors import HarnessError
        with warm(2) if sys.argv[1] == "warm" else contextlib.nullcontext():
            process = ChildProcess(Adds, 40)
            process.send(2)
            print(*process.receive(), process.pid, flush=True)
            input()
            if sys.argv[2] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            waits = threading.Thread(target=receive, args=(process,))
            waits.start()
            process.close(hurry=sys.argv[2] == "hurried")
            waits.join()
        print("over", flush=True)
"""


@pytest.mark.parametrize("end", ["killed", "closed", "hurried"])
@pytest.mark.parametrize("begin", ["warm", "new"])
def test_a_process_carries_out_commands_and_ends_with_its_parent(begin: str, end: str, tmp_path) -> None:
    script = tmp_path / "adds.py"
    script.write_text(textwrap.dedent(SCRIPT))
    parent = subprocess.Popen(
        [sys.executable, script, begin, end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        total, own, session, devnull, known = parent.stdout.readline().split()
        assert total == "42"
        assert own == session == known  # its session, so that Ctrl-C of the terminal does not reach it
        assert devnull == "True"
        child = os.pidfd_open(int(own))
        copies = [int(one) for one in _children(parent.pid)]
        others = [os.pidfd_open(one) for one in copies]
        parent.stdin.write("\n")
        parent.stdin.flush()
        for ended in (child, *others):
            assert select.select([ended], [], [], 30)[0], "a process outlived its parent's connection"
            os.close(ended)
        rest = parent.stdout.read().splitlines()
    # One thread waits for an answer while another closes: both learn how it ended.
    closed = "closed in a hurry" if end == "hurried" else "closed"
    assert rest == ([closed] if end == "killed" else [closed, "a process of the suite exited with 0", "over"])
    assert len(copies) == (2 if begin == "warm" else 1)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
