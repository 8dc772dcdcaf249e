"""Writes the sample outputs of README.md from real runs: `python docs/samples.py`, or `make docs`.

A sample is a fenced block between `<!-- sample: NAME -->` and `<!-- end of sample -->`. It is what the command printed,
with most lines of progress left out. A sample that differs from a new run in figures and addresses only stays as it is,
so that writing the pages twice changes nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"

SEED = ("--seed", "1")
WIDTH = "160"
"""Columns of the terminal that is shown."""
FAULTY = "cmd:reference-epp --listen=127.0.0.1:{port} --endpoints-file={endpointsFile} --fault=subset-by-address"
COMMANDS: Mapping[str, Sequence[str]] = {"conformant": SEED, "faulty": (*SEED, "--epp", FAULTY)}
"""The arguments of `epp-conformance run`, by sample. The first are those of `make conformance`, with a seed."""

EXIT_CODES: Mapping[str, int] = {"conformant": 0, "faulty": 1}
CUT = 60
"""Characters compared of a line that the tool cut with `…`: how far it got depends on the length of addresses."""


def printed(name: str) -> str:
    """What the command of a sample prints: its progress, of the conformant one only, and its result.

    Raises RuntimeError if it does not end as expected.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "conformance", "run", "--output", "conformance-report", *COMMANDS[name]]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for reference-epp
        env = {**os.environ, "PATH": path, "COLUMNS": WIDTH}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != EXIT_CODES[name]:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return (shortened(done.stderr) if name == "conformant" else "") + done.stdout.rstrip("\n") + "\n"


def shortened(progress: str) -> str:
    """The lines of progress without those between the first and the last count."""
    lines = progress.splitlines()
    counts = [at for at, line in enumerate(lines) if re.match(r"  \d+/\d+ ", line)]
    kept = [*lines[: counts[0] + 1], "  …", *lines[counts[-1] :]]
    return "\n".join(kept) + "\n"


def without_figures(text: str) -> str:
    """The text with every address and number replaced, so that two runs that differ in these only are equal."""
    lines = (line[:CUT] if line.endswith("…") else line for line in text.splitlines())
    return re.sub(r"\d+(?:[.,]\d+)*", "0", "\n".join(lines))


def sample(name: str, page: str) -> re.Match[str]:
    """The place of a sample in the page. Raises LookupError."""
    pattern = rf"<!-- sample: {name} -->\n```text\n(.*?)```\n<!-- end of sample -->"
    found = re.search(pattern, page, re.DOTALL)
    if found is None:
        raise LookupError(f"{README.name} has no sample {name}")
    return found


def main() -> None:
    """Run the commands, and write the samples that changed."""
    page = README.read_text(encoding="utf-8")
    for name in COMMANDS:
        place, text = sample(name, page), printed(name)
        if without_figures(text) != without_figures(place[1]):
            page = page[: place.start(1)] + text + page[place.end(1) :]
            print(f"{README.name}: sample {name}")
    README.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
