"""Writes the sample outputs of README.md and of the tutorial from real runs: `python docs/samples.py`, or `make docs`.

The picture of the README and of docs/ is drawn from such a run, too.

A sample is a fenced block between `<!-- sample: NAME -->` and `<!-- end of sample -->`. It is what the command printed,
with most lines of progress, or most of each failure, left out. A sample that differs from a new run in figures and
addresses only stays as it is, so that writing the pages twice changes nothing. Counts and times are shown as N.

The program that the tutorial runs is the tutorial's own: `steps` takes it out of the page's blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "write-your-own.md"
FIX = ROOT / "docs" / "how-to" / "fix.md"
PICTURE = ROOT / "docs" / "demo.svg"

SEED = ("--seed", "1")
WIDTH = "160"
"""Columns of the terminal that the README shows."""
WITH_FAULT = "cmd:reference-epp --listen=127.0.0.1:{port} --endpoints-file={endpointsFile} --fault="
FAULTY = WITH_FAULT + "subset-by-address"
FIXES = {
    "subset-by-address": "subset.wrong-port",
    "empty-subset-means-all": "subset.empty",
    "subset-ignored-for-bodyless": "subset.bodyless[*",
    "ipv6-without-brackets": "destination.ipv6*",
    "empty-pool-500": "errors.empty-pool[*",
    "refusal-as-grpc-status": "subset.nobody*",
    "body-answered-empty": "streaming.request[*",
    "trailers-do-not-end-the-body": "ext-proc.request-trailers[*",
    "content-length-twice": "destination.completion[*",
    "odd-usage-is-fatal": "*usage*",
}
"""The faults that the page of fixes shows, each with scenarios that find it."""
PROFILE = ("--profile", "profile.yaml", "--quiet")
COUNTS = re.compile(
    r"^(?:scenarios|requirements|gauges|explains) .*|^ +(?:\d+/\d+ |\d+ of those |seen in ).*"
    r"|: \d+ scenarios$| in \d+ of \d+ scenarios",
    re.MULTILINE,
)
CUT = 60
"""Characters compared of a line that the tool cut with `…`: how far it got depends on the length of addresses."""


def steps(page: str) -> list[dict[str, str]]:
    """The program after each step of the tutorial: texts by the name of their file.

    A step begins with a heading that has a number. Its blocks whose first line is a comment with the name of a file are
    those files, over what the steps before it have.
    """
    files: dict[str, str] = {}
    found = []
    for step in re.split(r"^## (?=\d)", page, flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```\w[^\n]*\n(# (\w+\.\w+)\n.*?)^```$", step, re.DOTALL | re.MULTILINE)
        files = files | {name: text for text, name in blocks}
        found.append(files)
    return found


def run(
    arguments: Sequence[str], folder: Path, files: Mapping[str, str], width: str = WIDTH
) -> subprocess.CompletedProcess[str]:
    """Run `epp-conformance run` with these arguments in a folder that has these files."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return command(["run", *arguments], folder, width)


def command(arguments: Sequence[str], folder: Path, width: str = WIDTH) -> subprocess.CompletedProcess[str]:
    """Run `epp-conformance` with these arguments in a folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for reference-epp
    env = {**os.environ, "PATH": path, "COLUMNS": width}
    words = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def whole(done: subprocess.CompletedProcess[str]) -> str:
    """All of the result."""
    return done.stdout


def with_progress(done: subprocess.CompletedProcess[str]) -> str:
    """The result after the lines of progress, without those between the first and the last count."""
    lines = done.stderr.splitlines()
    counts = [at for at, line in enumerate(lines) if re.match(r"  \d+/\d+ ", line)]
    kept = [*lines[: counts[0] + 1], "  …", *lines[counts[-1] :]]
    return "\n".join(kept) + "\n" + done.stdout


def outline(done: subprocess.CompletedProcess[str]) -> str:
    """What stopped the run, what was expected in each failure and what came, and the summary."""
    errors = [part for line in done.stderr.splitlines() for part in textwrap.wrap(line, 110, subsequent_indent="    ")]
    failures, heading, summary = done.stdout.partition("Endpoint Picker Protocol")
    lines, kept = [], False
    for line in failures.splitlines():
        kept = line.startswith(("✗", "expected", "or ", "actual")) or (kept and line.startswith(" "))
        lines += [line] if kept else []
    return "\n".join([*errors, *lines, heading + re.sub(r"^report .*\n?", "", summary, flags=re.MULTILINE)])


def essence(done: subprocess.CompletedProcess[str]) -> str:
    """Of the first failure: its heading, what was expected, what came, and the hint."""
    lines, kept = [], False
    for line in done.stdout[: done.stdout.index("reproduce ")].splitlines():
        kept = line.startswith(("✗", "expected", "or ", "actual", "hint")) or (kept and line.startswith(" "))
        lines += [line] if kept else []
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run that a page shows: the arguments of `epp-conformance run`, and what of its output."""

    arguments: Sequence[str]
    exit_code: int
    page: Path = README
    shown: Callable[[subprocess.CompletedProcess[str]], str] = whole
    width: str = WIDTH
    files: Mapping[str, str] = field(default_factory=dict)

    def printed(self) -> str:
        """What the page is to show. Raises RuntimeError if the run does not end as expected."""
        with tempfile.TemporaryDirectory() as folder:
            done = run(["--output", "conformance-report", *self.arguments], Path(folder), self.files, self.width)
        if done.returncode != self.exit_code:
            raise RuntimeError(f"{' '.join(self.arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return without_counts(self.shown(done).rstrip("\n")) + "\n"


def all_samples() -> dict[str, Sample]:
    """The samples of all pages, by name. The first is what `make conformance` prints, with a seed."""
    programs = steps(TUTORIAL.read_text(encoding="utf-8"))
    exit_codes = (4, *[1] * (len(programs) - 2), 0)  # nothing can be tested; not conformant; conformant
    tutorial = {
        f"step-{number}": Sample(
            arguments=(*SEED, *PROFILE, *(("--smoke",) if code else ())),
            exit_code=code,
            page=TUTORIAL,
            shown=outline,
            width="110",
            files=files,
        )
        for number, (files, code) in enumerate(zip(programs, exit_codes, strict=True), 1)
    }
    fixes = {
        fault: Sample(
            arguments=(*SEED, "--quiet", "--epp", WITH_FAULT + fault, "--scenario", scenarios),
            exit_code=1,
            page=FIX,
            shown=essence,
            width="110",
        )
        for fault, scenarios in FIXES.items()
    }
    return {
        "conformant": Sample(arguments=SEED, exit_code=0, shown=with_progress),
        "faulty": Sample(arguments=(*SEED, "--epp", FAULTY), exit_code=1),
        **tutorial,
        **fixes,
    }


def without_counts(text: str) -> str:
    """The text with N for counts and times, which change with every scenario: those of progress, summary and causes."""
    return COUNTS.sub(lambda line: re.sub(r"(?<![\w.-])(?<!seed )\d+(?:\.\d+)?", "N", line[0]), text)


def without_figures(text: str) -> str:
    """The text without what differs between runs: addresses, and where lines break and are cut because of their
    lengths; numbers that are part of no id; scenarios of failures."""
    named = re.sub(r"^(✗ \S+ \w+)  \S+", r"\1  scenario", text, flags=re.MULTILINE)
    whole = re.sub(r",[^,…]*\S…", "…", " ".join(without_counts(named).split()))
    return re.sub(r"(?<![\d-])\d+(?:[.,]\d+)*", "0", whole)


def picture() -> str:
    """The diagram (SVG) of a conversation in which an endpoint picker breaks a rule, of a new run."""
    with tempfile.TemporaryDirectory() as folder:
        run([*SEED, "--epp", FAULTY, "--scenario", "subset.wrong-port", "--output", "report"], Path(folder), {})
        return command(["report", "show", "report", "--format", "svg"], Path(folder)).stdout


def drawn(svg: str) -> set[str]:
    """The arrows of a diagram without what differs between runs: figures, and the order of what crosses."""
    return {without_figures(text)[: CUT // 2] for text in re.findall(r'<text class="label"[^>]*>(.*?)</text>', svg)}


def sample(name: str, page: str) -> re.Match[str]:
    """The place of a sample in the text of a page. Raises LookupError."""
    pattern = rf"<!-- sample: {name} -->\n```text\n(.*?)```\n<!-- end of sample -->"
    found = re.search(pattern, page, re.DOTALL)
    if found is None:
        raise LookupError(f"the page has no sample {name}")
    return found


def main() -> None:
    """Run the commands, and write the samples that changed: all, or those whose names are given."""
    for name, wanted in all_samples().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        page = wanted.page.read_text(encoding="utf-8")
        place, text = sample(name, page), wanted.printed()
        if without_figures(text) != without_figures(place[1]):
            wanted.page.write_text(page[: place.start(1)] + text + page[place.end(1) :], encoding="utf-8")
            print(f"{wanted.page.name}: sample {name}")
    if not sys.argv[1:] and drawn(new := picture()) != (drawn(PICTURE.read_text()) if PICTURE.exists() else set()):
        PICTURE.write_text(new, encoding="utf-8")
        print(PICTURE.name)


if __name__ == "__main__":
    main()
