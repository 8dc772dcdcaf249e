"""The answer of a verification: one step per question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Answer = Literal["pass", "fail", "unknown"]

PROVES = (
    "This proves that the report is complete and follows from its evidence. It can't prove where the evidence comes "
    "from: that it was this target, on this day, under this name. `report reproduce` runs the target again."
)
MOST = 12
"""Details kept per step; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationStep:
    """One question with its answer. `text` says what was found, `details` where."""

    name: str
    answer: Answer
    text: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All steps, in order. `notes` are what a reader should know of a report that passes."""

    steps: tuple[VerificationStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """`fail` if a step failed, else `unknown` if one is unknown."""
        answers = {step.answer for step in self.steps}
        return "fail" if "fail" in answers else "unknown" if "unknown" in answers else "pass"

    @property
    def proves(self) -> str:
        """What the answer proves: only a report whose every step passed follows from its evidence."""
        match self.answer:
            case "pass":
                return PROVES
            case "fail":
                return "The report can't be trusted as it is: see the steps that failed."
            case _:
                return "This proves nothing yet: see the steps that could not be checked."

    def step(self, name: str) -> VerificationStep:
        """The step of that name. Raises KeyError."""
        return {step.name: step for step in self.steps}[name]


def answered(name: str, problems: Iterable[str], good: str, bad: str) -> VerificationStep:
    """A step that passes if there are no problems."""
    found = list(dict.fromkeys(problems))
    if not found:
        return VerificationStep(name=name, answer="pass", text=good)
    more = (f"… and {len(found) - MOST} more",) if len(found) > MOST else ()
    return VerificationStep(name=name, answer="fail", text=bad, details=(*found[:MOST], *more))


def unknown(name: str, text: str, details: tuple[str, ...] = ()) -> VerificationStep:
    """A step that can't be taken."""
    return VerificationStep(name=name, answer="unknown", text=text, details=details)


def short(value: object) -> str:
    """A value in at most 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
