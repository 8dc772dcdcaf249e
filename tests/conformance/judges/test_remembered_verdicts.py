"""A memory of verdicts says what the judges say, of every exchange, and asks them as seldom as it may."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_driver import immediate, pick, request_body, set_header, streamed
from machine_driver import mutation as mutated

from conformance.evidence.episode import Context, Episode
from conformance.judges import judge
from conformance.judges.remembered import RememberedVerdicts
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.headers import header_map
from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration
from ext_proc.record import Author, Entry, Message, StreamEnded, StreamOpened, Wait

CATALOGUE = Catalogue.load()
CONTEXT = Context(version="1.0.0", scenario="live")
A = "127.0.0.11:8000"
NAMES = [f"0b0f6a3a-7a70-4e3e-9a53-{number:012x}" for number in range(6)]


def body(own: str) -> bytes:
    return b'{"model":"m","prompt":"' + own.encode() + b'"}'


def asked(own: str, *, field: str = "raw_value") -> list[bytes]:
    headers = header_map([
        (b":path", b"/v1/completions"), (b":method", b"POST"), (b"content-type", b"application/json"),
        (b"x-request-id", own.encode()),
    ])  # fmt: skip
    modes = ProtocolConfiguration(request_body_mode=4, response_body_mode=0)
    return [
        ProcessingRequest(request_headers=HttpHeaders(headers=headers), protocol_config=modes).SerializeToString(),
        ProcessingRequest(request_body=HttpBody(body=body(own), end_of_stream=True)).SerializeToString(),
    ]


def episode(own: str, *answers: bytes, name: str = "e", ended: StreamEnded | None = None, extra=()) -> Episode:
    said = [Message(exchange=name, stream=f"s-{name}", author=Author.DATA_PLANE, raw=raw) for raw in asked(own)]
    heard = [Message(exchange=name, stream=f"s-{name}", author=Author.EPP, raw=raw) for raw in answers]
    end = ended or StreamEnded(exchange=name, stream=f"s-{name}", author=Author.DATA_PLANE, how="reset", code=2)
    log = [StreamOpened(exchange=name, stream=f"s-{name}", connection=1), *said, *heard, *extra, end]
    return Episode(id=name, entries=tuple(Entry(seq, seq * 7, event) for seq, event in enumerate(log, 1)))


def echo(own: str) -> bytes:
    return request_body(streamed(body(own), True))


@pytest.fixture
def memory() -> RememberedVerdicts:
    return RememberedVerdicts(CONTEXT, CATALOGUE, ("epp",))


def said(findings) -> list:
    return sorted((one.requirement, one.verdict) for one in findings)


def test_exchanges_that_differ_in_names_and_times_are_judged_once(memory) -> None:
    for number, own in enumerate(NAMES):
        findings = memory.judge(episode(own, pick(A), echo(own), name=f"e{number}"))
        assert ("EPP-DEST-01", Verdict.PASS) in said(findings)
    assert (memory.judged, memory.found) == (1, len(NAMES) - 1)


def test_the_id_of_another_exchange_is_not_masked(memory) -> None:
    """An answer with another exchange's body: right for that one, and never for this."""
    for own in NAMES[:3]:
        memory.judge(episode(own, pick(A), echo(own)))
    for own in NAMES[:3]:
        wrong = episode(own, pick(A), echo(NAMES[5]))
        assert said(memory.judge(wrong)) == said(judge(wrong, CONTEXT, CATALOGUE, roles=("epp",)))
        assert "EPP-TRN-05" in {one.requirement for one in memory.judge(wrong) if one.verdict is Verdict.WARN}


def test_each_finding_tells_of_its_own_exchange(memory) -> None:
    for number, own in enumerate(NAMES):
        findings = memory.judge(episode(own, pick("no-endpoint"), echo(own), name=f"e{number}"))
        assert {one.exchange for one in findings if one.verdict is Verdict.FAIL} == {f"e{number}"}


def test_waits_are_judged_each_time(memory) -> None:
    """What hangs on time is not remembered."""
    for own in NAMES[:2]:
        wait = Wait(exchange="e", what="answer to request_body", outcome="expired", seconds=10)
        memory.judge(episode(own, pick(A), extra=[wait]))
    assert memory.found == 0


def test_memory_is_bounded() -> None:
    memory = RememberedVerdicts(CONTEXT, CATALOGUE, ("epp",), limit=10_000)
    for port in range(1000, 1100):
        memory.judge(episode(NAMES[0], pick(f"127.0.0.11:{port}"), echo(NAMES[0])))
    assert len(memory._known) < 10


answers = st.lists(st.sampled_from(["pick", "other", "echo", "stranger", "half", "503", "header", "none"]), max_size=4)


@settings(max_examples=150)
@given(
    walks=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=10),
    ways=st.lists(answers, min_size=3, max_size=3),
)
def test_whatever_is_said_the_verdict_is_that_of_the_judges(walks, ways) -> None:
    memory = RememberedVerdicts(CONTEXT, CATALOGUE, ("epp", "data-plane"))
    others = itertools.cycle(NAMES)
    for number, way in walks:
        own, other = NAMES[number], next(others)
        made = {
            "pick": pick(A), "other": pick("127.0.0.12:8000"), "echo": echo(own), "stranger": echo(other),
            "half": request_body(streamed(body(other)[:50])), "503": immediate(503, own.encode()),
            "header": request_body(None, mutated(set_header("x-request-id", other.encode()))), "none": b"",
        }  # fmt: skip
        one = episode(own, *(made[name] for name in ways[way]))
        assert said(memory.judge(one)) == said(judge(one, CONTEXT, CATALOGUE, roles=("epp", "data-plane")))


def test_a_stream_that_ends_otherwise_is_another_exchange(memory) -> None:
    own = NAMES[0]
    right = episode(own, pick(A), echo(own))
    memory.judge(right)
    ended = dataclasses.replace(right.entries[-1].event, author=Author.EPP, how="status", status=13, code=None)
    wrong = episode(own, pick(A), echo(own), ended=ended)
    assert said(memory.judge(wrong)) == said(judge(wrong, CONTEXT, CATALOGUE, roles=("epp",)))
