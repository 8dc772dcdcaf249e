"""Endpoint pickers that are right on the wire, and misbehave as processes: `python processes.py PORT FILE HOW`.

Each serves as `epps.py` does, in this process or in a child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

EPPS = str(Path(__file__).with_name("epps.py"))


def serves(port: str, endpoints: str) -> None:
    """Become an endpoint picker that is right."""
    os.execv(sys.executable, [sys.executable, EPPS, port, endpoints, "behave", "1000000"])


def beside(work: Callable[[], None]) -> None:
    """Start a process that does `work` without end, in the same group."""
    if not os.fork():
        while True:
            work()


def shouts() -> None:
    os.write(1, b"\x1b[2J\x1b]0;title\x07<script>alert(1)</script> \x00\xff\n" * 2000)


def one_line() -> None:
    os.write(2, b"no end of this line " * 5000)


def main(port: str, endpoints: str, how: str) -> None:
    match how:
        case "exits-0":
            print("done", flush=True)
            sys.exit(0)
        case "exits-after-listening":
            child = subprocess.Popen([sys.executable, EPPS, port, endpoints, "silent", "0"])
            time.sleep(1)
            child.kill()
            sys.exit(0)
        case "tracebacks":
            raise RuntimeError("<img src=x onerror=alert(1)> \x1b[31m ]]> `code` | pipe")
        case "never-listens":
            time.sleep(3600)
        case "listens-elsewhere":
            serves(str(int(port) + 1 if int(port) < 65_000 else int(port) - 1), endpoints)
        case "leaves":  # what serves is a child in a new session, that ignores SIGTERM
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            command = [sys.executable, EPPS, port, endpoints, "behave", "1000000"]
            subprocess.Popen(command, start_new_session=True)
            sys.exit(0)
        case "forks":
            subprocess.Popen(["sleep", "3600"], start_new_session=True)
            subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1; done"])
        case "ignores-sigterm":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            beside(lambda: time.sleep(3600))
        case "shouts":
            beside(shouts)
        case "one-line":
            beside(one_line)
        case "closes-output":
            os.close(1)
            os.close(2)
        case "freezes":
            child = subprocess.Popen([sys.executable, EPPS, port, endpoints, "silent", "0"])
            threading.Timer(2, lambda: os.kill(child.pid, signal.SIGSTOP)).start()
            child.wait()
        case "replaces-file":
            beside(lambda: (Path(endpoints).write_bytes(os.urandom(100)), time.sleep(0.05)))
        case "grows-file":
            beside(lambda: (Path(endpoints).write_bytes(b"10.0.0.1:80\n" * 1_000_000), time.sleep(0.5)))
        case "nests-folders":
            os.chdir(Path(endpoints).parents[1] / "work")
            for _ in range(1500):
                Path("d").mkdir()
                os.chdir("d")
        case "leaves-files":
            os.chdir(Path(endpoints).parents[1] / "work")
            Path("\udcff\udcfe").mkdir()
            for number in range(20_000):
                Path(str(number)).touch()
        case _:
            sys.exit(f"nothing is called {how!r}")
    serves(port, endpoints)


if __name__ == "__main__":
    main(*sys.argv[1:])
