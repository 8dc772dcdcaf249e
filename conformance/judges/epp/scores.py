"""Scores of endpoints (EPP-DEST-12, `next`): they inform, so only their shape is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.destination import entries_of
from conformance.reading.endpoints import parse
from conformance.verdict import Finding
from ext_proc.messages import Value
from ext_proc.protocol import SCORES


@judge_of_exchange("EPP-DEST-12")
def scores(view: ExchangeView) -> Iterator[Finding]:
    """Where an answer has scores, they are a struct of endpoint to number in the namespace of the destination."""
    namespace = view.context.destination_namespace
    for message in view.stream.answers:
        for found, value in entries_of(message, SCORES):
            problem = _problem(value) if found == namespace else f"in {found or 'no namespace'}, not in {namespace}"
            if problem:
                expected = f"{namespace}: {{{SCORES}: {{<ip:port>: <number>, …}}}}"
                yield view.warn("EPP-DEST-12", expected, problem, at=message)
            else:
                yield passed("EPP-DEST-12")


def _problem(value: Value) -> str:
    if value.WhichOneof("kind") != "struct_value":
        return f"it is a {(value.WhichOneof('kind') or 'nothing').removesuffix('_value')}"
    for endpoint, score in sorted(value.struct_value.fields.items()):
        item = parse(endpoint)
        if item.canonical is None or item.padded:
            return f"{endpoint!r}: {item.problem or 'there are blanks around it'}"
        if score.WhichOneof("kind") != "number_value" or not math.isfinite(score.number_value):
            return f"the score of {endpoint} is no finite number"
    return ""
