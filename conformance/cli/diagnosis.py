"""Answers to questions about the machine and about a target: for `doctor` and `profile check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from conformance.cli.console import out


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
        console.print(f"{symbol} {answer.name:10}", style=style, end="")
        console.print(answer.text)
        if answer.hint:
            console.print(f"{'':12}hint: {answer.hint}", style="dim")
        well &= answer.state != "bad"
    return well
