"""`evidence.ndjson.gz`: one line per judged episode, in the order of judging, in the form of `evidence.episode`.

    with EvidenceWriter(path) as evidence:
        evidence.add(result.id, episode, context)
    evidence.reference("1.0.0", result.id)     # what that result of the report refers to

All bytes of all messages are kept, as bodies are synthetic and compress well; what a runner limits per episode, it
records as truncated, with size and digest. Same episodes, same bytes: the gzip header has no time and no name.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from conformance.errors import UsageError
from conformance.evidence.episode import Context, Episode, from_json, to_json
from conformance.report.document.blocks import EvidenceFile, EvidenceRef
from ext_proc import record

MAX_LINE_BYTES = 256 * 1024 * 1024
MAX_TOTAL_BYTES = 4 * 1024 * 1024 * 1024
"""Bounds of what a reader unpacks: evidence may come from strangers."""

PIECE = 128 * 1024
"""Bytes of a line that are packed at a time, or the next entry if it is longer."""


class EvidenceError(UsageError):
    """A file is not evidence that can be read."""

    code = "usage.evidence"


class EvidenceWriter:
    """Writes evidence as it comes; holds digests only. Not thread-safe: the handler of the engine's events owns it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0, compresslevel=3)
        self._whole = hashlib.sha256()
        self._bytes = 0
        self._episodes = 0
        self._references: dict[tuple[str, str], EvidenceRef] = {}

    def add(self, result: str, episode: Episode, context: Context) -> EvidenceRef:
        """Append the episode of the result with the id `result`, with what it was judged by.

        Results are told apart by version and id, as ids of episodes need not be unique in a run. A result's later
        episode (a rerun) replaces the reference to its earlier one; both stay in the file.
        """
        digest = hashlib.sha256()
        for piece in _pieces(episode, context):
            self._gzip.write(piece)
            self._whole.update(piece)
            self._bytes += len(piece)
            digest.update(piece.removesuffix(b"\n"))
        self._episodes += 1
        reference = EvidenceRef(episode=episode.id, sha256=digest.hexdigest())
        self._references[context.version, result] = reference
        return reference

    def reference(self, version: str, result: str) -> EvidenceRef | None:
        """Where the episode of a version's result is; None if none was added."""
        return self._references.get((version, result))

    def summary(self) -> EvidenceFile:
        """The file as a report names it."""
        return EvidenceFile(
            file=self.path.name, episodes=self._episodes, bytes=self._bytes, sha256=self._whole.hexdigest()
        )

    def close(self) -> None:
        """Finish the file; what was added is readable then. Closing again does nothing."""
        self._gzip.close()
        self._file.close()

    def __enter__(self) -> EvidenceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _pieces(episode: Episode, context: Context) -> Iterator[bytes]:
    """The line of an episode in pieces, as a whole is large: `to_json` of it, with its entries put in one by one."""
    empty = to_json(Episode(id=episode.id, entries=()), context)
    waiting, size = [_dumps(empty).removesuffix(b"]}")], 0
    for number, entry in enumerate(episode.entries):
        if number:
            waiting.append(b",")
        waiting.append(_dumps(record.to_json(entry)))
        size += len(waiting[-1])
        if size > PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join([*waiting, b"]}\n"])


_dump_json = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants")).dump_json


def _dumps(value: dict[str, Any]) -> bytes:
    try:
        return _dump_json(value)  # a third of what `json` takes, for hundreds of megabytes of messages a run
    except ValueError:  # text that is not valid Unicode
        return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLine:
    """One episode as it stands in the file."""

    number: int
    raw: bytes

    @property
    def sha256(self) -> str:
        """The digest that a report refers to."""
        return hashlib.sha256(self.raw).hexdigest()

    def read(self) -> tuple[Episode, Context]:
        """The episode and its context. Raises `EvidenceError`."""
        try:
            return from_json(json.loads(self.raw))
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise EvidenceError(f"line {self.number} of the evidence is no episode: {problem}") from problem


def read_evidence(path: Path) -> Iterator[EvidenceLine]:
    """The lines of a file, one at a time. Raises `EvidenceError` where it is no gzip, is cut short or is too large."""
    total = number = 0
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number, total = number + 1, total + len(line)
                if len(line) > MAX_LINE_BYTES or total > MAX_TOTAL_BYTES:
                    raise EvidenceError(f"{path}: larger than evidence can be, at line {number}")
                yield EvidenceLine(number=number, raw=line.removesuffix(b"\n"))
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise EvidenceError(f"{path}: {reason} (after {number} episodes)") from problem


def episodes(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Episode]]:
    """The episodes whose lines have the digests `wanted`, each with its digest. Reads no further than the last."""
    missing = set(wanted)
    lines = read_evidence(path)
    while missing and (line := next(lines, None)) is not None:
        if (sha256 := line.sha256) in missing:
            missing.discard(sha256)
            yield sha256, line.read()[0]
