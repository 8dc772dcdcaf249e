"""A machine that stands still again and again, as far as one program and all that descends from it can tell."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator

from conformance.targets.listening import family


@contextlib.contextmanager
def standstills(pid: int, *, seconds: tuple[float, float], between: tuple[float, float], seed: int) -> Iterator[None]:
    """While entered, the family of `pid` stands still for `seconds` (least, most), then runs for `between`."""
    rng, over = random.Random(seed), threading.Event()

    def again_and_again() -> None:
        while not over.wait(rng.uniform(*between)):
            stopped = list(family(pid))
            _tell(stopped, signal.SIGSTOP)
            over.wait(rng.uniform(*seconds))
            _tell(stopped, signal.SIGCONT)

    thread = threading.Thread(target=again_and_again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
