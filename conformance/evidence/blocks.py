"""Long byte strings in evidence: each distinct block is stored once, by its digest, and what repeats by its recipe.

A value of more than `INLINE` bytes is written as `{"parts": [part, …]}`. A part is

    "text", {"latin1": …}, {"b64": …}  the bytes themselves
    {"sha256": …}                      a block; its line, {"block": sha256, "data": …}, comes before it in the file
    {"repeat": …, "size": n}           the first n bytes of an endless repetition: the filler of generated bodies

Reading is bounded, as evidence comes from strangers: a recipe of few bytes may ask for terabytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any

from ext_proc.record_json import plain_bytes

INLINE = 1024
"""Bytes up to which a value stands in its line."""

MAX_EPISODE = 96 * 1024 * 1024
"""Bytes of the messages and bodies of one episode."""

MAX_BLOCK = 8 * 1024 * 1024
"""Bytes of one block: a reader holds its line."""

MAX_UNPACKED = 4 * 1024 * 1024 * 1024
"""Bytes of the messages and bodies of all episodes: reading them takes time, though no memory."""

MAX_BLOCKS = 64 * 1024 * 1024
"""Bytes of blocks in a file after which no episode adds more."""

_PERIOD = 128
"""Longest repetition that is looked for."""

_WINDOW = 64
_STRIDE = 64 * 1024


class BlockWriter:
    """Packs values. `lines` are the blocks that no line written before has; the one who writes them empties it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.bytes = 0
        """Size of all blocks."""
        self._known: set[str] = set()

    def pack(self, value: bytes) -> Any:
        """A value as it is written."""
        if len(value) <= INLINE:
            return _short(value)
        found = repetition(value)
        if found is None:
            return {"parts": self._literal(value)}
        start, end, period = found
        recipe = {"repeat": _short(value[start : start + period]), "size": end - start}
        return {"parts": [*self._literal(value[:start]), recipe, *self._literal(value[end:])]}

    def _literal(self, value: bytes) -> list[Any]:
        return [self._part(value[at : at + MAX_BLOCK]) for at in range(0, len(value), MAX_BLOCK)]

    def _part(self, value: bytes) -> Any:
        if len(value) <= INLINE:
            return _short(value)
        sha256 = hashlib.sha256(value).hexdigest()
        if sha256 not in self._known:
            self._known.add(sha256)
            self.bytes += len(value)
            self.lines.append({"block": sha256, "data": plain_bytes(value)})
        return {"sha256": sha256}


class BlockReader:
    """The blocks read so far; `used` are the digests that values asked for."""

    def __init__(self) -> None:
        self._blocks: dict[str, bytes] = {}
        self._bytes = 0
        self._room = MAX_EPISODE
        self._room_of_all = MAX_UNPACKED
        self.used: set[str] = set()

    @property
    def unused(self) -> tuple[str, ...]:
        """The digests of blocks that nothing asked for."""
        return tuple(name for name in self._blocks if name not in self.used)

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep the block of a line. Raises `ValueError` if its bytes are not those of its digest, or are too many."""
        if set(line) != {"block", "data"}:
            raise ValueError("a block has a digest and data, and nothing else")
        data = _bytes(line["data"])
        if hashlib.sha256(data).hexdigest() != line["block"]:
            raise ValueError(f"block {str(line['block'])[:80]} is not what its digest says")
        if line["block"] in self._blocks:
            raise ValueError(f"block {line['block']} is there twice")
        self._bytes += len(data)
        if self._bytes > MAX_BLOCKS + MAX_EPISODE:
            raise ValueError(f"more than {MAX_BLOCKS + MAX_EPISODE} bytes of blocks")
        self._blocks[line["block"]] = data

    def line(self, sha256: str) -> dict[str, Any]:
        """The line of a block, as it was written."""
        return {"block": sha256, "data": plain_bytes(self._blocks[sha256])}

    def begin(self) -> None:
        """A new episode begins, whose values may be long again."""
        self._room = MAX_EPISODE

    def unpack(self, written: Any) -> bytes:
        """A value that `BlockWriter.pack` wrote. Raises `ValueError` for anything else."""
        if not isinstance(written, dict) or "parts" not in written:
            return _bytes(written)
        if set(written) != {"parts"} or not isinstance(written["parts"], list):
            raise ValueError("a long value has a list of parts, and nothing else")
        return b"".join(self._part(part) for part in written["parts"])

    def _part(self, part: Any) -> bytes:
        match part:
            case {"sha256": str(sha256), **rest} if not rest:
                if sha256 not in self._blocks:
                    raise ValueError(f"block {sha256[:80]} does not come before it is needed")
                self.used.add(sha256)
                self._take(len(self._blocks[sha256]))
                return self._blocks[sha256]
            case {"repeat": pattern, "size": int(size), **rest} if not rest and type(size) is int:
                unit = _bytes(pattern)
                if not unit or size < 0:
                    raise ValueError("a repetition has something to repeat, and a size")
                self._take(size)
                return (unit * (size // len(unit) + 1))[:size]
            case _:
                data = _bytes(part)
                self._take(len(data))
                return data

    def _take(self, size: int) -> None:
        self._room -= size
        self._room_of_all -= size
        if self._room_of_all < 0:
            raise ValueError(f"more than {MAX_UNPACKED} bytes of messages and bodies in all")
        if self._room < 0:
            raise ValueError(f"an episode with more than {MAX_EPISODE} bytes of messages and bodies")


def _short(value: bytes) -> Any:
    """A short value. Not in base64: words that several messages have in common must stay the same to be packed well."""
    plain = plain_bytes(value)
    return plain if isinstance(plain, str) else {"latin1": value.decode("latin-1")}


def _bytes(written: Any) -> bytes:
    if isinstance(written, str):
        return written.encode("ascii")
    if isinstance(written, dict) and set(written) == {"latin1"} and isinstance(written["latin1"], str):
        return written["latin1"].encode("latin-1")
    if not isinstance(written, dict) or set(written) != {"b64"} or not isinstance(written["b64"], str):
        raise ValueError(f"neither text nor bytes: {str(written)[:80]}")
    try:
        return base64.b64decode(written["b64"], validate=True)
    except binascii.Error as problem:
        raise ValueError(f"no base64: {problem}") from None


def repetition(value: bytes) -> tuple[int, int, int] | None:
    """Start, end and period of the repetition in the middle of a value; None if nothing repeats there for long."""
    middle = len(value) // 2
    window = value[middle : middle + _WINDOW]
    period = value.find(window, middle + 1, middle + _PERIOD + _WINDOW) - middle
    if period <= 0:
        return None
    start, end = middle, middle + period
    step = _STRIDE
    while step:  # forwards: as long as each piece equals the one a period before it
        while end + step <= len(value) and value[end : end + step] == value[end - period : end + step - period]:
            end += step
        step //= 2
    step = _STRIDE
    while step:
        while step <= start and value[start - step : start] == value[start - step + period : start + period]:
            start -= step
        step //= 2
    return (start, end, period) if end - start > INLINE // 2 else None
