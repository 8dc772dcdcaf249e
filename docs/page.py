"""The Markdown of generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make docs`. Change what it was written from instead. -->"


def page(title: str, *parts: str) -> str:
    """A page of Markdown."""
    return "\n\n".join((f"# {title}", NOTE, *(part for part in parts if part))) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    line = " ".join(text.split())
    return re.sub(r"(?<!\\)\|", r"\\|", line)
