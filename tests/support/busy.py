"""Other programs that want the processor."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

BUSY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while os.getppid() != 1:
    pass
"""


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
