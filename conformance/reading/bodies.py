"""Whether a body is still the same: as bytes, as JSON values, as server-sent events with claimed rewrites.

`compare(sent, got, …)` classifies the difference. JSON numbers are compared exactly, so that a rewrite that goes
through floating point is seen.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from conformance.printable import plural


class Sameness(StrEnum):
    """How much of a body survived, best first."""

    BYTES = "equal bytes"
    VALUE = "equal as JSON"
    CLAIMED = "different at claimed paths only"
    CHANGED = "different as JSON, with nothing lost"
    LOST = "something is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result: how the two bodies compare, and in which words a reader is told."""

    sameness: Sameness
    difference: str = ""


BYTES = Comparison(sameness=Sameness.BYTES)

_LONG = 64
"""Characters of a text that is no name."""

_AROUND = 32
"""So many characters before and after one are all that an edit of what a text says hangs on."""


def compare(
    sent: bytes, got: bytes, *, claims: Sequence[str] = (), events: bool = False, opaque: bool = False
) -> Comparison:
    """`got` against `sent`.

    `claims` are JSON paths (`stream_options.include_usage`) that may differ. `events`: the body is an event stream, of
    which only the JSON of its `data` lines may differ, at claimed paths. `opaque`: it must be equal as bytes.
    """
    if sent == got:
        return BYTES
    if opaque or (events and not claims):
        return Comparison(sameness=Sameness.LOST, difference=first_difference(sent, got))
    return _compare_events(sent, got, claims) if events else _compare_json(sent, got, claims)


def unpacked(body: bytes, coding: bytes, most: int) -> bytes | None:
    """What a body in this content-encoding holds; None if that is not known, or is more than `most` bytes."""
    if coding.strip().lower() not in (b"gzip", b"x-gzip", b"deflate"):
        return None
    unpacking = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # either header
    try:
        plain = unpacking.decompress(body, most)
    except zlib.error:
        return None
    return plain if unpacking.eof and not unpacking.unused_data else None


def first_difference(sent: bytes, got: bytes) -> str:
    """Where two bodies begin to differ, in words."""
    shorter = min(len(sent), len(got))
    at = next((index for index in range(shorter) if sent[index] != got[index]), shorter)
    around = f"{sent[at : at + 24]!r} became {got[at : at + 24]!r}"
    return f"{plural(len(sent), 'byte')} became {len(got)}; from byte {at} on {around}"


def _compare_json(sent: bytes, got: bytes, claims: Sequence[str]) -> Comparison:
    try:
        before = _parse(sent)
    except (ValueError, RecursionError, ArithmeticError):
        return Comparison(sameness=Sameness.LOST, difference=first_difference(sent, got))
    try:
        after = _parse(got)
    except (ValueError, RecursionError, ArithmeticError):
        what = f"JSON became something else: {first_difference(sent, got)}"
        return Comparison(sameness=Sameness.LOST, difference=what)
    try:
        differences = list(_differences(before, after, ""))
    except RecursionError:
        return Comparison(sameness=Sameness.LOST, difference=first_difference(sent, got))
    if not differences:
        return Comparison(sameness=Sameness.VALUE, difference="serialized differently, equal as a value")
    unclaimed = [one for one in differences if not _claimed(one.path, claims)]
    shown = "; ".join(str(one) for one in (unclaimed or differences)[:5])
    if not unclaimed:
        return Comparison(sameness=Sameness.CLAIMED, difference=shown)
    lost = any(one.lost for one in unclaimed)
    return Comparison(sameness=Sameness.LOST if lost else Sameness.CHANGED, difference=shown)


def _compare_events(sent: bytes, got: bytes, claims: Sequence[str]) -> Comparison:
    before, after = sent.splitlines(keepends=True), got.splitlines(keepends=True)
    if len(before) != len(after):
        return Comparison(sameness=Sameness.LOST, difference=first_difference(sent, got))
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        if not (old.startswith(b"data:") and new.startswith(b"data:")):
            return Comparison(sameness=Sameness.LOST, difference=first_difference(old, new))
        found = _compare_json(old[5:], new[5:], claims)
        if found.sameness not in (Sameness.VALUE, Sameness.CLAIMED):
            return Comparison(sameness=Sameness.LOST, difference=found.difference)
    return Comparison(sameness=Sameness.CLAIMED, difference="events differ at claimed paths only")


class _Number(Decimal):
    """A JSON number with its exact value."""


def not_json(constant: str) -> Any:
    """For `parse_constant`: NaN and Infinity are Python's words, not JSON's. Raises `ValueError`."""
    raise ValueError(f"{constant} is no JSON")


def _parse(body: bytes) -> Any:
    return json.loads(body, parse_constant=not_json, parse_int=_Number, parse_float=_Number, object_pairs_hook=_members)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    path: str
    what: str
    lost: bool = False

    def __str__(self) -> str:
        return f"{self.path or 'the whole value'} {self.what}"


def _differences(before: Any, after: Any, path: str) -> Iterator[_Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            inner = f"{path}.{name}" if path else name
            if name not in after:
                yield _Difference(path=inner, what="is gone", lost=True)
            else:
                yield from _differences(value, after[name], inner)
        for name in after:
            if name not in before:
                yield _Difference(path=f"{path}.{name}" if path else name, what="is new")
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _differences(old, new, f"{path}.{index}" if path else str(index))
        if len(before) != len(after):
            what = f"has {len(after)} elements instead of {len(before)}"
            yield _Difference(path=path, what=what, lost=len(after) < len(before))
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        what = f"was {_show(before)}, is {_show(after)}"
        yield _Difference(
            path=path, what=what, lost=any(ask(before, after) for ask in (_gone, _garbled, _cut, _damaged))
        )


def _gone(before: Any, after: Any) -> bool:
    """Whether nothing stands where there was something: null, or an empty text, list or object."""
    return bool(before) and (after is None or after in ("", [], {}))


def _garbled(before: Any, after: Any) -> bool:
    """Whether characters outside of ASCII became U+FFFD, or are left out: what is left of a text decoded in pieces."""
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    kept, rest = after.replace("\ufffd", ""), iter(before)
    left_out = len(kept) < len(before) and all(character in rest for character in kept)
    return left_out and _ascii(kept) == _ascii(before)


def _cut(before: Any, after: Any) -> bool:
    """Whether a piece of a long text is left out and the rest is as it was, unless the piece is blank. Short texts may
    be names, of which one may begin another."""
    if not isinstance(before, str) or not isinstance(after, str) or len(before) < _LONG or len(after) >= len(before):
        return False
    begins = next((index for index, one in enumerate(after) if one != before[index]), len(after))
    ends = len(after) - begins
    return before.endswith(after[begins:]) and bool(before[begins : len(before) - ends].strip())


def _damaged(before: Any, after: Any) -> bool:
    """Whether a character is another, and the same one among the same others is as it was elsewhere in the text: an
    edit of what the text says changes both."""
    if not isinstance(before, str) or not isinstance(after, str) or len(before) != len(after):
        return False
    at = next(index for index, one in enumerate(after) if one != before[index])
    around = before[max(0, at - _AROUND) : at + _AROUND + 1]
    elsewhere = after.find(around)
    return len(around) > 2 * _AROUND and elsewhere >= 0 and before.startswith(around, elsewhere)


def _ascii(text: str) -> str:
    return "".join(filter(str.isascii, text))


def _show(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _claimed(path: str, claims: Sequence[str]) -> bool:
    return any(path == claim or path.startswith(claim + ".") for claim in claims)
