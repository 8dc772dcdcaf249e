"""The record of mutants that break nothing: they keep every rule of the protocol, each for a reason that is given."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

import pydantic

from conformance.mutation.mutant import Mutant
from conformance.strict_yaml import FileError, FileModel, load_located


class Equivalent(FileModel):
    """Mutants that break nothing. A key that is left out matches all."""

    module: str
    """The module's dotted name."""
    function: str
    """The qualified name of the function or class around; empty at the module's level."""
    operator: str | None = None
    before: str | None = None
    """The lines that it changes, white space collapsed."""
    after: str | None = None
    """What they become."""
    reason: Annotated[str, pydantic.Field(min_length=20)]

    def matches(self, mutant: Mutant) -> bool:
        """Whether this is said of the mutant."""
        return (
            (self.module, self.function) == (mutant.module, mutant.function)
            and self.operator in (None, mutant.operator)
            and self.before in (None, mutant.before)
            and self.after in (None, mutant.after)
        )


class EquivalentFile(FileModel):
    """The file."""

    equivalents: tuple[Equivalent, ...]


RECORDED = files(__package__) / "equivalents.yaml"


def load_equivalents(mutants: Sequence[Mutant], source: Traversable = RECORDED) -> tuple[Equivalent, ...]:
    """What is recorded. Raises `FileError` for a wrong file, and for an entry that matches none of all `mutants`."""
    file, document = load_located(source, EquivalentFile, name=source.name)
    by_place: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        by_place.setdefault((mutant.module, mutant.function), []).append(mutant)
    problems = [
        document.problem(
            ("equivalents", index),
            f"no mutant of {entry.module} {entry.function} is like this any more",
            "the source has changed: look whether it still holds, and write it as it is now, or remove it",
        )
        for index, entry in enumerate(file.equivalents)
        if not any(entry.matches(one) for one in by_place.get((entry.module, entry.function), ()))
    ]
    if problems:
        raise FileError(problems)
    return file.equivalents


def reason_for(mutant: Mutant, equivalents: Sequence[Equivalent]) -> str | None:
    """Why a mutant breaks nothing, if that is recorded."""
    return next((entry.reason for entry in equivalents if entry.matches(mutant)), None)
