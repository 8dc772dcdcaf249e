"""Faults of the request attribute reporter. They show with a configuration that has one."""
# fmt: off

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import yaml

from ext_proc.messages import HttpBody, ProcessingRequest
from reference_epp.changes import changed, nothing
from reference_epp.deviations import FULL_DUPLEX, WITH_SERVED, fault
from reference_epp.names import DESTINATION, METADATA_NAMESPACE
from reference_epp.reporter.attributes import ExpressionError, Program, Reporter
from reference_epp.reporter.config import ConfigError, ConfigReader
from reference_epp.reporter.report import Report
from reference_epp.reporter.usage import UsageReader

reporter_fault = functools.partial(fault, versions=WITH_SERVED, effect="warn", claims={"reporter": True})
"""They are tried with the suite's configuration, which the reference EPP's profile passes."""

# -- configuration


class _Fails:
    """An expression that always fails."""

    def execute(self, _: dict[str, Any]) -> Any:
        """Raise an error."""
        raise ValueError("not compiled")


def _filling_in(what: str, field: str, default: str) -> type[ConfigReader]:
    """Gives a required field a default."""
    def act(up: Any, _: Any, node: Any, name: str, known: Any, required: tuple[str, ...]) -> Any:
        needed = tuple(one for one in required if (name, one) != (what, field))
        fields = up(node, name, known, needed)
        if name == what and field not in fields:
            made = yaml.ScalarNode("tag:yaml.org,2002:str", default, node.start_mark, node.end_mark)
            return {**fields, field: (node, made)}
        return fields

    return changed(ConfigReader, mapping=act)


def _compiled_late(up: Any, _: Any, text: str) -> Program:
    try:
        program: Program = up(text)
    except ExpressionError:
        return _Fails()
    return program


def _any_variable(up: Any, _: Any, node: Any, name: str) -> Program:
    try:
        program: Program = up(node, name)
    except ConfigError as problem:
        if name == "condition" and "there is no variable" in str(problem):
            return _Fails()
        raise
    return program


reporter_fault("reporter-takes-the-first-attribute", "RAR-CFG-01",
               "Of several attributes in one plugin the first is used, and the others are ignored.",
               changed(ConfigReader, only=lambda up, _, attributes, node: up(attributes[:1], node)))
reporter_fault("reporter-names-the-nameless", "RAR-CFG-02",
               "An attribute without key.name is reported under a name that nothing says.",
               _filling_in("key", "name", "attribute"))
reporter_fault("reporter-without-an-expression", "RAR-CFG-03",
               "An attribute without an expression is taken for the total of tokens.",
               _filling_in("an attribute", "expression", "usage.total_tokens"))
reporter_fault("reporter-in-a-namespace-of-its-name", "RAR-CFG-04",
               "Without a namespace the value is reported under `request-attribute-reporter`.",
               changed(ConfigReader, namespace="request-attribute-reporter"),
               also={"RAR-OUT-01": "it is not where it is looked for"})
reporter_fault("reporter-starts-with-wrong-cel", "RAR-CFG-05",
               "An expression that can't be compiled is found out only when it is evaluated.",
               changed(ConfigReader, compile=_compiled_late))
reporter_fault("reporter-knows-any-variable-in-a-condition", "RAR-CFG-05",
               "Only the expression's variables are checked; a condition with a wrong one never holds.",
               changed(ConfigReader, expression=_any_variable))

# -- evaluation


def _rounding(rounded: Callable[[float], int]) -> type[Reporter]:
    return changed(Reporter, whole=lambda up, _, value:
                   up(rounded(value) if isinstance(value, float) and math.isfinite(value) else value))


reporter_fault("reporter-knows-only-the-total", "RAR-EVAL-01",
               "Expressions see only total_tokens of the usage.",
               changed(Reporter, evaluate=lambda up, _, attribute, program, usage: up(
                   attribute, program, {key: usage[key] for key in ("total_tokens",) if key in usage})),
               also={"RAR-EVAL-05": "no other count is found",
                     "RAR-OUT-01": "values of other counts are not reported"})
reporter_fault("reporter-ignores-the-condition", "RAR-EVAL-02",
               "The value is reported whatever the condition gives.", changed(Reporter, wanted=lambda *_: True))
reporter_fault("reporter-takes-a-failed-condition-for-true", "RAR-EVAL-02",
               "A condition that fails, or gives no boolean, is taken for true.",
               changed(Reporter, wanted=lambda _, reporter, one, usage: one.condition is None
                       or reporter.evaluate(one, one.condition, usage) is not False))
reporter_fault("reporter-rounds", "RAR-EVAL-03",
               "A fraction is rounded up instead of truncated.", _rounding(math.ceil))
reporter_fault("reporter-floors", "RAR-EVAL-03",
               "A negative fraction is rounded down instead of truncated toward zero.", _rounding(math.floor))
reporter_fault("reporter-makes-numbers-of-text", "RAR-EVAL-03",
               "A result that is no number is reported as 1.",
               changed(Reporter, whole=lambda up, _, value:
                       1 if isinstance(value, (str, bool, list, dict)) else up(value)))
fault("reporter-ends-streams-whose-expression-fails", "ENV-16",
      "An expression or a condition that fails ends the stream with a gRPC error before the last answer.",
      changed(Reporter, evaluate=lambda _, __, ___, program, usage: program.execute({"usage": dict(usage)})),
      also={"ENV-06": "that may be the answer to trailers"}, versions=WITH_SERVED, claims={"reporter": True})

# -- reading responses


def _reading(reader: type[UsageReader]) -> type[Report]:
    """Reads responses by another reader."""
    return changed(Report, reader_type=reader)


class _LastEventOnly(UsageReader):
    def read_json(self, text: bytes) -> None:
        self._found = None
        super().read_json(text)

    def read_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._found = None
        super().read_line(line)


class _EachPieceAlone(UsageReader):
    def feed(self, piece: bytes) -> None:
        self._data.clear()
        self._held.clear()
        super().feed(piece)


class _MissingIsZero(UsageReader):
    def usage(self) -> Any:
        found = super().usage()
        zeros = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0.0)
        return zeros if found is None and not self._useless else found


class _AnyBody(UsageReader):
    def __init__(self, status: str, content_type: str, content_encoding: str) -> None:  # noqa: ARG002
        super().__init__(status, "", content_encoding)
        self.length = 0

    def feed(self, piece: bytes) -> None:
        self.length += len(piece)
        super().feed(piece)

    def usage(self) -> Any:
        tokens = float(math.ceil(self.length / 4))
        return super().usage() or {"prompt_tokens": 0.0, "completion_tokens": tokens, "total_tokens": tokens}


class _LastLineOfJson(UsageReader):
    def usage(self) -> Any:
        if not self.events:
            self._held[:] = self._held.rpartition(b"\n")[2]
        return super().usage()


class _LineFeedsOnly(UsageReader):
    def read_events(self) -> None:
        *lines, rest = bytes(self._held).split(b"\n")
        self._held[:] = rest
        for line in lines:
            self.read_line(line)


class _NullIsTheEnd(UsageReader):
    def find(self, value: dict[str, Any]) -> Any:
        usage = super().find(value)
        if self.events and usage is None and "usage" in value:
            self.give_up()
        return usage


reporter_fault("reporter-reads-the-last-event-only", "RAR-EVAL-05",
               "Usage counts only in the last event of a stream, which is `[DONE]`.", _reading(_LastEventOnly),
               also={"RAR-OUT-06": "also where trailers end the stream", "RAR-OUT-01": "the value is missing"})
reporter_fault("reporter-takes-the-first-usage", "RAR-EVAL-05",
               "The first of several events with usage counts, although each counts the tokens so far.",
               _reading(changed(UsageReader, read_json=lambda up, reader, text:
                                up(text) if reader.found is None else None)))
reporter_fault("reporter-reads-each-piece-alone", "RAR-EVAL-05",
               "Each message of the body is read by itself: usage that is split over two is lost.",
               _reading(_EachPieceAlone),
               also={"RAR-OUT-01": "so is that of any response in several pieces",
                     "RAR-OUT-03": "so is that of a long response"})
reporter_fault("reporter-reads-json-by-line", "RAR-EVAL-05",
               "JSON is read line by line, as events are: an indented response has no usage.",
               _reading(_LastLineOfJson))
reporter_fault("reporter-knows-line-feeds-only", "RAR-EVAL-05",
               "A line of a stream ends with LF: where it ends with CR LF no event does.", _reading(_LineFeedsOnly))
reporter_fault("reporter-stumbles-over-null-usage", "RAR-EVAL-05",
               "A stream is given up at `usage: null`, which many servers put into all events but the last.",
               _reading(_NullIsTheEnd))
reporter_fault("reporter-takes-missing-usage-for-zero", "RAR-EVAL-06",
               "A response without usage reports as if all counts were 0.", _reading(_MissingIsZero),
               also={"RAR-EVAL-08": "so does broken JSON"})
reporter_fault("reporter-reports-errors", "RAR-EVAL-07",
               "The usage in a 4xx or 5xx response is reported.",
               _reading(changed(UsageReader, succeeded=lambda *_: True)))
reporter_fault("reporter-estimates-other-bodies", "RAR-EVAL-08",
               "The tokens of a body that is not JSON with usage are estimated from its length.", _reading(_AnyBody),
               also={"RAR-EVAL-05": "events are no JSON either", "RAR-EVAL-06": "so it is for JSON without usage",
                     "RAR-EVAL-07": "so it is for errors", "RAR-OUT-01": "so it is for streams",
                     "RAR-OUT-06": "so it is for streams that trailers end"})

# -- output


def _as_text(_: Any, __: Any, metadata: Any, namespace: str, name: str, value: int) -> None:
    metadata.fields[namespace].struct_value.fields[name].string_value = str(value)


def _with_a_destination(up: Any, _: Any, metadata: Any, *value: Any) -> None:
    up(metadata, *value)
    metadata.fields[METADATA_NAMESPACE].struct_value.fields[DESTINATION].string_value = "192.0.2.1:8000"


def _without_the_last(up: Any, _: Any, message: Any, actions: Any) -> None:
    ends = message.HasField("response_body") and message.response_body.end_of_stream
    up(ProcessingRequest(response_body=HttpBody(end_of_stream=True)) if ends else message, actions)


reporter_fault("reporter-computes-after-the-end", "RAR-OUT-01",
               "The values are computed when the last answer has left, and are never sent.",
               changed(Report, attach=lambda _, report, __: [*report.values()]),
               also={"RAR-CFG-04": "nothing is found in the default namespace", "RAR-EVAL-01": "no value is found",
                     "RAR-EVAL-02": "nor where a condition holds", "RAR-EVAL-03": "nor of any type",
                     "RAR-EVAL-05": "nor of any form of response", "RAR-OUT-03": "nor on the last chunk",
                     "RAR-OUT-06": "nor with trailers"})
reporter_fault("reporter-folds-case", "RAR-OUT-01",
               "Namespace and name of a value are written in small letters, as names of headers are.",
               changed(Reporter, report=lambda up, _, usage: (
                   (namespace.lower(), name.lower(), value) for namespace, name, value in up(usage))))
reporter_fault("reporter-leaves-the-last-message-unread", "RAR-OUT-01",
               "The usage in the message with the end of stream is not read.",
               changed(Report, follow=_without_the_last), modes=FULL_DUPLEX)
reporter_fault("reporter-sends-text", "RAR-OUT-02", "The value is a string_value.", changed(Report, put=_as_text))
reporter_fault("reporter-overwrites-the-destination", "RAR-OUT-05",
               "Beside the value there is a destination, and it is another one.",
               changed(Report, put=_with_a_destination),
               also={"EPP-DEST-08": "another destination comes after the request was released"})
reporter_fault("reporter-loses-trailers", "RAR-OUT-06",
               "Where trailers end the response, the value is never sent.",
               changed(Report, trailers=nothing), modes=FULL_DUPLEX)


@reporter_fault("reporter-on-the-first-chunk", "RAR-OUT-03",
                "A JSON response is held and answered in several chunks; the first of them carries the value.",
                also={"RAR-OUT-01": "the answer with the end of stream has none"}, modes=FULL_DUPLEX)
class OnTheFirstChunk(Report):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter)
        self.held: list[Any] = []

    def follow(self, message: Any, actions: Any) -> None:
        if self.reader is not None and not self.reader.events:
            whole = message.HasField("response_trailers") or message.response_body.end_of_stream
            self.held += actions
            actions[:] = self.held if whole else []
        super().follow(message, actions)

    def attach(self, actions: Any) -> None:
        super().attach(actions[:1])
