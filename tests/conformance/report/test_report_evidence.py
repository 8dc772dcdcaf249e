"""Evidence: nothing is lost, same episodes give same bytes, and a reader is not harmed by what strangers send."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.evidence import blocks
from conformance.evidence import store as module
from conformance.evidence.blocks import BlockReader, BlockWriter
from conformance.evidence.episode import (
    BackendFact,
    Claims,
    Context,
    Episode,
    EppConduct,
    Expectation,
    GatewayFacts,
    GaugesShown,
    PodConduct,
    PodFact,
    PoolState,
    StartAttempt,
    Unmet,
    UnreadConnection,
)
from conformance.evidence.store import EvidenceError, EvidenceWriter, episodes, read_evidence
from ext_proc.record import Author, ClientResponse, Entry, Event, Malformed, Message, StreamEnded, StreamOpened, Wait

pairs = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=3).map(tuple)
names = st.none() | st.text(max_size=8)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Message, exchange=names, stream=st.text(max_size=5), author=st.sampled_from(Author), raw=st.binary()),
    st.builds(
        Message,
        stream=st.just("s"),
        author=st.sampled_from(Author),
        raw=st.binary(max_size=9),
        size=st.integers(10, 99),
        sha256=st.text(max_size=64),
    ),
    st.builds(
        Malformed,
        exchange=names,
        stream=st.just("s"),
        author=st.sampled_from(Author),
        raw=st.binary(),
        reason=st.text(),
    ),
    st.builds(
        StreamEnded,
        stream=st.just("s"),
        author=st.none() | st.sampled_from(Author),
        how=st.sampled_from(["status", "reset"]),
        status=st.none() | st.integers(0, 16),
        message=st.text(max_size=20),
        headers=pairs,
        trailers=pairs,
    ),
    st.builds(
        ClientResponse, exchange=names, status=st.none() | st.integers(100, 599), headers=pairs, body=st.binary()
    ),
    st.builds(Wait, what=st.text(max_size=20), outcome=st.sampled_from(["met", "expired"]), seconds=st.floats(0, 60)),
    st.builds(Unmet, what=st.text(max_size=20)),
    st.builds(StreamOpened, exchange=names, stream=st.just("s"), connection=st.integers(1, 9), epp=st.text(max_size=5)),
    st.builds(StartAttempt, configuration=st.text(max_size=5), started=st.booleans(), output=st.text(max_size=5)),
    st.builds(PodConduct, pod=st.text(max_size=5), conduct=st.sampled_from(["serves", "refuses", "resets", "503"])),
    st.builds(EppConduct, epp=st.text(max_size=5), up=st.booleans()),
    st.builds(UnreadConnection, stalled=st.booleans()),
    st.builds(
        PoolState,
        phase=st.sampled_from(["asked", "delivered", "effective"]),
        pods=st.lists(
            st.builds(PodFact, name=st.text(max_size=5), endpoints=st.just(("127.0.0.1:1",)), ready=st.booleans()),
            max_size=3,
        ).map(tuple),
    ),
)
gateways = st.builds(
    GatewayFacts,
    follows=st.sampled_from(["header", "metadata", "either"]),
    retries=st.integers(0, 9),
    retry_statuses=st.lists(st.integers(500, 599), max_size=2).map(tuple),
    walks_list=st.none() | st.booleans(),
    backends=st.lists(st.builds(BackendFact, epp=st.text(max_size=5), endpoints=st.just(("127.0.0.1:1",)))).map(tuple),
)
contexts = st.builds(
    Context,
    version=st.sampled_from(["0.4.0", "1.0.0"]),
    scenario=st.text(max_size=10),
    requirements=st.lists(st.text(max_size=10), max_size=2).map(tuple),
    claims=st.builds(Claims, sheds=st.none() | st.booleans(), body_rewrites=st.just(("model",))),
    role=st.sampled_from(["epp", "data-plane"]),
    gateway=st.none() | gateways,
    expectations=st.dictionaries(
        st.text(max_size=4),
        st.builds(Expectation, within=st.none() | st.just(("127.0.0.1:1",)), status=st.just((503,))),
        max_size=2,
    ),
)
logs = st.builds(
    Episode,
    id=st.text(max_size=10),
    entries=st.lists(events, max_size=8).map(
        lambda found: tuple(Entry(seq, seq * 1000, event) for seq, event in enumerate(found, start=1))
    ),
)


@settings(max_examples=60)
@given(written=st.lists(st.tuples(logs, contexts), max_size=4))
def test_evidence_is_read_as_written(written):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.ndjson.gz"
        with EvidenceWriter(path) as writer:
            references = [writer.add(f"r{n}", *pair) for n, pair in enumerate(written)]
        lines = list(read_evidence(path))
        assert [line.read() for line in lines] == written
        assert [line.sha256 for line in lines] == references
        unpacked = gzip.decompress(path.read_bytes())
        summary = writer.summary()
        assert (summary.bytes, summary.episodes) == (len(unpacked), len(written))
        assert summary.sha256 == hashlib.sha256(unpacked).hexdigest()


def test_same_episodes_give_same_bytes(run, tmp_path):
    run.finish()
    first = run.evidence_path.read_bytes()
    with EvidenceWriter(tmp_path / "other-name.gz") as writer:
        for line in read_evidence(run.evidence_path):
            writer.add(str(line.number), *line.read())
    assert (tmp_path / "other-name.gz").read_bytes() == first


def test_references_are_by_version_and_a_rerun_replaces_its_own(tmp_path):
    with EvidenceWriter(tmp_path / "e.gz") as writer:
        first = writer.add("a", Episode(id="e1", entries=()), Context(version="0.4.0", scenario="s"))
        writer.add("a", Episode(id="e1", entries=()), Context(version="1.0.0", scenario="s"))
        rerun = writer.add("a", Episode(id="e2", entries=()), Context(version="1.0.0", scenario="s"))
        other = writer.add("b", Episode(id="e1", entries=()), Context(version="1.0.0", scenario="t"))
    assert writer.reference("0.4.0", "a") == first
    assert writer.reference("1.0.0", "a") == rerun
    assert writer.reference("1.0.0", "b") == other
    assert writer.reference("next", "a") is None
    writer.close()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", "Not a gzipped file"),
        (gzip.compress(b"{}\n" * 1000)[:-20], "after"),
        (gzip.compress(b"x" * 3000), "larger than evidence can be"),
    ],
    ids=["no gzip", "cut off", "too large"],
)
def test_other_files_are_refused(tmp_path, monkeypatch, data, message):
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 2000)
    path = tmp_path / "e.gz"
    path.write_bytes(data)
    with pytest.raises(EvidenceError, match=message):
        list(read_evidence(path))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (b'{"seq": 1, "seq": 2}', "a key is there twice"),
        (b"[]," * 1_000_000 + b"[]", "more than 1000000 values"),
    ],
    ids=["repeated key", "many values"],
)
def test_a_line_is_refused_before_much_is_made_of_it(tmp_path, entries, message):
    path = tmp_path / "e.gz"
    path.write_bytes(gzip.compress(b'{"episode": "a", "context": {}, "entries": [%b]}\n' % entries))
    (line,) = read_evidence(path)
    with pytest.raises(EvidenceError, match=message):
        line.read()


def test_recipes_of_all_episodes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_UNPACKED", 10_000)
    path, raw = tmp_path / "e.gz", b"a" * 4000
    with EvidenceWriter(path) as writer:
        for number in range(3):
            entry = Entry(1, 1, Message(exchange="x", stream="s", author=Author.EPP, raw=raw))
            writer.add("a", Episode(id=str(number), entries=(entry,)), Context(version="1.0.0", scenario="s"))
    first, second, third = read_evidence(path)
    first.read()
    second.read()
    with pytest.raises(EvidenceError, match="in all"):
        third.read()


@pytest.mark.parametrize("line", [b"{}", b"[]", b"null", b"{", b'{"episode": "a", "context": {}, "entries": [1]}'])
def test_a_line_that_is_no_episode_is_named(tmp_path, line):
    path = tmp_path / "e.gz"
    path.write_bytes(gzip.compress(line + b"\n"))
    (found,) = read_evidence(path)
    with pytest.raises(EvidenceError, match="line 1 of the evidence is no episode"):
        found.read()


def test_long_bodies_stay_small(made):
    """1,000 messages of 64 KiB: a block that comes again is stored once, a repetition as a recipe."""
    filler = b'{"prompt": "' + b"all work and no play " * 3000 + b'"}'
    arbitrary = random.Random(1).randbytes(64 * 1024)
    messages = tuple(
        Entry(seq, seq, Message(exchange="x", stream="s", author=Author.DATA_PLANE, raw=raw))
        for seq, raw in enumerate((filler, arbitrary, filler, arbitrary), start=1)
    )
    for number in range(250):
        episode = Episode(id=f"e{number}", entries=messages)
        made.evidence.add(f"r{number}", episode, Context(version="1.0.0", scenario="s"))
    made.evidence.close()
    assert made.evidence.summary().bytes < 1_000_000
    assert [line.read()[0].entries == messages for line in read_evidence(made.evidence_path)] == [True] * 250


pieces = st.one_of(
    st.binary(max_size=3000),
    st.builds(lambda unit, count: unit * count, st.binary(min_size=1, max_size=40), st.integers(1, 4000)),
)


@settings(max_examples=200)
@given(values=st.lists(st.lists(pieces, max_size=4).map(b"".join), max_size=6))
def test_packed_bytes_come_back(values):
    writer, reader = BlockWriter(), BlockReader()
    written = [json.loads(json.dumps(writer.pack(value))) for value in values]
    for line in writer.lines:
        reader.add(json.loads(json.dumps(line)))
    assert [reader.unpack(one) for one in written] == values
    assert reader.unused == ()


@given(value=st.recursive(st.none() | st.integers() | st.text() | st.just({"b64": "?"}), st.lists))
def test_invalid_packed_values_are_refused(value):
    for written in (value, {"parts": value}, {"parts": [value]}, {"parts": [{"repeat": value, "size": 2}]}):
        try:
            BlockReader().unpack(written)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"block": "0" * 64, "data": "x"}, "is not what its digest says"),
        ({"block": "0" * 64}, "and nothing else"),
        ({"block": hashlib.sha256(b"x").hexdigest(), "data": 7}, "neither text nor bytes"),
    ],
)
def test_a_block_that_is_none_is_refused(tmp_path, line, message):
    path = tmp_path / "e.gz"
    path.write_bytes(gzip.compress(json.dumps(line, separators=(",", ":")).encode() + b"\n"))
    with pytest.raises(EvidenceError, match=message):
        list(read_evidence(path))


def test_an_episode_out_of_bounds_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_EPISODE", 100_000)
    raw = random.Random(2).randbytes(60_000)
    entries = tuple(Entry(n, n, Message(exchange="x", stream="s", author=Author.EPP, raw=raw[n:])) for n in range(1, 4))
    with EvidenceWriter(tmp_path / "e.gz") as writer:
        writer.add("a", Episode(id="a", entries=entries), Context(version="1.0.0", scenario="s"))
        writer.add("b", Episode(id="b", entries=entries[:1]), Context(version="1.0.0", scenario="s"))
    lines = list(read_evidence(tmp_path / "e.gz"))
    (first, _, cut), (second, _, whole) = (line.read_cut() for line in lines)
    assert (cut, whole, second.entries) == (True, False, entries[:1])
    messages = [event for _, event in first.of(Message)]
    assert all(one.truncated and one.sha256 and len(one.raw) == module.KEPT for one in messages)


def test_the_episodes_wanted_are_read_and_nothing_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "evidence.ndjson.gz"
    with path.open("wb") as file:
        for name in ("a", "b"):
            with EvidenceWriter(tmp_path / name) as writer:
                writer.add(name, Episode(id=name, entries=()), Context(version="1.0.0", scenario=name))
            file.write((tmp_path / name).read_bytes())
        file.write(b"no gzip")
    first, second = (line.sha256 for line in (next(read_evidence(tmp_path / name)) for name in ("a", "b")))
    assert [(sha256, one.id) for sha256, one in episodes(path, [second, first])] == [(first, "a"), (second, "b")]
    assert list(episodes(path, [])) == []
    with pytest.raises(EvidenceError):
        list(episodes(path, ["0" * 64]))


def test_values_beyond_json_are_kept(tmp_path: Path) -> None:
    values = {"kv": float("inf"), "text": "\ud800 is half of a character", "é": 2**70}
    entries = (
        Entry(1, 0, GaugesShown(pod="a", values=values)),
        Entry(2, 0, GaugesShown(pod="b", values={"kv": float("nan")})),
    )
    with EvidenceWriter(tmp_path / "evidence.ndjson.gz") as writer:
        writer.add("x", Episode(id="x", entries=entries), Context(version="1.0.0", scenario="x"))
    (line,) = read_evidence(tmp_path / "evidence.ndjson.gz")
    first, second = (event for _, event in line.read()[0].of(GaugesShown))
    assert first.values == values
    assert second.values["kv"] != second.values["kv"]
