"""A memory of verdicts says what the judges say, of every exchange, and asks them as seldom as it may."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_driver import immediate, pick, request_body, set_header, streamed
from machine_driver import mutation as mutated
from scripted import BODY, Script, headers_answer
from scripted import echo as whole

from conformance.evidence.episode import Context, Episode
from conformance.judges import judge
from conformance.judges.remembered import RememberedVerdicts
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.headers import header_map
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    StreamedBodyResponse,
)
from ext_proc.record import Author, Entry, Message, StreamEnded, StreamOpened, Wait

CATALOGUE = Catalogue.load()
CONTEXT = Context(version="1.0.0", scenario="live")
A = "127.0.0.11:8000"
NAMES = [f"0b0f6a3a-7a70-4e3e-9a53-{number:012x}" for number in range(6)]


def body(own: str) -> bytes:
    return b'{"model":"m","prompt":"' + own.encode() + b'"}'


def asked(own: str, *, field: str = "raw_value") -> list[bytes]:
    headers = header_map([
        (b":path", b"/v1/completions"), (b":method", b"POST"), (b":authority", b"localhost"),
        (b"content-type", b"application/json"), (b"x-request-id", own.encode()),
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


@pytest.mark.parametrize("order", [(0.0, 1.5), (1.5, 0.0)])
def test_a_late_response_is_not_taken_for_a_quick_one(memory, order) -> None:
    """A close of the stream then is because of it (ENV-16)."""
    for seconds in (*order, *order):
        script = Script()
        one = script.exchange(opened=False).request(BODY).answers(headers_answer(A), *whole(BODY))
        script.pass_time(seconds)
        one.response_headers().body(b"{}", side="response").closed()
        findings = memory.judge(script.episode)
        assert ("ENV-16" in {one.requirement for one in findings if one.verdict is Verdict.FAIL}) is (seconds > 0)
    assert memory.found == 1, "the quick one"


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


# -- what no judge reads -----------------------------------------------------------------------------------------------


def field(number: int, *values: bytes) -> bytes:
    """A field of a message with these values, in this order, as on the wire."""
    return b"".join(bytes([number << 3 | 2, *varint(len(value))]) + value for value in values)


def varint(number: int) -> list[int]:
    return [number] if number < 128 else [number & 127 | 128, *varint(number >> 7)]


def metadata(entries: dict[str, str], number: int) -> bytes:
    """`metadata_context` (field 8 of a ProcessingRequest) or `dynamic_metadata` (8 of a ProcessingResponse), its
    entries in the order in which they are here: that of a map on the wire is any."""
    texts = [field(1, key.encode()) + field(2, field(3, value.encode())) for key, value in entries.items()]
    space = field(1, *texts)
    if number == 0:
        return field(8, field(1, field(1, b"envoy.lb") + field(2, space)))
    return field(8, field(1, field(1, b"envoy.lb") + field(2, field(5, space))))


@dataclasses.dataclass(frozen=True)
class Course:
    """What may differ between exchanges that say the same to judges, and what an EPP may make of it."""

    own: str = NAMES[0]
    took: int = 12
    date: str = "Fri, 27 Nov 2026 13:54:20 GMT"
    turned: bool = False
    digest: str = "0"
    sets: tuple[bytes, bytes] | None = None

    def episode(self) -> Episode:
        """The exchange: a request, its pick, a response of which no body was kept, and the answers."""
        told = {"x-gateway-destination-endpoint-served": A, "x-gateway-destination-endpoint": A}
        picked = {"x-gateway-destination-endpoint": A, "x-note": "n"}
        if self.turned:
            told, picked = (dict(reversed(one.items())) for one in (told, picked))
        head = [
            (b":status", b"200"), (b"content-type", b"application/json"), (b"date", self.date.encode()),
            (b"x-envoy-upstream-service-time", b"%d" % self.took),
        ]  # fmt: skip
        answer = ProcessingResponse.FromString(pick(A))
        answer.ClearField("dynamic_metadata")
        mutations = [] if self.sets is None else [set_header(self.sets[0].decode(), self.sets[1])]
        response = HeadersResponse(response=CommonResponse(header_mutation=mutated(*mutations)))
        part = HttpBody(end_of_stream=True)
        back = BodyMutation(streamed_response=StreamedBodyResponse(end_of_stream=True))
        log = [
            *((Author.DATA_PLANE, raw) for raw in asked(self.own)),
            (Author.EPP, answer.SerializeToString() + metadata(picked, 1)),
            (Author.EPP, echo(self.own)),
            (
                Author.DATA_PLANE,
                ProcessingRequest(response_headers=HttpHeaders(headers=header_map(head))).SerializeToString()
                + metadata(told, 0),
            ),
            (Author.EPP, ProcessingResponse(response_headers=response).SerializeToString()),
            (Author.DATA_PLANE, ProcessingRequest(response_body=part).SerializeToString()),
            (
                Author.EPP,
                ProcessingResponse(
                    response_body=BodyResponse(response=CommonResponse(body_mutation=back))
                ).SerializeToString(),
            ),
        ]
        events = [Message(exchange="e", stream="s", author=author, raw=raw) for author, raw in log]
        events[-2:] = [
            dataclasses.replace(one, size=len(one.raw) + 277, sha256=self.digest * 64) for one in events[-2:]
        ]
        end = StreamEnded(exchange="e", stream="s", author=Author.DATA_PLANE, how="reset", code=2)
        log = [StreamOpened(exchange="e", stream="s", connection=1), *events, end]
        return Episode(id="e", entries=tuple(Entry(seq, seq * 7, event) for seq, event in enumerate(log, 1)))


SAME = Course()
ALIKE = [
    Course(own=NAMES[1]),
    Course(took=98),
    Course(date="Sat, 28 Nov 2026 00:00:00 GMT"),
    Course(turned=True),
    Course(digest="1"),
]


@pytest.mark.parametrize("other", ALIKE, ids=["own id", "service time", "date", "order of a map", "digest"])
def test_what_no_judge_reads_is_no_other_exchange(other: Course) -> None:
    memory = RememberedVerdicts(CONTEXT, CATALOGUE, ("epp", "data-plane"))
    assert {verdict for _, verdict in said(memory.judge(SAME.episode()))} <= {Verdict.PASS, Verdict.NOT_APPLICABLE}
    memory.judge(other.episode())
    assert (memory.judged, memory.found) == (1, 1)


@pytest.mark.parametrize("name", [b"x-envoy-upstream-service-time", b"Date", b"x-tenant"])
def test_a_header_that_the_epp_names_is_read(name: bytes) -> None:
    """To set it as it is changes nothing; in the next exchange, the same answer changes it."""
    memory = RememberedVerdicts(CONTEXT, CATALOGUE, ("epp", "data-plane"))
    for took, date in ((12, SAME.date), (13, "Sat, 28 Nov 2026 00:00:00 GMT")):
        value = SAME.date.encode() if name == b"Date" else b"12"
        one = Course(took=took, date=date, sets=(name, value)).episode()
        assert said(memory.judge(one)) == said(judge(one, CONTEXT, CATALOGUE, roles=("epp", "data-plane")))
    assert memory.found == (name == b"x-tenant")


courses = st.builds(
    Course,
    own=st.sampled_from(NAMES[:2]),
    took=st.sampled_from([0, 12, 13, 1000]),
    date=st.sampled_from([SAME.date, "Sat, 28 Nov 2026 00:00:00 GMT", "yesterday"]),
    turned=st.booleans(),
    digest=st.sampled_from(["0", "1"]),
    sets=st.none()
    | st.tuples(
        st.sampled_from([b"x-envoy-upstream-service-time", b"date", b"content-type", b":status"]),
        st.sampled_from([b"12", SAME.date.encode(), b"application/json", b"200"]),
    ),
)


@settings(max_examples=100)
@given(st.lists(courses, min_size=2, max_size=8))
def test_whatever_varies_the_verdict_is_that_of_the_judges(several: list[Course]) -> None:
    memory = RememberedVerdicts(CONTEXT, CATALOGUE, ("epp", "data-plane"))
    for course in several:
        one = course.episode()
        assert said(memory.judge(one)) == said(judge(one, CONTEXT, CATALOGUE, roles=("epp", "data-plane")))
