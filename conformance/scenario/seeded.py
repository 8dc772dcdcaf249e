"""What the random values of a scenario are drawn from: the run draws them, and `report verify` draws them again."""

from __future__ import annotations

from random import Random


def source_of(seed: int, scenario: str, mode: str, step: int, repeat: int) -> Random:
    """The source of one repeat of a step: the same whatever ran before, beside it, or elsewhere."""
    return Random(f"{seed} {scenario} {mode} {step} {repeat}")


def shared_source_of(seed: int, scenario: str) -> Random:
    """The source of what steps of a scenario share."""
    return Random(f"{seed} {scenario} same")
