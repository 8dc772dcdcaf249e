"""Faults of a page: changes of its text."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator

from fake_modelserver.engines.families import line
from fake_modelserver.faults.fault import Fault
from fake_modelserver.faults.kinds import FaultType

GARBAGE = b"<html>\n{{{ this is not the Prometheus text format \x00\xff\n} 1 2 3 4\n"
"""The body of the fault `garbage`: neither text format nor UTF-8."""

Names = frozenset[str]


def damaged(page: bytes, fault: Fault, names: Names) -> bytes:
    """`page` with `fault`. `names` are the families that it befalls."""
    if fault.type in _BYTES:
        return _BYTES[fault.type](page, fault)
    lines = page.decode().splitlines()
    changed = list(_LINES[fault.type](lines, fault, names))
    return ("\n".join(changed) + "\n").encode() if changed else b""


_SAMPLE = re.compile(rb"^[^#\s{]+(?:\{.*\})?(?= )", re.MULTILINE)
"""A sample up to its value."""


def _half(page: bytes, fault: Fault) -> bytes:
    """The page up to a sample without its value: who reads lines finds nothing odd in half a comment."""
    at = round(len(page) * fault["share"])
    ends = [one.end() for one in _SAMPLE.finditer(page)]
    return page[: next((end for end in ends if end >= at), ends[-1] if ends else at)]


_BYTES: dict[FaultType, Callable[[bytes, Fault], bytes]] = {
    FaultType.EMPTY: lambda _, __: b"",
    FaultType.GARBAGE: lambda _, __: GARBAGE,
    FaultType.HALF: _half,
    FaultType.NO_NEWLINE: lambda page, _: page.removesuffix(b"\n"),
    FaultType.CRLF: lambda page, _: page.replace(b"\n", b"\r\n"),
}


def _family(text: str) -> str:
    """The family that a line is of: a header names it, a sample has it as the name up to its labels."""
    if text.startswith("# "):
        return text.split(" ", 3)[2] if text.count(" ") > 1 else ""
    return text.partition("{")[0].partition(" ")[0]


def _is_sample(text: str) -> bool:
    return not text.startswith("#")


def _with_value(text: str, value: str) -> str:
    return f"{text.rpartition(' ')[0]} {value}"


def _no_samples(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    every = not fault["families"]
    return (text for text in lines if not (_is_sample(text) and (every or _family(text) in names)))


def _value(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    for text in lines:
        yield _with_value(text, fault["value"]) if _is_sample(text) and _family(text) in names else text


def _type(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    for text in lines:
        if not (text.startswith("# TYPE ") and _family(text) in names):
            yield text
        elif fault["type"]:
            yield f"# TYPE {_family(text)} {fault['type']}"


def _missing(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    if not fault["families"]:
        return iter(())
    return (text for text in lines if _family(text) not in names)


def _renamed(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    for text in lines:
        name = _family(text)
        yield text.replace(name, name + fault["suffix"], 1) if name in names else text


def _duplicate(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    for text in lines:
        yield text
        if _is_sample(text) and _family(text) in names:
            yield _with_value(text, fault["value"]) if fault["value"] else text


def _second_header(lines: Iterable[str], _: Fault, names: Names) -> Iterator[str]:
    for name, group in itertools.groupby(lines, _family):
        found = list(group)
        yield from found
        if name in names:
            yield from (text for text in found if not _is_sample(text))


def _stale_series(lines: Iterable[str], fault: Fault, names: Names) -> Iterator[str]:
    first = time.time() + fault["ahead"] if fault["ahead"] else 1_700_000_000.0
    for text in lines:
        yield text
        if text.startswith("# TYPE ") and _family(text) in names:
            for number in range(fault["series"]):
                labels = {"max_lora": "4", "running_lora_adapters": f"gone-{number}", "waiting_lora_adapters": ""}
                yield line(_family(text), labels, first + number / 1000)


_LINES: dict[FaultType, Callable[[Iterable[str], Fault, Names], Iterator[str]]] = {
    FaultType.NO_SAMPLES: _no_samples,
    FaultType.VALUE: _value,
    FaultType.TYPE: _type,
    FaultType.MISSING: _missing,
    FaultType.RENAMED: _renamed,
    FaultType.DUPLICATE: _duplicate,
    FaultType.SECOND_HEADER: _second_header,
    FaultType.STALE_SERIES: _stale_series,
    FaultType.LINES: lambda lines, fault, _: iter([*lines, *fault["text"].splitlines()]),
}
