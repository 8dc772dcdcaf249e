"""What a step of a scenario expects."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from conformance.evidence.reported import ATTRIBUTES
from conformance.strict_yaml import FileModel

_ANSWER = re.compile("endpoint|grpc-error|any|[1-5](?:xx|[0-9][0-9])")


class Expect(FileModel):
    """What must come back from the step's exchanges, beyond the rules that hold for every exchange."""

    answer: tuple[str, ...] | str | None = Field(
        None, description="any of: endpoint, an HTTP status, 4xx, 5xx, grpc-error, any"
    )
    within: tuple[str, ...] | None = Field(
        None, description="an endpoint is given, and all that are given are among these"
    )
    absent: tuple[str, ...] = Field((), description="none of these is given")
    status: tuple[int, ...] | int | None = Field(None, description="what the HTTP client gets")
    health: tuple[str, ...] | str | None = Field(None, description="statuses of the health check, or not-found")
    served_by: tuple[str, ...] | None = Field(
        None, description="role data-plane: one of these endpoints serves the request; empty: none gets it"
    )
    report: dict[str, int | float | tuple[int | float | None, ...] | None] = Field(
        {}, description="what the attributes of the suite are reported as: a number, null for not at all, or a choice"
    )
    starts: bool | None = Field(None, description="whether the target starts; left out: it is recorded")
    requirement: str | None = Field(None, description="what is broken otherwise; default: the first requirement named")

    @field_validator("report")
    @classmethod
    def _known(cls, report: dict[str, Any]) -> dict[str, Any]:
        for name in report:
            if name not in ATTRIBUTES:
                raise ValueError(f"there is no attribute {name!r}; there are {', '.join(ATTRIBUTES)}")
        return report

    @field_validator("answer")
    @classmethod
    def _an_answer(cls, answer: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        for kind in (answer,) if isinstance(answer, str) else answer or ():
            if not _ANSWER.fullmatch(kind):
                raise ValueError(f"no answer is {kind!r}; there are endpoint, statuses, 4xx, 5xx, grpc-error and any")
        return answer

    @property
    def answers(self) -> tuple[str, ...]:
        """The kinds of answer that are expected."""
        return (self.answer,) if isinstance(self.answer, str) else self.answer or ()

    @property
    def reported(self) -> dict[str, tuple[float | None, ...]]:
        """What each attribute may be reported as."""
        return {name: one if isinstance(one, tuple) else (one,) for name, one in self.report.items()}
