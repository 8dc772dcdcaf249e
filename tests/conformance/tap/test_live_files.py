"""Transcripts in files: written, read again, damaged."""

from __future__ import annotations

import gzip
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UsageError
from conformance.evidence.episode import Episode
from conformance.tap.files import Damage, Transcript, TranscriptWriter, read
from conformance.tap.judging import context
from ext_proc.record import Author, Message, Recorder, StreamEnded, StreamOpened

CONTEXT = context("1.0.0", deadline=3.0)


def an_episode(name: str, raw: bytes = b"\x00\xff") -> Episode:
    recorder, entries = Recorder(), []
    recorder.listen(entries.append)
    recorder.emit(StreamOpened(exchange=name, stream="s", connection=1))
    recorder.emit(Message(exchange=name, stream="s", author=Author.EPP, raw=raw))
    recorder.emit(StreamEnded(exchange=name, stream="s", author=None, how="lost", message="§"))
    return Episode(id=name, entries=tuple(entries))


def write(path: Path, *episodes: Episode, limit: int = 1 << 20) -> TranscriptWriter:
    writer = TranscriptWriter(path, limit)
    for one in episodes:
        writer.write(one, CONTEXT)
    writer.close()
    return writer


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_transcripts_are_read_as_written(tmp_path_factory, bodies: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("live") / "t.ndjson"
    episodes = [an_episode(f"e{number}", raw) for number, raw in enumerate(bodies)]
    write(path, *episodes)
    found = list(read(path))
    assert [one.episode for one in found if isinstance(one, Transcript)] == episodes
    assert all(one.context == CONTEXT for one in found)
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [one.episode for one in read(packed)] == episodes


def test_a_file_is_continued_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    a, b, c = (replace(an_episode("a"), id=name) for name in "abc")  # as long as each other
    write(path, a)
    size = path.stat().st_size
    assert not write(path, b, limit=2 * size).full
    assert write(path, c, limit=2 * size).full
    assert [one.episode.id for one in read(path)] == ["a", "b"]


@pytest.mark.parametrize("room", [0, 100])
def test_a_transcript_is_dropped_if_the_disk_is_full(tmp_path: Path, room: int) -> None:
    """Once there is room, the next one is whole, and what was said not to be written is not there."""
    path = tmp_path / "t.ndjson"
    writer = TranscriptWriter(path, 1 << 20)
    writer.write(an_episode("a"), CONTEXT)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limits[1]))
    try:
        for name in ("b", "c"):
            with pytest.raises(OSError, match="File too large"):
                writer.write(an_episode(name), CONTEXT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.write(an_episode("d"), CONTEXT)
    writer.close()
    assert [one.episode.id for one in read(path)] == ["a", "d"]


@pytest.mark.parametrize("rotation", ["moved", "removed", "emptied"])
def test_a_file_that_is_rotated_is_begun_again(tmp_path: Path, rotation: str) -> None:
    path, one = tmp_path / "traffic.ndjson", an_episode("a")
    write(path, one)
    size = path.stat().st_size
    writer = TranscriptWriter(path, size)
    for _ in range(2):
        writer.write(one, CONTEXT)
        assert (writer.full, path.stat().st_size) == (True, size)
        if rotation == "moved":
            path.rename(tmp_path / "traffic.1.ndjson")
        elif rotation == "removed":
            path.unlink()
        else:
            path.write_bytes(b"")
        writer.write(one, CONTEXT)
        assert (writer.full, path.stat().st_size) == (False, size)
    writer.close()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"garbage\n", "Expecting value"),
        (b"[]\n", "not a JSON object"),
        (b"{}\n", "not an episode: 'entries' is missing"),
        (b'{"episode":"x","context":{},"entries":[]}\n', "not an episode: context.version: Field required"),
        (b'{"episode":"x","context":{"version":"1","scenario":"s"},"entries":[{"seq":1}]}\n', "not an event"),
        (b'{"episode":"x","context":{"version":"9.9.9","scenario":"s"},"entries":[]}\n', "'9.9.9' is not known"),
        (b'{"episode":"x","context":{"version":"1.0.0","scenario":"s"},"entries":[]}\n', "nothing happens in it"),
        (
            b'{"episode":"x","context":{"version":"1.0.0","scenario":"s"},"entries":'
            b'[{"seq":1,"t":1' + b"0" * 400 + b',"kind":"stream-opened","stream":"s","connection":1}]}\n',
            "63 bits",
        ),
        (b"[" * 100_000 + b"\n", ""),
        (b"\xff\n", ""),
    ],
)
def test_lines_that_are_no_transcripts_are_told_and_passed_over(tmp_path: Path, line: bytes, what: str) -> None:
    path = tmp_path / "t.ndjson"
    write(path, an_episode("a"))
    path.write_bytes(path.read_bytes() + b"\n" + line + path.read_bytes())
    first, bad, last = read(path)
    assert isinstance(bad, Damage)
    assert what in bad.what
    assert (bad.line, bad.harmless) == (3, False)
    assert isinstance(first, Transcript)
    assert isinstance(last, Transcript)


def test_a_last_line_that_is_cut_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    write(path, an_episode("a"), an_episode("b"))
    path.write_bytes(path.read_bytes()[:-20])
    first, bad = read(path)
    assert isinstance(first, Transcript)
    assert isinstance(bad, Damage)
    assert bad.harmless


def test_a_file_whose_writer_was_killed_is_continued_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    write(path, an_episode("a"), an_episode("b"))
    path.write_bytes(path.read_bytes()[:-20])
    write(path, an_episode("c"))
    first, bad, last = read(path)
    assert (first.episode.id, last.episode.id) == ("a", "c")
    assert isinstance(bad, Damage)


def test_files_that_can_not_be_read_are_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        list(read(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="no regular file"):
        list(read(tmp_path))
    broken = tmp_path / "t.gz"
    broken.write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(UsageError):
        list(read(broken))
    packed = gzip.compress(b"x" * 100 + b"\n" + bytes(range(256)) * 4000)
    broken.write_bytes(packed[: len(packed) // 2])
    assert [one.harmless for one in read(broken)][-1:] == [False]
