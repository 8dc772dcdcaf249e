"""Whether the gauges of model servers move the picks of an endpoint picker, as every form of the report says it."""

from __future__ import annotations

from conformance.outcome import GaugeFollowed
from conformance.report.document.model import Report

NAME = {"queue": "queue", "kv": "KV cache", "ranks": "other ranks"}
"""What showed the load, in words."""


def gauges(report: Report) -> tuple[GaugeFollowed, ...]:
    """What the run has shown, of the headline version; () where nothing was looked for."""
    return tuple(one for row in report.results_of(report.specification.version) for one in row.gauges)


def seen(one: GaugeFollowed) -> str:
    """What was seen: how many picks the busy pod got, and why nothing follows from it."""
    return f"{one.busy} of {one.picks} picks for the busy pod" + (f": {one.why}" if one.why else "")


def gauges_line(found: tuple[GaugeFollowed, ...]) -> str:
    """All of it on one line: `5 of 6 followed · not: vllm-0.8.5 (KV cache)`."""
    parts = [f"{sum(one.followed == 'yes' for one in found)} of {len(found)} followed"]
    for followed, head in (("no", "not"), ("unclear", "unclear")):
        by_engine: dict[str, list[str]] = {}
        for one in found:
            if one.followed == followed:
                by_engine.setdefault(one.engine, []).append(NAME[one.gauge])
        if by_engine:
            parts.append(f"{head}: " + ", ".join(f"{name} ({', '.join(own)})" for name, own in by_engine.items()))
    return " · ".join(parts)
