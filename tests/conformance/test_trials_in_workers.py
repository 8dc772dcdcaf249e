"""Trials in several processes: what a busy machine left unjudged is tried again, at last with nothing beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.run.engine import EngineThread
from conformance.selftest.workers import AGAIN, try_each

pytestmark = pytest.mark.program


@dataclass(frozen=True)
class Subject:
    """One that is not judged while others are in hand (`shy`), or one that stays until that was tried in company."""

    name: str
    folder: Path
    shy: bool = False


@dataclass(frozen=True)
class Tried:
    """What came of it."""

    name: str
    trouble: tuple[str, ...] = ()


async def attempt(subject: Subject, _engine: EngineThread) -> Tried:
    mark = subject.folder / f"{subject.name}.running"
    mark.touch()
    try:
        if not subject.shy:
            while len([*subject.folder.glob("*.tried")]) < AGAIN:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return Tried(subject.name)
        count = len([*subject.folder.glob("*.tried")])
        while not (beside := _beside(subject)) and count < AGAIN:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (subject.folder / f"{count}.tried").touch()
        return Tried(subject.name, tuple(beside))
    finally:
        mark.unlink()


def _beside(subject: Subject) -> list[str]:
    return [path.stem for path in subject.folder.glob("*.running") if path.stem != subject.name]


def tried(subjects: Sequence[Subject]) -> dict[str, Tried]:
    return {one.name: one for one in try_each(subjects, attempt, lambda _: None, jobs=2)}


def test_an_unjudged_trial_is_finally_repeated_alone(tmp_path: Path) -> None:
    others = [Subject(f"other-{number}", tmp_path) for number in range(4)]
    assert tried([Subject("shy", tmp_path, shy=True), *others])["shy"] == Tried("shy")
    assert len([*tmp_path.glob("*.tried")]) == AGAIN + 1


def test_the_repetitions_of_an_unjudged_trial_are_limited(tmp_path: Path) -> None:
    (tmp_path / "always.running").touch()
    assert tried([Subject("shy", tmp_path, shy=True)])["shy"].trouble == ("always",)
    assert len([*tmp_path.glob("*.tried")]) == AGAIN + 1
