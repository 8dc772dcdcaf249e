"""A report as it may be shown: without characters that drive a terminal, break XML or begin a line of markup.

Every face renders from here, so that none has to think of it. Control and format characters become escapes; line ends
stay where a text may have several lines.
"""

from __future__ import annotations

from typing import Any

from conformance.printable import printable
from conformance.report.document.model import Report

_LINES = frozenset({"actual", "expected", "hint", "reason", "stopped", "text", "why", "statement", "reading", "note"})
"""Keys whose values may have several lines."""


def safe(report: Report) -> Report:
    """The report itself where there is nothing to escape."""
    plain = report.document()
    shown = cleaned(plain)
    return report if shown == plain else Report.of(shown)


def cleaned(value: Any, *, lines: bool = False) -> Any:
    """Plain data with the characters of its texts escaped; `lines`: whether texts may have several lines."""
    match value:
        case str():
            return "\n".join(map(printable, value.split("\n"))) if lines else printable(value)
        case dict():
            return {printable(name): cleaned(item, lines=name in _LINES) for name, item in value.items()}
        case list():
            return [cleaned(item, lines=lines) for item in value]
        case _:
            return value
