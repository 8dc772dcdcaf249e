"""Pages that are written by hand: short lines, plain words, each term as the glossary has it, and paths that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = re.compile(r"<!-- (Written by `make|`make docs` writes)")
PAGES = [
    path
    for pattern in ("*.md", ".github/**/*.md", "benchmarks/*.md", "docs/**/*.md", "examples/**/*.md")
    for path in sorted(ROOT.glob(pattern))
    if not GENERATED.search(path.read_text())
]
IDS = [str(path.relative_to(ROOT)) for path in PAGES]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=IDS)

LONGEST = 120
FORBIDDEN = re.compile(
    r"\b(nobody|anew|for ever|shall|of ours|whoever|of (?:its|their|your) own|bites?|odd but right"
    r"|trouble of the (?:suite|harness)|(?:suite|harness)'s (?:own )?trouble)\b",
    re.IGNORECASE,
)
IN_CODE = re.compile(r"\b(anew|for ever|of ours|of (?:its|their|your) own|odd but right)\b", re.IGNORECASE)
CODE = [
    path
    for pattern in ("*.py", "*.yaml", "*.go")
    for path in sorted(ROOT.rglob(pattern))
    if not {".venv", ".tox", "build", "reports", "conformance-report"} & {*path.relative_to(ROOT).parts}
    and path != Path(__file__)
]
"""Published reports keep the words of the suite that wrote them."""

TOP = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name.isidentifier()))
PATH = re.compile(rf"`((?:{TOP})/[\w./*-]*)`")
GLOSSARY = ROOT / "docs" / "explanation" / "glossary.md"


def prose(page):
    """The lines of a page outside code blocks and generated parts, each with its number."""
    off = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```") or line.startswith(("<!-- generated: begin", "<!-- generated: end")):
            off = not off
        elif not off:
            yield number, line


@EVERY_PAGE
def test_lines_are_short(page):
    """But for links, which can't be broken."""
    too_long = [(n, line) for n, line in prose(page) if len(line) > LONGEST and not re.fullmatch(r"\[.*\]: \S+", line)]
    assert too_long == []


@EVERY_PAGE
def test_words_are_plain(page):
    text = " ".join(line.strip() for _, line in prose(page))
    assert FORBIDDEN.findall(text) == []


def test_words_are_plain_in_code():
    found = {path: IN_CODE.findall(" ".join(path.read_text().split())) for path in CODE}
    assert {path: words for path, words in found.items() if words} == {}


@EVERY_PAGE
def test_paths_lead_somewhere(page):
    named = PATH.findall("\n".join(line for _, line in prose(page)))
    assert [one for one in named if not list(ROOT.glob(one.rstrip("/")))] == []


def test_the_glossary_has_each_term_once_and_in_order():
    terms = re.findall(r"^- \*\*(.*?)\*\*:", GLOSSARY.read_text(), re.MULTILINE)
    assert terms
    assert [one.lower() for one in terms] == sorted({one.lower() for one in terms})
