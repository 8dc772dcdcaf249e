"""The sample outputs of README.md are what the command line prints, whatever the figures."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("docs_samples", ROOT / "docs" / "samples.py")
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
README = (ROOT / "README.md").read_text()


def shown(name):
    return samples.sample(name, README)[1]


def run(arguments, folder):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "conformance", "run", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": samples.WIDTH},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def labels(text):
    """The first word of each line of a summary, versions left out."""
    return [line.split()[0] for line in text.splitlines() if re.match(r"[A-Za-z]", line)]


def failure(text):
    """The failure that a text begins with, up to the command that repeats it."""
    return text[: text.index("reproduce ")]


def test_the_failure_shown_is_what_its_reproduce_command_prints(tmp_path):
    line = re.search(r"^reproduce +(epp-conformance run .*)$", shown("faulty"), re.MULTILINE)[1]
    done = run(shlex.split(line)[2:], tmp_path)
    assert done.returncode == 1, done.stderr
    assert samples.without_figures(failure(done.stdout)) == samples.without_figures(failure(shown("faulty")))


def test_the_summary_shown_has_the_lines_of_a_summary(tmp_path):
    done = run(["--smoke", *samples.SEED], tmp_path)
    summary = shown("conformant").partition("…\n")[2]
    assert done.returncode == 4, done.stderr  # a selection is never conformant
    assert labels(summary) == labels(done.stdout)


def test_runs_that_differ_in_figures_only_leave_a_sample_as_it_is():
    one = "  40/401 31 passed (1.9 s)\nactual 127.85.254.101:8000 is not in the list\n"
    two = "  41/402 9 passed (12.25 s)\nactual 127.1.1.1:8000 is not in the list\n"
    assert samples.without_figures(one) == samples.without_figures(two)
    assert samples.without_figures(one) != samples.without_figures(two.replace("is not", "is"))
