"""Conforming variants of the request attribute reporter, and of what is in the metadata of responses."""
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reference_epp.deviations import FULL_DUPLEX, WITH_SERVED, variant
from reference_epp.reporter.attributes import ExpressionError, Program
from reference_epp.reporter.config import ConfigReader
from reference_epp.reporter.report import Report

CLAIMS = {"reporter": True}


@variant("reports-on-each-chunk",
         "Once usage is known each answer repeats the values, as one known implementation does.",
         versions=WITH_SERVED, claims=CLAIMS, noted={"RAR-OUT-04": "repeated"})
class ReportsOnEachChunk(Report):
    def piece(self, actions: Sequence[Any], *, last: bool) -> None:
        reader = self.reader
        if reader is not None and reader.events and not last and reader.found is not None:
            for action in actions:
                self.attach([action])
        super().piece(actions, last=last)


@variant("reports-before-trailers",
         "What trailers may end is reported with the last answers to the body, and not again with the trailers.",
         versions=WITH_SERVED, modes=FULL_DUPLEX, claims=CLAIMS)
class ReportsBeforeTrailers(Report):
    def piece(self, actions: Sequence[Any], *, last: bool) -> None:
        reader = self.reader
        if reader is not None and reader.events and reader.found is not None:
            self.attach(actions)
        super().piece(actions, last=last)

    def trailers(self, actions: Sequence[Any]) -> None:
        if self.reader is not None and self.reader.events:
            self.reader = None
        super().trailers(actions) if self.reader is not None else None


@variant("reports-no-zero",
         "Values of 0 and -1 are left out: the document does not say, and known implementations differ.",
         versions=WITH_SERVED, claims=CLAIMS, noted={"RAR-EVAL-04": "left out"})
class ReportsNoZero(Report):
    def values(self) -> Iterator[tuple[str, str, int]]:
        return (item for item in super().values() if item[2] not in (0, -1))


@variant("reporter-checks-result-types",
         "An expression that can only give text is refused at start; the document says that the result is an integer.",
         versions=WITH_SERVED, claims=CLAIMS, noted={"RAR-CFG-06": "does not start"})
class ChecksResultTypes(ConfigReader):
    def compile(self, text: str) -> Program:
        program = super().compile(text)
        if text.strip()[:1] in ("'", '"'):
            raise ExpressionError("the expression gives text, an integer is needed")
        return program
