"""Cost curves: what pods, streams, bodies, scenarios and versions cost; written as a page of the docs with charts.

    python benchmarks/curves.py [--go-epp PROGRAM] [--seconds 2] [--only CURVE…]

`pods`, `streams` and `body` load an EPP by `epp-conformance load` in a closed loop, every exchange judged. Each point
is loaded twice, briefly and for longer; the difference of the two in processor time, divided by that in exchanges, is
the cost of an exchange, without starting. What is judged in full for the first time counts: with many pods most of it,
unless `--seconds` is long. That of the load command is the harness; that of its child is the EPP. `peers` has the load
path beside clients that judge nothing, on a fast server: grpc.aio, and of h2load, ghz and Locust those that are
installed. `scenarios` and `versions` are wall and processor time of `epp-conformance run`. Linux only; run it on a
quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import peers
from fake_proxy_vs_grpc import BODY

from conformance.report.render.charts import Curve, chart
from conformance.report.render.page import asset
from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.scenario.loader import load
from conformance.strict_yaml import dump

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "build" / "costs.md"
COLOURS = """
svg { background: #fff; color: #1b1f24; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --link: #0a58ca; --good: #116329; --bad: #b3241c; --odd: #8a4b00; }
@media (prefers-color-scheme: dark) { svg { background: #14171b; color: #e6e9ed; --ink: #e6e9ed; --soft: #9aa4b0;
  --line: #3a424c; --link: #79b8ff; --good: #7ee2a8; --bad: #ff8a80; --odd: #ffc37a; } }
"""

Values = Mapping[str, float]
"""By the name of a line: its value at one place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What an EPP is loaded with: pods of the pool, streams at a time, bytes of body of each request."""

    pods: int = 10
    streams: int = 64
    body: int = len(BODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCurve:
    """A curve: `at` measures the lines at one place. `unit` is that of the values."""

    title: str
    along: str
    unit: str
    places: Sequence[int]
    at: Callable[[int], Values]
    points: dict[int, Values] = field(default_factory=dict)

    def drawn(self) -> str:
        """The chart as an SVG file; places are as far apart as their logarithms."""
        first = self.places[0]
        names = dict.fromkeys(name for values in self.points.values() for name in values)
        lines = [
            Curve(name=name, points=[(math.log(place / first), got.get(name)) for place, got in self.points.items()])
            for name in names
        ]
        ticks = [(math.log(place / first), f"{place:,}") for place in self.points]
        made = chart(self.title, lines, unit=self.unit, along=self.along, log=True, ticks=ticks)
        style = f"<style>{COLOURS}{asset('load.css')}</style>"
        return made.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1) + "\n"

    def table(self) -> str:
        """The values in Markdown."""
        names = list(dict.fromkeys(name for values in self.points.values() for name in values))
        rows = [[self.along, *names], ["---:"] * (len(names) + 1)]
        rows += [[f"{place:,}", *(_number(got.get(name)) for name in names)] for place, got in self.points.items()]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


# -- an EPP under load -------------------------------------------------------------------------------------------------


def under_load(target: Sequence[str], setting: Setting, seconds: float) -> tuple[float, float]:
    """Microseconds of processor time for each exchange: of the harness, of the EPP."""
    brief, longer = (_loaded(target, setting, one) for one in (seconds / 2, seconds * 2))
    harness, epp, done = (after - before for before, after in zip(brief, longer, strict=True))
    if done <= 0:
        raise RuntimeError(f"{done:.0f} exchanges more in the longer of two loads: {setting}")
    return harness / done * 1e6, epp / done * 1e6


def _loaded(target: Sequence[str], setting: Setting, seconds: float) -> tuple[float, float, float]:
    """Seconds of processor time of the harness and of the EPP, and exchanges judged."""
    with tempfile.TemporaryDirectory() as name:
        file, report = Path(name) / "load.yaml", Path(name) / "report"
        exchange = {"body": {"size": setting.body}, "http": 2}
        arrivals = {"seconds": seconds, "concurrent": setting.streams}
        mix = [{"name": "post", "exchange": exchange}]
        file.write_text(dump({"pods": setting.pods, "arrivals": [arrivals], "mix": mix}))
        command = [sys.executable, "-m", "conformance", "load", str(file), "--quiet", "-o", str(report), *target]
        ran = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        state, own = _seen(ran.pid)
        while state != "Z":  # it has ended, and keeps its figures until it is waited for
            time.sleep(0.02)
            state, own = _seen(ran.pid)
        _, status, usage = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        assert ran.stdout is not None
        output = ran.stdout.read().decode(errors="replace")
        if ran.returncode != 0:
            raise RuntimeError(f"the load ended with exit code {ran.returncode}:\n{output[-2000:]}")
        document = json.loads((report / "load.json").read_text())
        return own, usage.ru_utime + usage.ru_stime - own, float(document["exchanges"]["judged"])


def _seen(pid: int) -> tuple[str, float]:
    """The state of process `pid`, and the seconds of processor time that it has used, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- runs --------------------------------------------------------------------------------------------------------------


def run(flags: Sequence[str]) -> Values:
    """Seconds of wall and of processor time of a run, start and report included."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "conformance", "run", "--quiet", "-o", name, *flags]
        began = time.perf_counter()
        ran = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(ran.pid, 0)
        ran.returncode = os.waitstatus_to_exitcode(status)
        if ran.returncode not in (0, 4):  # 4: a selection makes no full verdict
            raise RuntimeError(f"the run ended with exit code {ran.returncode}: {' '.join(flags)}")
        return {"wall": time.perf_counter() - began, "processor": usage.ru_utime + usage.ru_stime}


def of_scenarios(number: int) -> Values:
    """A run of so many scenarios, taken evenly from those that are not slow."""
    instances = [one for one in load(Catalogue.load()) if one.role == "epp"]
    every = [one.id for one in instances if not one.scenario.slow and not one.scenario.isolated]
    chosen = [every[index * len(every) // number] for index in range(min(number, len(every)))]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(chosen))
        file.flush()
        return run(["--scenario", f"@{file.name}"])


def of_versions(number: int) -> Values:
    """A run of the newest so many versions."""
    return run([flag for version in list(VERSIONS)[-number:] for flag in ("--protocol-version", version)])


# -- the page ----------------------------------------------------------------------------------------------------------


def curves(targets: Mapping[str, Sequence[str]], seconds: float) -> Mapping[str, CostCurve]:
    """All curves, by the name of their file."""

    def costs(setting: Setting) -> Values:
        found: dict[str, float] = {}
        for name, target in targets.items():
            harness, epp = under_load(target, setting, seconds)
            found |= {f"harness ({name})": harness, name: epp}
        return found

    each = "microseconds of processor time for each exchange"
    return {
        "pods": CostCurve(
            title="Pods of the pool, 64 streams at a time", along="pods", unit=each,
            places=(10, 30, 100, 300, 1000), at=lambda place: costs(Setting(pods=place)),
        ),
        "streams": CostCurve(
            title="Streams at a time, 10 pods", along="streams", unit=each,
            places=(1, 10, 100, 1000, 5000),
            at=lambda place: costs(Setting(streams=place)),
        ),
        "peers": CostCurve(
            title="Beside other clients", along="streams at a time",
            unit="microseconds of processor time for each stream",
            places=(1, 10, 100, 1000, 5000), at=lambda place: peers.costs(place, seconds),
        ),
        "body": CostCurve(
            title="Body of the request, 4 streams at a time", along="bytes", unit=each,
            places=(1_000, 10_000, 100_000, 1_000_000, 8_000_000),
            at=lambda place: costs(Setting(streams=4, body=place)),
        ),
        "scenarios": CostCurve(
            title="Scenarios of a run", along="scenarios", unit="seconds", places=(1, 10, 100, 300), at=of_scenarios
        ),
        "versions": CostCurve(
            title="Protocol versions of a run", along="versions", unit="seconds",
            places=range(1, len(VERSIONS) + 1), at=of_versions,
        ),
    }  # fmt: skip


def page(made: Mapping[str, CostCurve], seconds: float) -> str:
    """The page in Markdown."""
    return (
        "# What the harness costs\n\n"
        f"Measured on {os.cpu_count()} cores with nothing else running, by\n\n"
        f"```\npython benchmarks/curves.py --go-epp PROGRAM --seconds {seconds:g}\n```\n\n"
        "which writes this page. The harness is `epp-conformance load` in one process: what Envoy does, and every\n"
        "exchange judged. The EPPs are the reference EPP and `examples/go-epp`, this one over TLS. The other clients\n"
        "judge nothing: grpc.aio, h2load, ghz (grpc-go) and Locust with grpcio send bytes that were made before to a\n"
        "fast server, and read as many answers. Where a field is empty, that client did not get it done.\n\n"
        "What an EPP and the harness do besides counts, too: metrics of each pod are read and served (every 50 ms by\n"
        "the reference EPP, every 100 ms by go-epp), and what is seen for the first time is judged in full, which is\n"
        "each of the endpoints once. With 1,000 pods that is most of the cost, and more of it the slower the EPP.\n"
    ) + "".join(section(name, curve) for name, curve in made.items())


def section(name: str, curve: CostCurve) -> str:
    """The part of the page that is about one curve."""
    today = datetime.now(UTC).date().isoformat()
    picture = f"![{curve.title}: {curve.unit}](costs/{name}.svg)"
    return f"\n## {curve.title}\n\n{picture}\n\nOn {today}, in {curve.unit}:\n\n{curve.table()}\n"


def renewed(text: str, made: Mapping[str, CostCurve]) -> str:
    """The page `text` with the parts about these curves as they are now."""
    for name, curve in made.items():
        old = re.search(rf"\n## {re.escape(curve.title)}\n.*?(?=\n## |\Z)", text, re.DOTALL)
        assert old is not None, f"the page has no part {curve.title}"
        text = text[: old.start()] + section(name, curve) + text[old.end() :]
    return text


def main() -> None:
    """Parse the command line, measure, and write page and charts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--go-epp", type=Path, help="the program of examples/go-epp")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", default=[], help="these curves; the rest of the page stays")
    options = parser.parse_args()
    targets: dict[str, Sequence[str]] = {"reference EPP": ()}
    if options.go_epp is not None:
        targets["go-epp"] = ("--profile", "go-epp", "--binary", str(options.go_epp.resolve()))
    made = curves(targets, options.seconds)
    chosen = {name: made[name] for name in options.only or made}
    for name, curve in chosen.items():
        for place in curve.places:
            curve.points[place] = curve.at(place)
            print(name, f"{place:,}", {line: _number(value) for line, value in curve.points[place].items()}, flush=True)
    folder = PAGE.parent / PAGE.stem
    folder.mkdir(parents=True, exist_ok=True)
    for name, curve in chosen.items():
        (folder / f"{name}.svg").write_text(curve.drawn())
    PAGE.write_text(
        renewed(PAGE.read_text(), chosen) if options.only and PAGE.is_file() else page(chosen, options.seconds)
    )


if __name__ == "__main__":
    main()
