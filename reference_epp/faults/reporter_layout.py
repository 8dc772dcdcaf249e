"""Faults of the request attribute reporter with responses that are laid out in another way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reference_epp.faults.reporter import ReadsOtherwise, read_by, reporter_fault
from reference_epp.reporter.usage import UsageReader


class LastLineOfJson(UsageReader):
    def usage(self) -> Mapping[str, Any] | None:
        if not self.events:
            self._held[:] = self._held.rpartition(b"\n")[2]
        return super().usage()


@reporter_fault(
    "reporter-reads-json-by-line",
    breaks="RAR-EVAL-05",
    why="A response that is JSON is read line by line, as events are, so that one that is indented has no usage.",
)
@read_by(LastLineOfJson)
class ReadsJsonByLine(ReadsOtherwise):
    pass


class LineFeedsOnly(UsageReader):
    def read_events(self) -> None:
        *lines, rest = bytes(self._held).split(b"\n")
        self._held[:] = rest
        for line in lines:
            self.read_line(line)


@reporter_fault(
    "reporter-knows-line-feeds-only",
    breaks="RAR-EVAL-05",
    why="A line of a stream ends with LF, so that where it ends with CR LF no event does.",
)
@read_by(LineFeedsOnly)
class KnowsLineFeedsOnly(ReadsOtherwise):
    pass


class NullIsTheEnd(UsageReader):
    def find(self, value: dict[str, Any]) -> Any:
        usage = super().find(value)
        if self.events and usage is None and "usage" in value:
            self.give_up()
        return usage


@reporter_fault(
    "reporter-stumbles-over-null-usage",
    breaks="RAR-EVAL-05",
    why="A stream is given up at an event with `usage: null`, which many servers put into all events but the last.",
)
@read_by(NullIsTheEnd)
class StumblesOverNullUsage(ReadsOtherwise):
    pass
