"""The page of readings: every id that is cited has an entry, and every entry is used or says why it stands."""

import re
from pathlib import Path

import pytest

from conformance.requirements.catalogue import Catalogue

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "readings.md"
CITED_IN = ("conformance", "docs", "examples", "fake_*", "ext_proc", "real_envoy", "reference_*", "scenarios", "tests")
ID = re.compile(r"\bAMB-[0-9]+\b")
PARTS = ("Open", "Reading", "Why", "Used by")


def entries():
    """The text of each entry by its id, headings in the order of the page."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def citations():
    """Every id that a file of the repository names, but for the page itself and this test."""
    files = [path for pattern in CITED_IN for path in ROOT.glob(f"{pattern}/**/*.*") if path.is_file()]
    text = [path.read_text() for path in files if path.suffix in (".py", ".yaml", ".md") and path != PAGE]
    return {cited for one in text for cited in ID.findall(one)}


def test_every_reading_that_is_cited_has_an_entry():
    assert citations() - {name for name, _ in entries()} == set()


def test_ids_are_unique_and_in_order():
    names = [name for name, _ in entries()]
    assert names == sorted(set(names))
    assert [name for name in names if not ID.fullmatch(name)] == []


@pytest.mark.parametrize(("name", "text"), entries(), ids=[name for name, _ in entries()])
def test_an_entry_has_all_its_parts_and_names_requirements_that_exist(name, text):
    assert re.findall(r"^\*\*(.*?):\*\*", text, re.MULTILINE) == list(PARTS)
    users = text.partition("**Used by:**")[2]
    requirements = re.findall(r"\b(?:ENV|(?:EPP|DP|MS|RAR)-[A-Z]+)-[0-9]{2}\b", users)
    catalogue = Catalogue.load()
    assert [one for one in requirements if one not in catalogue] == []
    assert requirements or name in citations() or "It stands" in users
