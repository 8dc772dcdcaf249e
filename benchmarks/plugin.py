"""Measure what the pytest plugin adds to the start of a pytest that does not use it.

    python benchmarks/plugin.py [--pairs 40]

Runs one empty test with the plugin, and the same without it, in turn; no other plugin is loaded. What is compared is
processor time, which other work on the machine disturbs least; the figure is the median of the differences in a pair.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

FIGURE = 0.010
"""Seconds."""

PLUGIN = next(one.value for one in entry_points(group="pytest11") if one.value.startswith("conformance."))


def start(folder: Path, *arguments: str) -> float:
    """Processor time of one pytest, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=folder,
        check=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Parse the command line, run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        start(folder, "-p", PLUGIN)  # compiles what was not compiled yet
        pairs = [(start(folder, "-p", PLUGIN), start(folder)) for _ in range(options.pairs)]
    added = statistics.median(with_it - without for with_it, without in pairs)
    with_it, without = (statistics.median(one) for one in zip(*pairs, strict=True))
    print(f"pytest with one empty test: {without * 1e3:.1f} ms of processor time without the plugin, "
          f"{with_it * 1e3:.1f} ms with it; added {added * 1e3:.1f} ms")  # fmt: skip
    held = added < FIGURE
    print(f"figure: < {FIGURE * 1e3:.0f} ms added: {'held' if held else 'NOT HELD'}")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
