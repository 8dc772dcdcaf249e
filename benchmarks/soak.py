"""Repeat the default run on the reference EPP, and compare: verdicts have to be equal, and nothing may be left.

    python benchmarks/soak.py [--repeat 100] [--target FLAG…]

Every third run is under pressure: on one core, beside a process that wants that core for itself. `--target` and what
follows it are the flags of the run in place of the reference EPP. After each run it looks for processes that have the
run's mark in their environment, with the sockets that they hold, and for what is in its place for temporary files.
Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "EPP_CONFORMANCE_SOAK"
LIMIT = 900
"""Seconds after which a run is taken for one that never ends."""

Verdicts = Mapping[str, str]
"""By version and scenario, and by version and requirement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run: its condition, exit code, wall time in seconds, verdicts, what it printed last, and what it left."""

    condition: str
    code: int
    seconds: float
    verdicts: Verdicts
    printed: str
    left: tuple[str, ...]


def run(flags: list[str], *, pressed: bool) -> Ran:
    """Run once."""
    core = max(os.sched_getaffinity(0))
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as name, _busy(core) if pressed else contextlib.nullcontext():
        folder, scratch = Path(name) / "report", Path(name) / "scratch"
        scratch.mkdir()
        before = ("taskset", "-c", str(core)) if pressed else ()
        command = [*before, sys.executable, "-m", "conformance", "run", "--seed", "1", "-o", str(folder), *flags]
        environment = {**os.environ, "TMPDIR": str(scratch), MARK: mark}
        began = time.perf_counter()
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT, check=False)
        seconds = time.perf_counter() - began
        report = folder / "report.json"
        return Ran(
            condition="one core, pressed" if pressed else "as it is",
            code=ran.returncode,
            seconds=seconds,
            verdicts=_verdicts(json.loads(report.read_text())) if report.is_file() else {},
            printed="\n".join(ran.stderr.decode(errors="replace").splitlines()[-8:]),
            left=(*_processes(mark), *(f"folder {one.name}" for one in scratch.iterdir())),
        )


@contextlib.contextmanager
def _busy(core: int) -> Iterator[None]:
    """A process that does nothing else than to use `core`."""
    busy = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def _verdicts(report: Mapping[str, list[Mapping[str, str]]]) -> Verdicts:
    scenarios = {f"{one['version']} {one['mode']} {one['id']}": one["verdict"] for one in report["results"]}
    requirements = {f"{one['version']} {one['id']}": one["verdict"] for one in report["requirements"]}
    return {**scenarios, **requirements, "result": str(report["result"])}


def _processes(mark: str) -> Iterator[str]:
    """Processes that carry `mark`, and how many sockets each holds."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                held = [str(one.readlink()) for one in (process / "fd").iterdir()]
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield f"process {command[:80]}with {sum(one.startswith('socket:') for one in held)} sockets"


def main() -> None:
    """Parse the command line, run, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--target", nargs=argparse.REMAINDER, default=[], metavar="FLAG")
    options = parser.parse_args()
    runs: list[Ran] = []
    changed: Counter[str] = Counter()
    for number in range(1, options.repeat + 1):
        ran = run(options.target, pressed=not number % 3)
        runs.append(ran)
        other = _differences(runs[0].verdicts, ran.verdicts)
        changed.update(other)
        print(f"{number:4}  {ran.condition:18} exit {ran.code}  {ran.seconds:6.1f} s  {len(other)} differ", flush=True)
        for text in (*other[:20], *ran.left, *([ran.printed] if ran.code != runs[0].code else ())):
            print(f"        {text}", flush=True)
    _table(runs)
    for text, count in changed.most_common(20):
        print(f"{count:4} × {text}")
    sys.exit(1 if changed or any(one.left or one.code != runs[0].code for one in runs) else 0)


def _differences(first: Verdicts, other: Verdicts) -> list[str]:
    names = sorted({*first, *other})
    pairs = ((name, first.get(name, "none"), other.get(name, "none")) for name in names)
    return [f"{name}: {was}, then {now}" for name, was, now in pairs if was != now]


def _table(runs: list[Ran]) -> None:
    print(f"\n{'condition':20}{'runs':>6}{'fastest':>10}{'median':>10}{'slowest':>10}{'differ':>8}{'left':>6}")
    for condition in dict.fromkeys(one.condition for one in runs):
        those = [one for one in runs if one.condition == condition]
        seconds = [one.seconds for one in those]
        differ = sum(one.verdicts != runs[0].verdicts for one in those)
        left = sum(len(one.left) for one in those)
        print(
            f"{condition:20}{len(those):6}{min(seconds):8.1f} s{statistics.median(seconds):8.1f} s{max(seconds):8.1f} s"
            f"{differ:8}{left:6}"
        )
    print(f"{len(runs[0].verdicts)} verdicts a run, of the first: {Counter(runs[0].verdicts.values()).most_common()}")


if __name__ == "__main__":
    main()
