"""Faults of the request attribute reporter. They show with a configuration that has one."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reference_epp.deviations import FULL_DUPLEX, WITH_SERVED, fault
from reference_epp.names import DESTINATION, METADATA_NAMESPACE
from reference_epp.reporter.attributes import Attribute, Program, Reporter
from reference_epp.reporter.report import Report
from reference_epp.reporter.usage import UsageReader

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, ProcessingRequest, Struct

reporter_fault = functools.partial(fault, versions=WITH_SERVED, effect="warn", claims={"reporter": True})
"""They are tried with the suite's configuration, which the reference EPP's profile passes."""

# -- evaluation


@reporter_fault(
    "reporter-knows-only-the-total",
    breaks="RAR-EVAL-01",
    why="Of usage expressions see total_tokens alone.",
    also_breaks={"RAR-EVAL-05": "no other count is found", "RAR-OUT-01": "values of other counts are not reported"},
)
class KnowsOnlyTheTotal(Reporter):
    def evaluate(self, attribute: Attribute, program: Program, usage: Mapping[str, Any]) -> Any:
        return super().evaluate(attribute, program, {key: usage[key] for key in ("total_tokens",) if key in usage})


@reporter_fault(
    "reporter-ignores-the-condition",
    breaks="RAR-EVAL-02",
    why="The value is reported whatever the condition gives.",
)
class IgnoresTheCondition(Reporter):
    def wanted(self, attribute: Attribute, usage: Mapping[str, Any]) -> bool:
        return True


@reporter_fault(
    "reporter-takes-a-failed-condition-for-true",
    breaks="RAR-EVAL-02",
    why="A condition that fails, or gives no boolean, holds the value back as little as one that is true.",
)
class TakesAFailedConditionForTrue(Reporter):
    def wanted(self, attribute: Attribute, usage: Mapping[str, Any]) -> bool:
        return attribute.condition is None or self.evaluate(attribute, attribute.condition, usage) is not False


@reporter_fault(
    "reporter-rounds",
    breaks="RAR-EVAL-03",
    why="A fraction is rounded up instead of truncated.",
)
class Rounds(Reporter):
    def whole(self, value: Any) -> int | None:
        return super().whole(math.ceil(value) if isinstance(value, float) and math.isfinite(value) else value)


@reporter_fault(
    "reporter-floors",
    breaks="RAR-EVAL-03",
    why="A negative fraction is rounded down instead of truncated toward zero.",
)
class Floors(Reporter):
    def whole(self, value: Any) -> int | None:
        return super().whole(math.floor(value) if isinstance(value, float) and math.isfinite(value) else value)


@reporter_fault(
    "reporter-makes-numbers-of-text",
    breaks="RAR-EVAL-03",
    why="A result that is no number is reported as 1.",
)
class MakesNumbersOfText(Reporter):
    def whole(self, value: Any) -> int | None:
        return 1 if isinstance(value, (str, bool, list, dict)) else super().whole(value)


@reporter_fault(
    "reporter-ends-streams-whose-expression-fails",
    breaks="ENV-16",
    why="An expression or a condition that fails ends the stream with a gRPC error, before the response's last answer.",
    also_breaks={"ENV-06": "that may be the answer to trailers"},
    effect="fail",
)
class EndsStreamsWhoseExpressionFails(Reporter):
    def evaluate(self, attribute: Attribute, program: Program, usage: Mapping[str, Any]) -> Any:
        return program.execute({"usage": dict(usage)})


class ReadsOtherwise(Report):
    """Reads responses in another way."""

    reader_type: type[UsageReader]

    def begin(self, headers: HttpHeaders) -> UsageReader:
        values = {entry.key.lower(): entry.raw_value or entry.value.encode() for entry in headers.headers.headers}
        names = (":status", "content-type", "content-encoding")
        return self.reader_type(*(values.get(name, b"").decode("latin-1") for name in names))


def read_by(reader: type[UsageReader]) -> Callable[[type[ReadsOtherwise]], type[ReadsOtherwise]]:
    """Give the decorated class what reads its responses."""

    def give(cls: type[ReadsOtherwise]) -> type[ReadsOtherwise]:
        cls.reader_type = reader
        return cls

    return give


class LastEventOnly(UsageReader):
    def read_json(self, text: bytes) -> None:
        self._found = None
        super().read_json(text)

    def read_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._found = None
        super().read_line(line)


@reporter_fault(
    "reporter-reads-the-last-event-only",
    breaks="RAR-EVAL-05",
    why="Usage counts only in the last event of a stream, which is `[DONE]`.",
    also_breaks={"RAR-OUT-06": "also where trailers end the stream", "RAR-OUT-01": "the value is missing"},
)
@read_by(LastEventOnly)
class ReadsTheLastEventOnly(ReadsOtherwise):
    pass


class FirstUsage(UsageReader):
    def read_json(self, text: bytes) -> None:
        if self._found is None:
            super().read_json(text)


@reporter_fault(
    "reporter-takes-the-first-usage",
    breaks="RAR-EVAL-05",
    why="Of several events with usage the first counts, although each counts the tokens so far.",
)
@read_by(FirstUsage)
class TakesTheFirstUsage(ReadsOtherwise):
    pass


class EachPieceAlone(UsageReader):
    def feed(self, piece: bytes) -> None:
        self._data.clear()
        self._held.clear()
        super().feed(piece)


@reporter_fault(
    "reporter-reads-each-piece-alone",
    breaks="RAR-EVAL-05",
    why="Each message of the body is read by itself, so that usage which is split over two is lost.",
    also_breaks={
        "RAR-OUT-01": "so is that of any response in several pieces",
        "RAR-OUT-03": "so is that of a long response",
    },
)
@read_by(EachPieceAlone)
class ReadsEachPieceAlone(ReadsOtherwise):
    pass


class MissingIsZero(UsageReader):
    def usage(self) -> Mapping[str, Any] | None:
        found = super().usage()
        zeros = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0.0)
        return zeros if found is None and not self._useless else found


@reporter_fault(
    "reporter-takes-missing-usage-for-zero",
    breaks="RAR-EVAL-06",
    why="A response without usage reports as if all counts were 0.",
    also_breaks={"RAR-EVAL-08": "so does broken JSON"},
)
@read_by(MissingIsZero)
class TakesMissingUsageForZero(ReadsOtherwise):
    pass


class AnyStatus(UsageReader):
    def succeeded(self, status: str) -> bool:
        return True


@reporter_fault(
    "reporter-reports-errors",
    breaks="RAR-EVAL-07",
    why="The usage in a 4xx or 5xx response is reported.",
)
@read_by(AnyStatus)
class ReportsErrors(ReadsOtherwise):
    pass


class AnyBody(UsageReader):
    def __init__(self, status: str, content_type: str, content_encoding: str) -> None:
        super().__init__(status, "", content_encoding)
        self.length = 0.0

    def feed(self, piece: bytes) -> None:
        self.length += len(piece)
        super().feed(piece)

    def usage(self) -> Mapping[str, Any] | None:
        estimate = math.ceil(self.length / 4)
        made = {"prompt_tokens": 0.0, "completion_tokens": estimate * 1.0, "total_tokens": estimate * 1.0}
        return super().usage() or made


@reporter_fault(
    "reporter-estimates-other-bodies",
    breaks="RAR-EVAL-08",
    why="Where a body is not JSON with usage, the number of its tokens is estimated from its length.",
    also_breaks={
        "RAR-EVAL-05": "events are no JSON either",
        "RAR-EVAL-06": "so it is for JSON without usage",
        "RAR-EVAL-07": "so it is for errors",
        "RAR-OUT-01": "so it is for streams",
        "RAR-OUT-06": "so it is for streams that trailers end",
    },
)
@read_by(AnyBody)
class EstimatesOtherBodies(ReadsOtherwise):
    pass


# -- output


@reporter_fault(
    "reporter-computes-after-the-end",
    breaks="RAR-OUT-01",
    why="The values are computed when the last answer has left, and are never sent.",
    also_breaks={
        "RAR-CFG-04": "nothing is found in the default namespace",
        "RAR-EVAL-01": "no value is found",
        "RAR-EVAL-02": "nor where a condition holds",
        "RAR-EVAL-03": "nor of any type",
        "RAR-EVAL-05": "nor of any form of response",
        "RAR-OUT-03": "nor on the last chunk",
        "RAR-OUT-06": "nor with trailers",
    },
)
class ComputesAfterTheEnd(Report):
    def attach(self, actions: Sequence[Any]) -> None:
        list(self.values())


@reporter_fault(
    "reporter-sends-text",
    breaks="RAR-OUT-02",
    why="The value is a string_value.",
)
class SendsText(Report):
    def put(self, metadata: Struct, namespace: str, name: str, value: int) -> None:
        metadata.fields[namespace].struct_value.fields[name].string_value = str(value)


@reporter_fault(
    "reporter-on-the-first-chunk",
    breaks="RAR-OUT-03",
    why="A JSON response is held until its end and answered in several chunks; the first of them carries the value.",
    also_breaks={"RAR-OUT-01": "the answer with the end of stream has none"},
    modes=FULL_DUPLEX,
)
class OnTheFirstChunk(Report):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter)
        self.held: list[Any] = []

    def follow(self, message: ProcessingRequest, actions: Sequence[Any]) -> None:
        assert isinstance(actions, list)
        if self.reader is not None and not self.reader.events:
            whole = message.HasField("response_trailers") or message.response_body.end_of_stream
            self.held += actions
            actions[:] = self.held if whole else []
        super().follow(message, actions)

    def attach(self, actions: Sequence[Any]) -> None:
        super().attach(actions[:1])


@reporter_fault(
    "reporter-overwrites-the-destination",
    breaks="RAR-OUT-05",
    why="Beside the value there is a destination, and it is another one.",
    also_breaks={"EPP-DEST-08": "another destination comes after the request was released"},
)
class OverwritesTheDestination(Report):
    def put(self, metadata: Struct, namespace: str, name: str, value: int) -> None:
        super().put(metadata, namespace, name, value)
        metadata.fields[METADATA_NAMESPACE].struct_value.fields[DESTINATION].string_value = "192.0.2.1:8000"


@reporter_fault(
    "reporter-loses-trailers",
    breaks="RAR-OUT-06",
    why="Where trailers end the response, the value is never sent.",
    modes=FULL_DUPLEX,
)
class LosesTrailers(Report):
    def trailers(self, actions: Sequence[Any]) -> None:
        self.reader = None
