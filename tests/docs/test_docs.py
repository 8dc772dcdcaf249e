"""The documentation: generated pages are up to date, links lead somewhere, and examples are what the suite accepts."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from conformance.cli.app import app
from conformance.report.document.model import Report
from conformance.report.document.waivers import WaiverFile, load_waivers
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load
from conformance.scenario.schema import ScenarioFile
from conformance.strict_yaml import parse
from conformance.targets.gateway import GatewayProfile
from conformance.targets.profile import Profile

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for part in ("docs", "examples", "benchmarks") for path in (ROOT / part).rglob("*.md")),
]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def named(path):
    return str(path.relative_to(ROOT))


def blocks(language):
    """Every fenced block of that info string, as pytest parameters."""
    found = []
    for page in PAGES:
        for number, (info, text) in enumerate(FENCE.findall(page.read_text()), start=1):
            if info == language:
                found.append(pytest.param(text, id=f"{named(page)}#{number}"))
    return found


def anchors(page):
    """The fragments that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def generate(monkeypatch):
    """docs/generate.py as a module."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    module = sys.modules["generate_docs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.program
def test_generated_pages_are_up_to_date(generate):
    assert [named(path) for path in generate.outdated_pages()] == [], "not up to date: make docs"


@pytest.mark.program
def test_a_new_address_is_written_everywhere(generate, monkeypatch):
    """A fork changes `project.urls` and runs `make docs`: the old address is nowhere else."""
    address = generate.address
    old = urlsplit(address.address())
    monkeypatch.setattr(address, "address", lambda: "https://example.org/group/team/suite")
    texts = dict(address.pages())
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in (ROOT / name for name in listed.split("\0") if name and not name.startswith("tests/data/")):
        if path == ROOT / "pyproject.toml" or not path.is_file():
            continue
        text = texts.get(path) or path.read_bytes().decode(errors="replace")
        assert old.path.strip("/") not in text, path
    for path, text in texts.items():
        assert "group/team/suite" in text, path


def test_the_proposal_to_upstream_fits_into_an_issue():
    longest = 65_536
    text = (ROOT / "docs" / "reference" / "upstream-profile.md").read_text()
    assert len(text) < longest / 2
    core = [one for one in Catalogue.load().requirements.values() if one.role == "epp" and "1.0.0" in one.effects]
    assert [one.id for one in core if f"`{one.id}`" not in text and not one.id.startswith("RAR")] == []


@pytest.mark.parametrize("model", [Profile, GatewayProfile, ScenarioFile, WaiverFile, Report])
def test_every_key_of_every_file_is_described(model):
    schema = model.model_json_schema(by_alias=True, mode="serialization")
    for one in (schema, *schema["$defs"].values()):
        assert [name for name, key in one.get("properties", {}).items() if not key.get("description")] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not fragment or fragment in anchors(there), target


@pytest.mark.parametrize("text", blocks("yaml profile"))
def test_profiles_in_the_docs_are_valid(text, tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    parse(path).validate(Profile)


@pytest.mark.parametrize("text", blocks("yaml gateway"))
def test_profiles_of_gateways_in_the_docs_are_valid(text, tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    parse(path).validate(GatewayProfile)


@pytest.mark.parametrize("text", blocks("yaml scenario"))
def test_scenarios_in_the_docs_are_valid(text, tmp_path):
    (tmp_path / "scenarios.yaml").write_text(text)
    catalogue = Catalogue.load()
    assert len(load(catalogue, [tmp_path])) > len(load(catalogue))


@pytest.mark.parametrize("text", blocks("yaml waivers"))
def test_waivers_in_the_docs_are_valid(text, tmp_path):
    (tmp_path / "waivers.yaml").write_text(text)
    catalogue = Catalogue.load()
    assert load_waivers(tmp_path / "waivers.yaml", catalogue, [one.id for one in load(catalogue)])


@pytest.mark.program
@pytest.mark.parametrize("text", blocks("python pytest"))
def test_tests_in_the_docs_pass(text, tmp_path):
    (tmp_path / "test_example.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--epp=reference", "--epp-fixtures-only"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def recipe_commands():
    """The shell lines of the CI recipes."""
    for path in (ROOT / "examples" / "ci").glob("*.yaml"):
        lines = [
            line
            for node in walk(yaml.safe_load(path.read_text()))
            if isinstance(node, str)
            for line in node.splitlines()
        ]
        yield from (pytest.param(line, id=path.name) for line in lines if line.startswith("epp-conformance "))


def walk(node):
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)


def shown_commands():
    """Every call of the command line in a shell block."""
    for block in blocks("sh"):
        for line in block.values[0].replace("\\\n", " ").splitlines():
            if line.lstrip("$ ").startswith("epp-conformance "):
                yield pytest.param(line.lstrip("$ ").split(" > ")[0].split(" || ")[0], id=block.id)


@pytest.mark.parametrize("line", [*shown_commands(), *recipe_commands()])
def test_commands_in_the_docs_are_understood(line):
    """Each is parsed to the end by the real command line, and not carried out."""
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    name, context = "epp-conformance", None
    while words:
        context = command.make_context(name, words, parent=context)
        rest = [*context._protected_args, *context.args]
        if not hasattr(command, "commands") or not rest:
            break
        name, command, words = command.resolve_command(context, rest)
    assert not hasattr(command, "commands")
