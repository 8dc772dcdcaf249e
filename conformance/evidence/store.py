"""`evidence.ndjson.gz`: one line per judged episode, in the order of judging, in the form of `evidence.episode`.

    with EvidenceWriter(path) as evidence:
        evidence.add(result.id, episode, context)
    evidence.reference("1.0.0", result.id)     # what that result of the report refers to

Messages and bodies are kept whole, each distinct block of bytes once (`evidence.blocks`). Where a target sends so much
that the file would grow out of bounds, long values are cut to their beginning, and the line says `cut`: such an episode
can't be judged again. Same episodes, same bytes: the gzip header has no time and no name.

What is published is packed by xz (`extract`), which takes ten times as long and a third less room. A report refers to
the digests of lines, not of the packed file.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import lzma
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pydantic import ConfigDict, TypeAdapter

from conformance.errors import UsageError
from conformance.evidence.blocks import MAX_BLOCKS, MAX_EPISODE, BlockReader, BlockWriter
from conformance.evidence.episode import Context, Episode, from_json, to_json
from conformance.evidence.packing import PACKING_ERRORS, unpacked
from conformance.folder import Folder
from conformance.printable import plural, printable
from conformance.report.document.blocks import EvidenceFile
from ext_proc import record

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024
MAX_LINES = 100_000
MAX_VALUES = 1_000_000
"""Bounds of what a reader unpacks: evidence may come from strangers. Values are counted before any object is made:
each takes up to two hundred bytes, though it may be two in the file."""

KEPT = 512
"""Bytes that are kept of a long value where it is cut."""

LONG = 16 * 1024
"""Bytes beyond which a value is cut then."""

LEVEL = 6
"""How hard it is packed."""


class EvidenceError(UsageError):
    """A file is not evidence that can be read."""

    code = "usage.evidence"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(printable(message)[:2000], hint=hint)


class EvidenceWriter:
    """Writes evidence as it comes; holds digests only. Not thread-safe: the handler of the engine's events owns it."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        """`file`, a new file at `path`, is closed by its owner."""
        self.path = path
        self._owned = file is not None
        self._file = file or Folder.at(path.parent).create(path.name)
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0, compresslevel=LEVEL)
        self._whole = hashlib.sha256()
        self._bytes = 0
        self._episodes = 0
        self._references: dict[tuple[str, str], str] = {}
        self._blocks = BlockWriter()

    def add(self, result: str, episode: Episode, context: Context) -> str:
        """Append the episode of the result with the id `result`, with what it was judged by.

        Results are told apart by version and id, as ids of episodes need not be unique in a run. A result's later
        episode (a rerun) replaces the reference to its earlier one; both stay in the file.
        """
        cut = self._blocks.bytes > MAX_BLOCKS or _size(episode) > MAX_EPISODE
        body = to_json(_cut(episode) if cut else episode, context, self._blocks.pack)
        line = _dumps({**body, "cut": True} if cut else body)
        for block in self._blocks.lines:
            self._write(_dumps(block))
        self._blocks.lines.clear()
        self._write(line)
        self._episodes += 1
        reference = hashlib.sha256(line).hexdigest()
        self._references[context.version, result] = reference
        return reference

    def _write(self, line: bytes) -> None:
        whole = line + b"\n"
        self._gzip.write(whole)
        self._whole.update(whole)
        self._bytes += len(whole)

    def reference(self, version: str, result: str) -> str | None:
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
        if not self._owned:
            self._file.close()

    def __enter__(self) -> EvidenceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _size(episode: Episode) -> int:
    return sum(len(getattr(entry.event, name, b"")) for entry in episode.entries for name in ("raw", "body"))


def _cut(episode: Episode) -> Episode:
    """The episode without most of its long messages and bodies."""
    entries = []
    for entry in episode.entries:
        event = entry.event
        if isinstance(event, record.Message) and len(event.raw) > LONG:
            event = record.shortened(event, KEPT)
        elif len(getattr(event, "body", b"")) > LONG:
            event = dataclasses.replace(event, body=event.body[:KEPT])  # type: ignore[attr-defined,call-arg]
        entries.append(record.Entry(entry.seq, entry.t, event))
    return Episode(id=episode.id, entries=tuple(entries))


_dump_json = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants")).dump_json


def _dumps(value: dict[str, Any]) -> bytes:
    try:
        return _dump_json(value)  # a third of what `json` takes, for hundreds of megabytes of messages a run
    except ValueError:  # text that is not valid Unicode
        return json.dumps(value, separators=(",", ":")).encode()


def _loads(raw: bytes) -> Any:
    """A JSON value without repeated keys, for readers differ in which they take. Raises `ValueError`."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    return json.loads(raw, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLine:
    """One episode as it stands in the file. It can be read until the next line is taken, or later."""

    number: int
    raw: bytes
    blocks: BlockReader

    @property
    def sha256(self) -> str:
        """The digest that a report refers to."""
        return hashlib.sha256(self.raw).hexdigest()

    def read(self) -> tuple[Episode, Context]:
        """The episode and its context. Raises `EvidenceError`."""
        episode, context, _ = self.read_cut()
        return episode, context

    def read_cut(self) -> tuple[Episode, Context, bool]:
        """The episode, its context, and whether long values were cut. Raises `EvidenceError`."""
        try:
            body = _loads(self.raw)
            if not {"episode", "context", "entries"} <= set(body) <= {"episode", "context", "entries", "cut"}:
                raise ValueError("it has other keys than an episode")
            if body.get("cut", True) is not True:
                raise ValueError("`cut` is true, or is not there")
            self.blocks.begin()
            return *from_json(body, self.blocks.unpack), "cut" in body
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise EvidenceError(f"line {self.number} of the evidence is no episode: {problem}") from problem


class EvidenceReader:
    """Iterates over the episodes of a file, one at a time.

    Raises `EvidenceError` where it is neither gzip nor xz, is cut short, is too large, or has a block that is not what
    it says.
    `bytes` and `sha256` are of all lines read so far.
    """

    def __init__(self, path: Path) -> None:
        self.bytes = 0
        self.episodes = 0
        self.blocks = BlockReader()
        self._path = path
        self._whole = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of all lines."""
        return self._whole.hexdigest()

    def __iter__(self) -> Iterator[EvidenceLine]:
        number = 0
        try:
            with unpacked(self._path) as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    number, self.bytes = number + 1, self.bytes + len(line)
                    self._whole.update(line)
                    if len(line) > MAX_LINE_BYTES or self.bytes > MAX_TOTAL_BYTES or number > MAX_LINES:
                        raise EvidenceError(f"{self._path}: larger than evidence can be, at line {number}")
                    raw = line.removesuffix(b"\n")
                    if raw.startswith(b'{"block"'):
                        self._block(number, raw)
                        continue
                    self.episodes += 1
                    yield EvidenceLine(number=number, raw=raw, blocks=self.blocks)
        except PACKING_ERRORS as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise EvidenceError(f"{self._path}: {reason} (after {plural(self.episodes, 'episode')})") from problem

    def _block(self, number: int, raw: bytes) -> None:
        try:
            self.blocks.add(_loads(raw))
        except (ValueError, TypeError, RecursionError) as problem:
            raise EvidenceError(f"{self._path}: line {number}: {problem}") from problem


def read_evidence(path: Path) -> Iterator[EvidenceLine]:
    """The episodes of a file, one at a time. Raises as `EvidenceReader`."""
    return iter(EvidenceReader(path))


def episodes(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Episode]]:
    """The episodes whose lines have the digests `wanted`, each with its digest. Reads no further than the last."""
    missing = set(wanted)
    lines = read_evidence(path)
    while missing and (line := next(lines, None)) is not None:
        if (sha256 := line.sha256) in missing:
            missing.discard(sha256)
            yield sha256, line.read()[0]


def extract(path: Path, wanted: Collection[str], target: Path) -> EvidenceFile:
    """Write the lines with the digests `wanted` to `target`, as they are, with the blocks that they need, packed by xz.

    Raises `EvidenceError` if one is not there.
    """
    reader, missing = EvidenceReader(path), set(wanted)
    written, whole, size, episodes_written = set[str](), hashlib.sha256(), 0, 0
    with lzma.open(target, "wb", preset=LEVEL) as packed:
        for line in reader:
            if line.sha256 not in missing:
                continue
            missing.discard(line.sha256)
            reader.blocks.used.clear()
            line.read()
            new = [reader.blocks.line(name) for name in sorted(reader.blocks.used - written)]
            written |= reader.blocks.used
            episodes_written += 1
            for raw in (*map(_dumps, new), line.raw):
                packed.write(raw + b"\n")
                whole.update(raw + b"\n")
                size += len(raw) + 1
    if missing:
        raise EvidenceError(
            f"{path}: {plural(len(missing), 'episode is', 'episodes are')} not there", hint="`report verify` says more"
        )
    return EvidenceFile(file=target.name, episodes=episodes_written, bytes=size, sha256=whole.hexdigest())
