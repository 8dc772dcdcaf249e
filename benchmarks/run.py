"""Measure a full run on the reference EPP, as a user has it: everything from the command to its exit.

    python benchmarks/run.py [--repeat 3] [--only 1.0.0|all]

Wall time and the time to the first output are the median of the repeats; processor time is that of all processes of the
run. A run that does not call the reference EPP conformant is no measurement.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIGURES = {"1.0.0": 15.0, "all": 45.0}
"""Seconds of wall time that a run may take, by `--protocol-version`."""

FIRST_OUTPUT = 1.0


def run(version: str) -> tuple[float, float, float]:
    """Run once: wall time, time to the first output, and processor time, in seconds."""
    before = cpu()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "conformance", "run", "--protocol-version", version, "--output", folder]
        began = time.perf_counter()
        ran = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert ran.stdout is not None
        output = os.read(ran.stdout.fileno(), 1)
        first = time.perf_counter() - began
        output += ran.stdout.read()
        code = ran.wait()
        wall = time.perf_counter() - began
    if code != 0:
        sys.exit(f"the run ended with exit code {code}:\n{output.decode(errors='replace')[-2000:]}")
    return wall, first, cpu() - before


def cpu() -> float:
    """Processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Parse the command line, run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=FIGURES)
    options = parser.parse_args()
    held = True
    print(f"{'protocol version':20}{'wall':>10}{'figure':>10}{'cpu':>10}{'first output':>16}")
    for version, figure in FIGURES.items():
        if options.only not in (None, version):
            continue
        wall, first, used = (
            statistics.median(one) for one in zip(*(run(version) for _ in range(options.repeat)), strict=True)
        )
        held = held and wall <= figure and first <= FIRST_OUTPUT
        print(f"{version:20}{wall:8.1f} s{figure:8.0f} s{used:8.1f} s{first:14.2f} s", flush=True)
    print(f"figures: the walls above, first output ≤ {FIRST_OUTPUT:g} s: {'held' if held else 'NOT HELD'}")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
