"""Answers to questions about the machine and about a target: for `doctor` and `profile check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from conformance.cli.console import out

_LABEL = len("model server")
"""Columns for names: the longest are those of a model server and its metrics."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One question. `state` `note` is worth knowing and needs no change; `bad` has a `hint` that says what to fix."""

    name: str
    state: Literal["good", "note", "bad"]
    text: str
    hint: str = ""


def show_answers(answers: Iterable[Diagnosis]) -> bool:
    """Print the answers as they come; True if none is bad."""
    console = out()
    styles = {"good": ("✓", "green"), "note": ("-", "yellow"), "bad": ("✗", "bold red")}
    well = True
    for answer in answers:
        symbol, style = styles[answer.state]
        console.print(f"{symbol} {answer.name:{_LABEL}} ", style=style, end="")
        console.print(answer.text)
        if answer.hint:
            console.print(f"{'':{_LABEL + 3}}hint: {answer.hint}", style="dim")
        well &= answer.state != "bad"
    return well
