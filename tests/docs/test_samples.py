"""The sample outputs of pages are what the command line prints, and each step of the tutorial is a better EPP."""

import importlib.util
import itertools
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("docs_samples", ROOT / "docs" / "samples.py")
samples = sys.modules["docs_samples"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
README = samples.README.read_text()
TUTORIAL = samples.TUTORIAL.read_text()


def shown(name, page=README):
    return samples.sample(name, page)[1]


def labels(text):
    """The first word of each line of a summary, versions left out."""
    return [line.split()[0] for line in text.splitlines() if re.match(r"[A-Za-z]", line)]


def failure(text):
    """The failure that a text begins with, up to the command that repeats it."""
    return text[: text.index("reproduce ")]


@pytest.mark.program
def test_the_failure_shown_is_what_its_reproduce_command_prints(tmp_path):
    line = re.search(r"^reproduce +(epp-conformance run .*)$", shown("faulty"), re.MULTILINE)[1]
    done = samples.run(shlex.split(line)[2:], tmp_path, {})
    assert done.returncode == 1, done.stderr
    printed = failure(done.stdout).replace("conformance-reproduced", "conformance-report")
    assert samples.without_figures(printed) == samples.without_figures(failure(shown("faulty")))


@pytest.mark.program
def test_the_summary_shown_has_the_lines_of_a_summary(tmp_path):
    done = samples.run(["--smoke", *samples.SEED], tmp_path, {})
    summary = shown("conformant").partition("…\n")[2]
    assert done.returncode == 4, done.stderr  # a selection is never conformant
    assert [one for one in labels(summary) if one != "gauges"] == labels(done.stdout)  # no smoke test looks at gauges


@pytest.mark.program
def test_the_picture_shown_is_what_the_command_draws():
    shown = samples.drawn(samples.PICTURE.read_text())
    assert [text for text in shown if text.startswith("◀ here request_headers")]
    assert shown == samples.drawn(samples.picture())


def test_runs_that_differ_in_figures_only_leave_a_sample_as_it_is():
    one = "  40/401 31 passed (1.9 s)\nactual 127.85.254.101:8000 is not in the list\n"
    two = "  41/402 9 passed (12.25 s)\nactual 127.1.1.1:8000 is not in the list\n"
    assert samples.without_figures(one) == samples.without_figures(two)
    assert samples.without_figures(one) != samples.without_figures(two.replace("is not", "is"))
    long = "x: 127.101.254.101:8000, metadata\n    a: 127.101.254.101:8000, metadata env…\nnext"
    short = "x: 127.1.1.1:8000,\n    metadata a: 127.1.1.1:8000, metadata envoy.lb…\nnext"
    assert samples.without_figures(long) == samples.without_figures(short)
    other = "✗ ENV-15 fail  subset.nobody  (version 1.0.0)"
    assert samples.without_figures(other) == samples.without_figures(other.replace("subset.nobody", "errors.pool[a=b]"))
    assert samples.without_figures(other) != samples.without_figures(other.replace("ENV-15", "ENV-14"))


class Step:
    """One step of the tutorial, run as a process: its exit code, what was printed, and verdicts by requirement."""

    def __init__(self, files, arguments, folder):
        folder.mkdir()
        self.done = samples.run([*samples.PROFILE, *arguments], folder, files, "110")
        report = json.loads((folder / "conformance-report" / "report.json").read_text())
        self.verdicts = {one["id"]: one["verdict"] for one in report["requirements"]}

    @property
    def passed(self):
        return {name for name, verdict in self.verdicts.items() if verdict == "pass"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """All steps of the tutorial in the smoke set. What only shows if messages meet is tried three times."""
    folder = tmp_path_factory.mktemp("tutorial")
    found = []
    for number, files in enumerate(samples.steps(TUTORIAL), 1):
        last = number == len(samples.steps(TUTORIAL))
        for attempt in range(3 if number > 1 else 1):
            step = Step(files, ["--smoke"], folder / f"{number}-{attempt}")
            if last or step.done.returncode == 1:
                break
        found.append(step)
    return found


@pytest.mark.program
def test_each_step_of_the_tutorial_passes_what_the_one_before_does_and_more(smoke):
    for number, (before, after) in enumerate(itertools.pairwise(smoke), 2):
        assert before.passed < after.passed, (number, before.passed - after.passed, after.done.stdout)


@pytest.mark.program
def test_the_output_shown_in_the_tutorial_is_that_of_the_suite(smoke):
    for number, step in enumerate(smoke[:-1], 1):
        page, now = shown(f"step-{number}", TUTORIAL), samples.outline(step.done)
        for line in (r"^error: .*$", r"^blockers .*$", r"^(?:1\.0\.0) .*$"):
            assert re.findall(line, page, re.MULTILINE) == re.findall(line, now, re.MULTILINE), number


@pytest.mark.program
def test_the_last_step_of_the_tutorial_is_conformant(tmp_path):
    last = len(samples.steps(TUTORIAL))
    step = Step(samples.steps(TUTORIAL)[-1], [], tmp_path / "whole")
    assert step.done.returncode == 0, step.done.stdout + step.done.stderr
    assert labels(step.done.stdout) == labels(shown(f"step-{last}", TUTORIAL) + "report\n")


def test_the_tutorial_names_its_requirements_and_the_places_of_its_parts():
    text = "".join(samples.steps(TUTORIAL)[-1].values())
    imported = set(re.findall(r"^(?:from|import) ([\w]+)", text, re.MULTILINE))
    own = {name.removesuffix(".py") for name in samples.steps(TUTORIAL)[-1]}
    assert imported - own <= {"asyncio", "random", "sys", "pathlib", "grpc", "envoy"}
    rows = re.findall(r"^\| [^|]* \| ([^|]*) \|", TUTORIAL.partition("## What is still missing")[2], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert named
    assert [name for name in named if not (ROOT / "reference_epp" / name).exists()] == []


@pytest.mark.program
@pytest.mark.parametrize("fault", samples.FIXES)
def test_a_failure_on_the_page_of_fixes_is_what_the_suite_prints(fault):
    now = samples.all_samples()[fault].printed()
    page = samples.FIX.read_text()
    assert samples.without_figures(shown(fault, page)) == samples.without_figures(now)
    requirement = re.match(r"✗ (\S+)", now)[1]
    assert f"epp-conformance explain {requirement}\n" in page


def test_each_fix_is_a_part_of_a_program_that_is_tested():
    blocks = re.findall(r"^```\w+ from=(\S+)\n(.*?)^```$", samples.FIX.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == len(samples.FIXES)
    for name, text in blocks:
        lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
        wanted = [line.strip() for line in text.splitlines()]
        assert any(lines[at : at + len(wanted)] == wanted for at in range(len(lines))), text
