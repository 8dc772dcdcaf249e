"""What faults make of a response."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fake_modelserver.faults.fault import Active, Fault
from fake_modelserver.faults.kinds import FaultType
from fake_modelserver.faults.streams import filter_for
from fake_modelserver.messages import Response, json_response
from fake_modelserver.toxics import Toxics

Refusal = Callable[[int, str], Response]
"""An error answer in the form of the pod's engine: status and message."""


def befall(
    response: Response, met: Sequence[Active], *, chance: random.Random, running: int, refusal: Refusal
) -> Response:
    """`response` with every fault that it has met but those of pages. `running` is how many requests run."""
    for active in met:
        fault = active.fault
        match fault.kind.stage:
            case "line":
                response = _on_line(response, active, chance, running)
            case "answer":
                response = response.then(lambda answer, fault=fault: _answer(answer, fault, refusal))  # type: ignore[misc]
            case "stream":
                response = response.then(lambda answer, fault=fault: _streamed(answer, fault))  # type: ignore[misc]
    return response


def _on_line(response: Response, active: Active, chance: random.Random, running: int) -> Response:
    fault = active.fault
    toxics = response.toxics or Toxics()
    match fault.type:
        case FaultType.LATENCY:
            late = fault["latency"] + chance.uniform(-1, 1) * fault["jitter"] + fault["per_running"] * running
            return response.then(lambda answer: replace(answer, delay=answer.delay + max(0.0, late / 1000)))
        case FaultType.RESET_PEER if not fault["timeout"]:
            return Response(reset=True)
        case FaultType.RESET_PEER:
            toxics = replace(toxics, reset_peer=fault["timeout"] / 1000)
        case FaultType.TIMEOUT:
            seconds = fault["timeout"] / 1000 or math.inf
            toxics = replace(toxics, timeout=seconds, timeout_bytes=fault["bytes"], healed=active.gone)
        case FaultType.LIMIT_DATA:
            toxics = replace(toxics, limit_data=fault["bytes"])
        case FaultType.BANDWIDTH:
            toxics = replace(toxics, bandwidth=fault["rate"] * 1000)
        case FaultType.SLICER:
            size, more = fault["average_size"], min(fault["size_variation"], fault["average_size"] - 1)
            toxics = replace(
                toxics,
                slices=(lambda: chance.randint(size - more, size + more)) if more else lambda: size,
                slice_delay=fault["delay"] / 1e6,
            )
        case FaultType.SLOW_CLOSE:
            toxics = replace(toxics, slow_close=fault["delay"] / 1000)
            closing = ((b"connection", b"close"),)
            return response.then(lambda answer: replace(answer, toxics=toxics, headers=(*answer.headers, *closing)))
    return response.then(lambda answer: replace(answer, toxics=toxics))


def _answer(response: Response, fault: Fault, refusal: Refusal) -> Response:
    kept: dict[str, Any] = {"delay": response.delay, "toxics": response.toxics}
    match fault.type:
        case FaultType.STATUS:
            return replace(refusal(fault["status"], "The server is out of order."), **kept)
        case FaultType.REDIRECT:
            return Response(status=307, headers=((b"location", fault["location"].encode()),), **kept)
        case FaultType.HTML:
            body = b"<!DOCTYPE html>\n<html><body><h1>It works!</h1></body></html>\n"
            return Response(headers=((b"content-type", b"text/html; charset=utf-8"),), body=body, **kept)
        case FaultType.JSON:
            return replace(json_response(200, []), **kept)
        case FaultType.CONTENT_TYPE:
            others = tuple((name, value) for name, value in response.headers if name != b"content-type")
            named = ((b"content-type", fault["type"].encode()),) if fault["type"] else ()
            return replace(response, headers=(*named, *others))
    chunks = itertools.repeat(response.body or b"data: {}\n\n")
    return Response(status=response.status, headers=response.headers, chunks=chunks, **kept)


def _streamed(response: Response, fault: Fault) -> Response:
    kind = next((value for name, value in response.headers if name == b"content-type"), b"")
    if not kind.startswith(b"text/event-stream"):
        return response
    return replace(response, filters=(*response.filters, filter_for(fault)))
