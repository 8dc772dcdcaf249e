"""Transcripts in files: one exchange a line, in the form of `conformance.evidence.episode.to_json`.

What the tap writes can be judged again offline, and so can the evidence of a report (packed).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase, FileIO
from itertools import pairwise
from pathlib import Path
from typing import IO

from conformance.errors import UsageError
from conformance.evidence.blocks import BlockReader
from conformance.evidence.episode import Context, Episode, from_json, to_json
from conformance.evidence.packing import PACKING_ERRORS, is_packed, unpacked
from conformance.requirements.schema import VERSIONS
from ext_proc.relay import RecordingEnded

__all__ = ["Damage", "RecordingEnded", "Transcript", "TranscriptWriter", "read"]
# RecordingEnded: importing it makes its events known to the one who reads a record.

MAX_LINE = 256 * 1024 * 1024
"""Bytes of the longest line that is read: files may come from strangers."""


class TranscriptWriter:
    """Appends transcripts to a file until it has `limit` bytes. Raises `OSError`.

    A file that was moved away, removed or emptied meanwhile, as by `logrotate`, is begun again.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.full = False
        """The limit is reached: nothing more is written until the file is another one."""
        self._limit = limit
        self._file: FileIO | None = None
        self._size = 0
        self._open()

    def write(self, episode: Episode, context: Context, *, reason: str = "ended", note: str = "") -> None:
        """Append an exchange; `reason` and `note` say how its record ended, where that is not with its stream."""
        body = to_json(episode, context)
        if reason != "ended":
            body["record"] = {"ended": reason, **({"note": note} if note else {})}
        line = json.dumps(body, separators=(",", ":")).encode() + b"\n"
        file = self._current()
        self.full = self.full or self._size + len(line) > self._limit
        if not self.full:
            self._append(file, line)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _current(self) -> FileIO:
        """The file that has the name now."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            there = None
        if self._file is not None and there is not None and os.path.samestat(there, os.fstat(self._file.fileno())):
            if there.st_size < self._size:
                self._size, self.full = there.st_size, False
            return self._file
        self.close()
        return self._open()

    def _append(self, file: FileIO, line: bytes) -> None:
        """Append all of it, or nothing: a full disk takes the beginning."""
        written = 0
        try:
            while written < len(line):
                written += file.write(line[written:])
        except OSError:
            with contextlib.suppress(OSError):
                if os.fstat(file.fileno()).st_size == self._size + written:  # nothing else writes there
                    file.truncate(self._size)
                    written = 0
            raise
        finally:
            self._size += written

    def _open(self) -> FileIO:
        file = self.path.open("ab", buffering=0)
        self._size, self.full = file.tell(), False
        if self._size and not _ends_a_line(self.path):  # of a tap that was killed: what follows is a line by itself
            self._append(file, b"\n")
        self._file = file
        return file


def _ends_a_line(path: Path) -> bool:
    if not path.is_file():
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One exchange of a file, and what it was judged by."""

    line: int
    episode: Episode
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A line that is no transcript. `harmless`: the last one, cut short, as of a tap that was killed."""

    line: int
    what: str
    harmless: bool


def read(path: Path) -> Iterator[Transcript | Damage]:
    """The transcripts of a file, one at a time, with whatever is wrong in between.

    Raises `UsageError` if the file can't be read at all.
    """
    number, blocks = 0, BlockReader()
    try:
        with _open(path) as file:
            while raw := file.readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE:
                    yield Damage(line=number, what=f"longer than {MAX_LINE} bytes", harmless=False)
                    return
                if raw.strip() and (found := _line(number, raw, blocks)) is not None:
                    yield found
    except PACKING_ERRORS as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        if not number:
            raise UsageError(f"{path}: {reason}", hint="name a file that `tap --record` or a run wrote") from None
        yield Damage(line=number + 1, what=reason, harmless=False)


def _open(path: Path) -> IO[bytes] | BufferedIOBase:
    if path.exists() and not path.is_file() and not path.is_dir():  # opening a pipe would wait for a writer
        raise UsageError(f"{path}: not a regular file", hint="write to a file first, and name that")
    return unpacked(path) if is_packed(path) else path.open("rb")


def _line(number: int, raw: bytes, blocks: BlockReader) -> Transcript | Damage | None:
    """What a line holds; None for a block of bytes that later lines of evidence refer to."""
    try:
        body = json.loads(raw)
        if not isinstance(body, dict):
            return Damage(line=number, what="not a JSON object", harmless=False)
        if "block" in body:
            blocks.add(body)
            return None
        blocks.begin()
        episode, context = from_json(body, blocks.unpack)
        if context.version not in VERSIONS:
            raise ValueError(f"the protocol version {context.version!r} is not known")
        if not episode.entries:
            raise ValueError("nothing happens in it")
        if any(one.seq >= other.seq for one, other in pairwise(episode.entries)):
            raise ValueError("its entries are not in the order of their numbers (seq)")
    except (ValueError, AttributeError, RecursionError) as problem:
        cut_short = number > 1 and raw.startswith(b'{"') and not raw.endswith(b"\n")
        return Damage(line=number, what=str(problem).splitlines()[0][:200], harmless=cut_short)
    return Transcript(line=number, episode=episode, context=context)
