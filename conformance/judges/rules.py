"""What judges need of the catalogue of requirements, so that they need not know the catalogue itself."""

from __future__ import annotations

from typing import Protocol


class Rule(Protocol):
    """What judges need of a requirement."""

    @property
    def conditional(self) -> bool:
        """Whether its condition may rightly never arise."""


class Rules(Protocol):
    """What judges need of the catalogue (`conformance.requirements.catalogue.Catalogue` is one)."""

    def effect(self, requirement_id: str, version: str, /) -> str | None:
        """`fail`, `warn` or `info`; None where the requirement does not apply."""

    def get(self, requirement_id: str, /) -> Rule:
        """The requirement itself."""
