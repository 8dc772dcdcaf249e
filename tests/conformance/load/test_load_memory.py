"""The remembered path and the real one are the same, whatever the EPP and the pool do."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import event, given, settings
from hypothesis import strategies as st
from load_driver import Road, pod, real, written
from machine_driver import (
    common,
    immediate,
    mutation,
    pick,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    set_header,
    streamed,
)

from conformance.load.judgement import episode
from conformance.load.memory import Node
from conformance.load.moments import IDLE, ShownLoad
from conformance.load.rehearsal import Rehearsal
from conformance.load.shape import PLACEHOLDER, RequestShape
from conformance.load.steps import DueStep, Ended, NotAMessage
from conformance.verdict import Verdict
from ext_proc import grpc
from ext_proc.messages import BodyMutation, ProcessingResponse
from ext_proc.stream import ANSWERS
from fake_proxy.client import Abort, Chunk, HttpRequest
from fake_proxy.config import BodyMode, Ending, ProxyConfig
from fake_proxy.machine import Machine
from fake_proxy.scripted import UpstreamReply, json_reply, sse_reply
from fake_proxy.stimulus import Stimulus, subset_hint

A, B, C, D = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.1:8001", "10.0.0.9:8000"
EVERYWHERE = (A, B, C, D)
BODY = b'{"model": "m", "prompt": "' + PLACEHOLDER + b'"}'
DUPLEX = ProxyConfig()
ALONE = replace(DUPLEX, response_body_mode=BodyMode.NONE, send_response_headers=False, send_response_trailers=False)
MODES = [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.NONE]


def request(**changes) -> HttpRequest:
    return HttpRequest(path="/v1/completions", headers=((b"content-type", b"application/json"),), **changes)


def shape(config: ProxyConfig = ALONE, subset: tuple[str, ...] | None = None, **changes) -> RequestShape:
    stimulus = Stimulus() if subset is None else Stimulus(metadata=subset_hint(config, list(subset)))
    filled = {"request": request(body=BODY), "reply": json_reply({"ok": 1}), **changes}
    return RequestShape(name="s", config=config, stimulus=stimulus, subset=subset or (), **filled)


def echo(own: bytes, *, end: bool = True, body: bytes = BODY) -> bytes:
    return request_body(streamed(body.replace(PLACEHOLDER, own), end))


CROSS_TALK = ("ENV-21", Verdict.FAIL)


# -- the same as the real thing ----------------------------------------------------------------------------------------

PODS = (pod("a", A), pod("b", B), pod("c", C), pod("d", D, C), pod("e", A))
pools = st.tuples(
    st.lists(
        st.builds(
            replace, st.sampled_from(PODS), ready=st.booleans(), terminating=st.sampled_from([False] * 4 + [True])
        ),
        max_size=4,
        unique_by=lambda one: one.name,
    ),
    st.dictionaries(
        st.sampled_from("abcde"),
        st.sampled_from(
            [IDLE, ShownLoad(saturated=True), ShownLoad(saturated=True, overrun=True), ShownLoad(unread=True)]
        ),
    ),
    st.booleans(),
)
shapes = st.builds(
    shape,
    st.builds(
        lambda modes, ending, allow, early: replace(
            DUPLEX, request_body_mode=modes[0], response_body_mode=modes[1], ending=ending, failure_mode_allow=allow,
            send_body_without_waiting=early,
        ),
        st.tuples(st.sampled_from(MODES), st.sampled_from(MODES)), st.sampled_from(Ending), st.booleans(),
        st.booleans(),
    ) | st.just(ALONE),
    st.none() | st.lists(st.sampled_from([A, B, C, D, "10.0.0.1"]), max_size=2).map(tuple),
    request=st.sampled_from([
        request(body=BODY), request(method="GET"), request(body=BODY, http=2), request(body=b""),
        request(body=(Chunk(data=BODY[:9]), Chunk(data=BODY[9:])), http=2, trailers=((b"x-t", b"1"),)),
        request(body=BODY, abort=Abort(at="destination")), request(body=BODY, abort=Abort(at="request-headers")),
        request(body=BODY, abort=Abort(at="response-body")),
    ]),
    reply=st.sampled_from([
        json_reply({"ok": 1}), sse_reply(b"1", b"2"), UpstreamReply(fail="connect-failed"), UpstreamReply(fail="never"),
        UpstreamReply(body=(b"x", b"y"), reset_after=1), UpstreamReply(body=(b"x",), trailers=((b"t", b"1"),)),
    ]),
    service_time=st.sampled_from([0.0, 0.5]),
    note=st.sampled_from([{}, {"sheddable": True}]),
)  # fmt: skip
bodies = st.one_of(
    st.none(),
    st.builds(lambda end: streamed(BODY.replace(PLACEHOLDER, b"?id?"), end), st.booleans()),
    st.sampled_from([streamed(b""), streamed(b"", True), BodyMutation(body=b"other"), BodyMutation(clear_body=True)]),
    st.just(streamed(BODY[:26] + b"?id?"[:2])),
)
mutations = st.none() | st.builds(
    lambda name, value: mutation(set_header(name, value)),
    st.sampled_from(["x-a", "content-length", "x-request-id", "bad name", "x-gateway-destination-endpoint"]),
    st.sampled_from([b"", b"3", b"a\nb", A.encode(), b"?id?", f"{A},{B}".encode(), b"?other?"]),
)
steps = st.one_of(
    st.sampled_from([
        pick(A), pick(B), pick(D), pick(f"{A},{C}"), pick(f"{A},{B},{C},{D}"), b"?id?",
        ProcessingResponse().SerializeToString(),
    ]),
    st.builds(request_headers, st.builds(common, mutations), st.none() | st.just({"envoy.lb": {"x": "?id?"}})),
    st.builds(request_body, bodies, mutations),
    st.builds(response_body, bodies),
    st.builds(response_headers, mutations),
    st.builds(request_trailers, mutations),
    st.builds(response_trailers),
    st.builds(immediate, st.sampled_from([None, 200, 429, 503]), st.sampled_from([b"", b"?id? is busy"])),
    st.sampled_from([
        Ended("status", status=0), Ended("status", status=13, message="?id? failed"), Ended("reset", code=8),
        Ended("lost", message="gone"), NotAMessage(b"?id?", "no message"),
        DueStep("deadline", 10.0), DueStep("ending"), "upstream",
    ]),
)  # fmt: skip


def filled(step, own: bytes, other: bytes):
    """A step of this exchange, where a drawn one says `?id?` and `?other?`."""
    if isinstance(step, bytes):
        return _refilled(step, own, other)
    if isinstance(step, Ended):
        return step._replace(message=step.message.replace("?id?", own.decode()))
    return NotAMessage(step.raw.replace(b"?id?", own), step.reason) if isinstance(step, NotAMessage) else step


def _refilled(raw: bytes, own: bytes, other: bytes) -> bytes:
    """Lengths change with what is filled in, so the message is built again around it."""
    if b"?" not in raw:
        return raw
    try:
        message = ProcessingResponse.FromString(raw)
    except DecodeError:
        return raw.replace(b"?id?", own)
    _fill(message, own, other)
    return message.SerializeToString()


def _fill(message, own: bytes, other: bytes) -> None:
    for field, value in message.ListFields():
        repeated = field.is_repeated
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for one in value.values():
                _fill(one, own, other)
        elif field.message_type is not None:
            for one in value if repeated else [value]:
                _fill(one, own, other)
        elif isinstance(value, bytes):
            setattr(message, field.name, value.replace(b"?id?", own).replace(b"?other?", other).replace(b"?i", own[:9]))
        elif isinstance(value, str):
            setattr(message, field.name, value.replace("?id?", own.decode()))


@settings(max_examples=150)
@given(
    kinds=st.lists(shapes, min_size=1, max_size=2),
    alphabet=st.lists(steps, min_size=1, max_size=4),
    ways=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=2),
    walks=st.lists(st.tuples(st.sampled_from([0, 0, 1]), st.integers(0, 1), st.none() | pools), min_size=2, max_size=7),
    limit=st.sampled_from([1 << 24, 1 << 24, 9_000]),
)
def test_what_is_remembered_is_what_the_machine_does_and_the_judges_say(kinds, alphabet, ways, walks, limit) -> None:
    """Side by side: the same bytes leave at the same steps, and the same is said of the exchange in the end, with
    messages that name the exchange or another one, and a pool that changes."""
    road = Road(grace=2.5, limit=limit)
    previous = road.run(kinds[0]).own
    for kind, way, change in walks:
        walk = ways[way % len(ways)]
        road.time += 1
        if change is not None:
            pods, loads, told = change
            road.pool(*pods, loads=loads, told=told)
        asked = kinds[kind % len(kinds)]
        exchange, wire = road.start(asked)
        machine = real(road, asked, exchange.own)
        turn = machine.begin()
        expected = written(turn)
        window = road.moments.window(road.time, road.time)
        assert wire.written == expected
        foreign = False
        for drawn in [
            *(alphabet[number % len(alphabet)] for number in walk),
            DueStep("deadline", 10.0),
            DueStep("ending"),
        ]:
            step = DueStep("upstream") if drawn == "upstream" else drawn
            if turn.finished:
                break
            if (step == DueStep("upstream") and not turn.upstream) or (step == DueStep("ending") and not turn.quiet):
                continue  # no such wait runs
            step = filled(step, exchange.own, previous)
            foreign = foreign or (isinstance(step, bytes) and previous in step)
            exchange.step(step)
            turn = machine.step(step)
            expected += written(turn)
            assert wire.written == expected
        assert exchange.finished
        assert turn.finished
        said = road.bench.judge(episode(machine.events, window, EVERYWHERE)).counts
        assert set(exchange.judgement.counts) == (set(said) | {CROSS_TALK} if foreign else set(said))
        previous = exchange.own
    event(f"verdicts remembered: {min(road.memory.counts.exchanges, 2)}")
    event(f"depended on the id: {min(road.memory.counts.opaque, 1)}")
    assert road.memory.size <= limit


@pytest.mark.slow
@settings(max_examples=150)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from([None, (), (A,), (B, C), ("10.0.0.1",), (D,), (f"http://{A}",)]), st.booleans()),
        max_size=3,
        min_size=1,
    ),
    answers=st.lists(
        st.sampled_from(
            [pick(A), pick(B), pick(C), pick(f"{A},{B}"), pick("10.9.9.9:1"), pick(D), immediate(503), immediate(429)]
        ),
        min_size=1,
        max_size=3,
    ),
    walks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.none() | pools, st.booleans()), max_size=14),
    version=st.sampled_from(["0.2.0", "0.3.0", "1.0.0", "next"]),
)
def test_remembered_verdicts_follow_the_pool(asked, answers, walks, version) -> None:
    """Picks and errors while pods come, go, fall ill and fill up: the verdict from memory is the judges' own."""
    road = Road(grace=1.5, version=version)
    kinds = [shape(subset=subset, note={"sheddable": True} if sheddable else {}) for subset, sheddable in asked]
    for number, answer, change, body in walks:
        road.time += 1
        if change is not None:
            pods, loads, told = change
            road.pool(*pods, loads=loads, told=told)
        kind = kinds[number % len(kinds)]
        said = answers[answer % len(answers)]
        exchange = road.run(kind, said, *([echo] if body else []), DueStep("deadline", 10.0))
        machine = real(road, kind, exchange.own)
        machine.begin()
        for step in (said, *([echo(exchange.own)] if body else []), DueStep("deadline", 10.0)):
            machine.step(step)
        window = road.moments.window(road.time, road.time)
        expected = road.bench.judge(episode(machine.events, window, EVERYWHERE))
        assert exchange.judgement.counts == expected.counts
    event(f"verdicts remembered: {min(road.memory.counts.exchanges, 3)}")


# -- what is remembered, and what never is -----------------------------------------------------------------------------


def judged(road: Road, *steps, of: RequestShape | None = None):
    """The verdict of one exchange, and how often the judges were asked for it."""
    before = road.memory.counts.judged
    exchange = road.run(of or SIMPLE, *steps)
    assert exchange.finished
    return exchange.judgement, road.memory.counts.judged - before


SIMPLE = shape()
INSIDE = shape(subset=(A, B))


def failed(judgement) -> set[str]:
    return {name for name, verdict in judgement.counts if verdict is Verdict.FAIL}


@pytest.fixture
def road() -> Road:
    road = Road(grace=5)
    road.pool(pod("a", A), pod("b", B))
    return road


def test_the_same_exchange_is_judged_once(road) -> None:
    """Every exchange has a verdict, and only the first of a kind needs the judges."""
    verdicts = [judged(road, pick(A), echo) for _ in range(20)]
    assert [asked for _, asked in verdicts] == [1] + [0] * 19
    assert all(not failed(judgement) for judgement, _ in verdicts)
    assert road.memory.counts.hit_rate == 0.95


PICK_A, PICK_B, REFUSED = (pick(A), echo), (pick(B), echo), (immediate(503),)
OLD, SWAPPED = (pod("a", A), pod("b", B)), (pod("c", C), pod("d", D))
GONE, PASSED_ON = {"EPP-DEST-06"}, (pod("c", A), pod("d", B))

TIMELINES = {
    "the grace time begins when the target is told": [
        (100, PICK_B, set()), (100, "asked", (pod("a", A),)), (150, PICK_B, set()), (150, "delivered", 0),
        (154.9, PICK_B, set()), (155.1, PICK_B, GONE), (155.1, "told", OLD), (155.1, PICK_B, set()),
    ],
    "both states are right meanwhile": [
        (100, "asked", ()), (100, PICK_A, set()), (100, REFUSED, set()), (100, "delivered", 0),
        (106, PICK_A, GONE), (106, REFUSED, set()),
    ],
    "a pool that has settled is the only one": [
        (100, "told", SWAPPED), (100, PICK_A, set()), (100, "delivered", 5), (100, PICK_A, GONE),
    ],
    "an endpoint is due as long as one pod stays": [
        (100, "told", (pod("a", A), pod("d", B))), (100, REFUSED, {"EPP-ERR-02"}),
    ],
    "removals may be followed before additions": [
        (100, "told", PASSED_ON), (100, REFUSED, set()), (100, PICK_B, set()), (110, REFUSED, {"EPP-ERR-02"}),
    ],
    "also in two steps": [
        (100, "told", (pod("a", A), pod("d", B))), (101, "told", (pod("d", B),)), (101, REFUSED, set()),
        (101, PICK_B, set()), (110, REFUSED, {"EPP-ERR-02, of a subset EPP-SUB-05"}),
    ],
}  # fmt: skip
"""By rule: at a time a pool is asked for, told, or was delivered some seconds ago; or an exchange has failures."""
OF_A_SUBSET = {
    "EPP-ERR-02": ("EPP-ERR-02", "EPP-SUB-02"),
    "EPP-ERR-02, of a subset EPP-SUB-05": ("EPP-ERR-02", "EPP-SUB-05"),  # one of the two in the hint is unknown
}


@pytest.mark.parametrize("of", [SIMPLE, INSIDE], ids=["any pod", "a subset"])
@pytest.mark.parametrize("rule", TIMELINES)
def test_the_pool_that_an_exchange_may_have_acted_on(road, of, rule) -> None:
    for at, what, expected in TIMELINES[rule]:
        road.time = float(at)
        if what in ("asked", "told"):
            road.pool(*expected, told=what == "told")
        elif what == "delivered":
            road.moments.delivered(road.time - expected)
        else:
            names = {OF_A_SUBSET.get(name, (name, name))[of is INSIDE] for name in expected}
            assert failed(judged(road, *what, of=of)[0]) == names, (at, what)


def test_a_pick_outside_the_subset_is_found_under_whatever_pool(road) -> None:
    """Each time, from memory too."""
    road.pool(pod("a", A), pod("b", B), pod("d", D))
    for number in range(5):
        judgement, _ = judged(road, pick(D), echo, of=INSIDE)
        assert failed(judgement) == {"EPP-SUB-01"}
        road.time += 10
        road.pool(pod("a", A), pod("b", B), pod("d", D), pod("x", f"10.1.0.{number + 1}:8000"))
    assert road.memory.counts.judged <= 3


@pytest.mark.parametrize("item", [f"http://{A}", f"{A}/", "10.0.0.1:08000", "10.0.0.1"])
@pytest.mark.parametrize("answer", [immediate(429), immediate(503), pick(B)])
def test_unusual_hint_items_are_looked_up_by_their_meaning(road, item, answer) -> None:
    """Whether something of the subset is there, and so what is due, hangs on that."""
    of, others = shape(subset=(item,)), (pod("b", B), pod("d", D))
    for pods in ((pod("a", A), *others), others, (pod("a", A), *others)):
        road.time += 10
        road.pool(*pods)
        road.time += 10
        alone = Road(grace=5)
        alone.pool(*pods)
        said, expected = (judged(one, answer, DueStep("deadline", 10.0), of=of)[0] for one in (road, alone))
        assert said.counts == expected.counts
    assert road.memory.counts.exchanges  # the third is the first again


def test_the_id_of_another_stream_is_cross_talk_and_is_never_remembered(road) -> None:
    """Neither the first time nor when the same bytes come again, nor where they came before to whom they belong."""
    first, _ = road.start(SIMPLE)
    assert not failed(judged(road, pick(A), echo(first.own))[0]) & {"EPP-DEST-06"}
    for _ in range(3):
        judgement, asked = judged(road, pick(A), echo(first.own))
        assert "ENV-21" in failed(judgement)
        assert asked == 1
    assert not failed(judged(road, pick(A), echo)[0])


def test_half_of_another_streams_id_is_no_hit(road) -> None:
    """An EPP that cuts a body inside the id, and gives one stream what belongs to another."""
    cut = BODY.index(PLACEHOLDER) + 30

    def halves(own: bytes, other: bytes) -> list[bytes]:
        mine, theirs = BODY.replace(PLACEHOLDER, own), BODY.replace(PLACEHOLDER, other)
        return [request_body(streamed(mine[:cut])), request_body(streamed(theirs[cut:], True))]

    right, wrong = [], []
    for _ in range(3):
        exchange, _ = road.start(SIMPLE)
        other, _ = road.start(SIMPLE)
        for one, of in ((exchange, exchange), (other, exchange)):
            for step in (pick(A), *halves(one.own, of.own)):
                one.step(step)
        right.append(exchange.judgement.telling)
        wrong.append({one.requirement for one in other.judgement.telling})
    assert right == [()] * 3
    assert wrong == [wrong[0]] * 3
    assert wrong[0]


def test_late_messages_are_judged(road) -> None:
    """A message after the end of an exchange changes its verdict, or does not, as the judges have it."""
    drained = shape(replace(ALONE, ending=Ending.DRAIN))
    for _ in range(2):
        exchange = road.run(drained, immediate(503))
        assert not exchange.finished
        exchange.step(immediate(503))
        exchange.step(DueStep("ending"))
        assert "ENV-15" in failed(exchange.judgement)
    quick = road.run(shape(), immediate(429))
    assert quick.finished
    said = quick.judgement
    quick.step(immediate(429))
    assert quick.judgement is not said


def test_trouble_of_the_suite_accuses_nobody_and_is_not_remembered(road) -> None:
    """A deadline that ran out while our own loop stood still."""
    exchange, _ = road.start(SIMPLE)
    exchange.trouble = "the loop was late"
    exchange.step(DueStep("deadline", 10.0))
    assert not failed(exchange.judgement)
    judgement, asked = judged(road, DueStep("deadline", 10.0))
    assert asked == 1
    doubted = {name for name, verdict in exchange.judgement.counts if verdict is Verdict.ERROR}
    assert doubted == failed(judgement) != set()  # what would have been held against the target is in doubt


# -- what is due, and how much may come --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED])
def test_the_time_of_a_model_server_is_not_given_to_the_target(road, mode) -> None:
    """A target has its deadline before the model server's time begins, and again when that is over."""
    asked = shape(replace(DUPLEX, request_body_mode=mode, response_body_mode=mode), service_time=60.0)
    silent, _ = road.start(asked)
    silent.due(road.time + 9.9, 10.0)
    assert not silent.finished
    silent.due(road.time + 10.0, 10.0)
    assert failed(silent.judgement)

    body = (echo,) if mode is BodyMode.FULL_DUPLEX_STREAMED else (request_body(None),)
    answered = road.run(asked, pick(A), *body)
    answered.due(road.time + 59.9, 10.0)
    assert not answered.finished
    road.time += 60.0
    answered.upstream(1)
    answered.due(road.time + 9.9, 10.0)
    assert not answered.finished
    answered.due(road.time + 10.0, 10.0)
    assert failed(answered.judgement)


def test_a_request_is_answered_late_only_from_when_it_has_left(road) -> None:
    exchange, wire = road.start(shape(DUPLEX))
    wire.unsent = 1
    exchange.due(9.0, 10.0)
    wire.unsent = 2  # others leave meanwhile, which are before it
    exchange.due(18.0, 10.0)
    wire.unsent = 0
    exchange.due(27.0, 10.0)
    exchange.due(36.9, 10.0)
    assert not exchange.finished
    exchange.due(37.0, 10.0)
    assert failed(exchange.judgement)

    refused, wire = road.start(shape(DUPLEX))
    wire.unsent = 1  # the target does not take it, and nothing moves
    refused.due(9.0, 10.0)
    refused.due(19.0, 10.0)
    assert failed(refused.judgement)


def test_a_refused_stream_owes_no_answer_before_another_is_there(road) -> None:
    """It waits behind others where connections are at their limit, as those do that had no stream yet."""
    exchange, wire = road.start(shape(DUPLEX))
    exchange.on_closed("refused", 7, "")
    exchange.due(50.0, 10.0)
    assert not exchange.finished
    road.time = 50.0
    exchange.open(wire, 50.0)
    exchange.due(59.9, 10.0)
    assert not exchange.finished
    exchange.due(60.0, 10.0)
    assert failed(exchange.judgement)


def test_a_request_that_can_not_be_sent_in_four_deadlines_is_trouble(road) -> None:
    exchange, wire = road.start(shape(DUPLEX))
    for second in range(5, 41, 5):
        wire.unsent += 1
        assert not exchange.finished
        exchange.due(float(second), 10.0)
    assert exchange.finished
    assert not failed(exchange.judgement)
    assert {one.verdict for one in exchange.judgement.telling} == {Verdict.ERROR}


EMPTY, MORE_TIME = request_body(streamed(b"")), ProcessingResponse(override_message_timeout={"seconds": 1})


@pytest.mark.parametrize(
    ("step", "says", "verdict"),  # every so many seconds comes this
    [
        (8, request_body(streamed(b"b")), Verdict.INCONCLUSIVE),
        (9.5, request_body(streamed(b"b")), Verdict.FAIL),  # and then nothing for as long as nearly a deadline
        (8, EMPTY, Verdict.FAIL),  # which brings it no forward
        (8, MORE_TIME.SerializeToString(), Verdict.FAIL),
    ],
)
def test_an_exchange_that_still_goes_on_after_four_deadlines_is_not_called_hung(road, step, says, verdict) -> None:
    """As in a run; the first time, and remembered."""
    asked = shape(ALONE, request=request(body=b"b" * 1000))
    for _ in range(2):
        began = road.time
        exchange, _ = road.start(asked)
        exchange.on_data(grpc.frame(pick(A)), False)
        for _ in range(int(39 // step)):
            road.time += step
            exchange.on_data(grpc.frame(says), False)
            exchange.due(road.time, 10.0)
            assert not exchange.finished
        road.time = began + (40 if step == 8 else 47.5)
        exchange.due(road.time, 10.0)
        assert {one.verdict for one in exchange.judgement.telling} == {verdict}


def test_answers_without_end_are_wrong_as_soon_as_they_are_too_many(road) -> None:
    exchange, _ = road.start(shape(DUPLEX, request=request(body=(Chunk(data=BODY), Chunk(data=b"x" * 1000)), http=2)))
    exchange.on_data(grpc.frame(pick(A)), False)
    piece = grpc.frame(request_body(streamed(b"y" * 60_000, False)))
    sent = 0
    while not exchange.finished:
        exchange.on_data(piece, False)
        sent += len(piece)
        assert sent < ANSWERS + 100_000
    assert failed(exchange.judgement)


def test_a_large_body_that_comes_back_whole_is_not_too_much(road) -> None:
    """However it is cut: as one message in several frames, and as many messages."""
    body = BODY + b" " * (2 * ANSWERS)
    exchange, _ = road.start(shape(ALONE, request=request(body=body)))
    exchange.on_data(grpc.frame(pick(A)), False)
    back = body.replace(PLACEHOLDER, exchange.own)
    for at in range(0, len(back), 50_000):
        framed = grpc.frame(request_body(streamed(back[at : at + 50_000], at + 50_000 >= len(back))))
        exchange.on_data(framed[:100], False)
        exchange.on_data(framed[100:], False)
    assert exchange.finished
    assert not failed(exchange.judgement)


@pytest.mark.slow
@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_forgotten_exchanges_are_freed_without_the_garbage_collector(size: int) -> None:
    """That comes seldom in a load, and bodies are large: also larger than what may be remembered."""
    road = Road(limit=2_000_000)
    road.pool(pod("a", A))
    body = BODY + b" " * size
    gc.collect()
    gc.disable()
    try:
        for number in range(30):
            exchange = road.run(shape(request=request(body=body), subset=(A, f"10.1.0.{number}:80")), pick(A))
            exchange.step(echo(exchange.own, body=body))
            assert exchange.finished
            road.over.clear()
            exchange.release()
        left = [one for one in gc.get_objects() if isinstance(one, (Node, Rehearsal, Machine))]
    finally:
        gc.enable()
    assert sum(len(send) for one in left if isinstance(one, Node) for send in one.turn.sends) < 2_000_000 + 2 * size
    assert not [one for one in left if not isinstance(one, Node)]
    assert road.memory.size <= 2_000_000


@pytest.mark.parametrize("slow", [0.0, 2.0])
@pytest.mark.parametrize("ending", [Ending.ENVOY, Ending.DRAIN])
def test_a_target_that_goes_on_for_ever_is_wrong_in_the_end(road, ending, slow) -> None:
    """Every message is progress, and four deadlines are enough; also where the request took its time to leave."""
    exchange, wire = road.start(shape(replace(DUPLEX, ending=ending), request=request(body=BODY)))
    more = grpc.frame(request_body(streamed(b"", False)))
    wire.unsent = 1 if slow else 0
    road.time = slow
    exchange.due(road.time, 10.0)
    wire.unsent = 0
    exchange.on_data(grpc.frame(pick(A)), False)
    while road.time < 50.0 and not exchange.finished:
        road.time += 0.5
        exchange.on_data(more, False)
        exchange.due(road.time, 10.0)
    assert exchange.finished
    assert road.time <= 41.0
    assert failed(exchange.judgement)
