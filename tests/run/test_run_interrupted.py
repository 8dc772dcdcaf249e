"""Ctrl-C ends what the engine does, whichever thread the system gives the signal to."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.program

PROGRAM = """
import asyncio, signal, threading
from conformance.run.engine import EngineThread

async def work():
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaned up")

with EngineThread() as engine:
    try:
        engine.call(work())
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_signal_that_another_thread_gets_ends_the_work() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert ran.stdout.split("\n")[:2] == ["cleaned up", "interrupted"], ran.stderr
