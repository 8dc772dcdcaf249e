"""Trials of mutants in a file, a JSON object a line, so that a survey that was interrupted can be resumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pydantic

from conformance.errors import UsageError
from conformance.selftest.mutant_trial import MutantTrial

_TRIAL = pydantic.TypeAdapter(MutantTrial)


def noticed_before(path: Path) -> Mapping[str, MutantTrial]:
    """By mutant, the trials in the file that need no other: each was noticed. No file: none.

    Raises `UsageError` for a file with other lines.
    """
    trials: dict[str, MutantTrial] = {}
    try:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path}: can't be read: {problem}") from None
    for number, line in enumerate(lines, 1):
        try:
            trial = _TRIAL.validate_json(line)
        except pydantic.ValidationError as problem:
            said = problem.errors()[0]["msg"]
            raise UsageError(f"{path}:{number}: no trial of a mutant: {said}", hint="name another file") from None
        trials[trial.name] = trial
    return {name: trial for name, trial in trials.items() if trial.noticed}


def keep(path: Path, trial: MutantTrial) -> None:
    """Add a trial to the file. Raises `UsageError` if it can't be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(trial)) + "\n")
    except OSError as problem:
        raise UsageError(f"{path}: can't be written: {problem}") from None
