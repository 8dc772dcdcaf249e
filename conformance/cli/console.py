"""What the command line prints. Colours follow NO_COLOR, FORCE_COLOR and the terminal; no meaning hangs on them."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.cli.streams import Log, reader_is_gone
from conformance.errors import ConformanceError

WIDTH = 110
"""Longest line of a report where the width of the screen is not known."""

if TYPE_CHECKING:
    from rich.console import Console


def out() -> Console:
    """Where results go. A reader of them who goes away ends nothing: the exit code still says what came out."""
    return _lasting(to_stderr=False)


def err() -> Console:
    """Where progress and errors go. Neither a reader who goes away nor a full disk ends a run, which has a report to
    write."""
    return _lasting(to_stderr=True)


def _lasting(*, to_stderr: bool) -> Console:
    from rich.console import Console

    class Lasting(Console):
        def on_broken_pipe(self) -> None:
            reader_is_gone(sys.stderr if to_stderr else sys.stdout)

        def print(self, *objects: Any, **style: Any) -> None:
            try:
                super().print(*objects, **style)
            except OSError:
                if not to_stderr:
                    raise
                reader_is_gone(sys.stderr)

    stream: Any = Log("stderr" if to_stderr else "stdout")
    return Lasting(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def width_of(console: Console) -> int:
    """How wide a report is printed: as COLUMNS says, else as the terminal is, up to what reads well."""
    wished = os.environ.get("COLUMNS", "")
    if wished.isdigit() and int(wished):
        return int(wished)
    return min(console.width, WIDTH) if console.is_terminal else WIDTH


def without_colour() -> None:
    """No colours from here on."""
    os.environ["NO_COLOR"] = "1"
    os.environ.pop("FORCE_COLOR", None)


def is_live() -> bool:
    """Whether progress can be drawn in place: a terminal, and not one that a CI system pretends to be."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


def show_error(problem: ConformanceError) -> None:
    """An error of the suite: what is wrong, and what to do."""
    console = err()
    console.print("error:", problem.message, style="bold red")
    if problem.hint:
        console.print("  hint:", problem.hint)


def show_defect(problem: Exception) -> None:
    """An unexpected exception: a defect of the suite, never of the target."""
    console = err()
    last = traceback.extract_tb(problem.__traceback__)[-1:]
    where = f" in {last[0].name} ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    console.print(f"error: {type(problem).__name__}: {problem}{where}", style="bold red")
    console.print("  This is a defect of the suite, not of the target.")
    console.print("  hint: run it again with --debug, and report it with the traceback")


def print_json(value: Any) -> None:
    """A value as JSON on standard output, for other programs."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Rows under headings, each column as wide as it needs; the last one is as long as it is."""
    widths = [max(len(row[at]) for row in (columns, *rows)) for at in range(len(columns) - 1)]
    for row in (columns, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")
