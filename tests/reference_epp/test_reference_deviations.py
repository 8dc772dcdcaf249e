"""Faults and variants: each one is declared soundly, serves, and behaves otherwise than the correct EPP."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from ext_proc.messages import HealthCheckRequest, HealthCheckResponse, ProcessingRequest, ProcessingResponse
from reference_epp import faults, variants  # noqa: F401  # declares them
from reference_epp.answers import CHUNK_LIMIT
from reference_epp.deviations import ALL, FAULTS, VARIANTS, WITH_SUBSET, Deviation, DeviationError, find
from reference_epp.endpoints import Pool
from reference_epp.scraper import Scraper
from reference_epp.server import Parts, running
from reference_epp.settings import Settings

MODES = {"none": 0, "streamed": 1, "buffered": 2, "full-duplex": 4}
A, B, C, OTHER_PORT, SIX = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.1:8001", "[fd00::6]:8000"
POOL = (A, B, C, OTHER_PORT, SIX)
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
SERVICES = ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "no.such")

ON_THE_WIRE_ONLY = {
    *("fifty-streams-at-most", "ready-but-unavailable", "slow", "queues-briefly"),
    *("malformed-message-is-fatal", "malformed-message-unanswered", "refusal-and-a-reset"),
    *("thread-per-stream", "stream-deadline-of-five-seconds", "queues-until-ready"),
    *("one-lock-for-all-sends", "queues-what-is-unread", "resets-what-is-unread"),
    *("unknown-services-unimplemented", "ready-once-read"),
}
OF_THE_REPORTER = {one.name for one in (*FAULTS.values(), *VARIANTS.values()) if one.claims.get("reporter")}
"""Those that show with a reporter configured only; `test_reference_reporter_deviations.py` shows them."""
BY_THE_CLOCK = {
    *("caches-per-hint-briefly", "workers-follow-in-turn", "workers-begin-in-turn"),
    *("worker-behind-goaway", "streams-take-workers-in-turn"),
}
AFTER_A_CHANGE = {
    *("hint-trusted-while-the-pool-is-empty", "silent-subset-opens", "list-ends-with-the-hint"),
    *("sessions-lead-to-who-left", "sessions-stay", "worker-with-the-first-pool"),
    "sixty-four-endpoints",
}
"""Those that show in what follows on a change of the pool or its metrics, within a session, or in a large pool: in the
selftest."""
OF_METRICS = {one.name for one in (*FAULTS.values(), *VARIANTS.values()) if issubclass(one.classes[0], Scraper)}
"""Those that show in what is read of metrics; `test_reference_gauges.py` shows them."""
ELSEWHERE = ON_THE_WIRE_ONLY | OF_THE_REPORTER | BY_THE_CLOCK | AFTER_A_CHANGE | OF_METRICS
"""Those of the service, which a conversation alone does not show; they have their own tests."""


# -- stimuli: everything that any fault or variant reacts to


def bodies(mode: int, data_plane: Any) -> Iterator[tuple[bytes, list[ProcessingRequest]]]:
    """Content type and messages of request bodies, each complete."""
    body, last = data_plane.request_body, data_plane.request_body(b"")
    plain = b'{"model":"m","prompt":"hi","n":12345678901234567890,"seed":1}'
    if mode == MODES["buffered"]:
        yield b"application/json", [body(plain)]
        yield b"application/json", [body(plain + b" " * 300)]
        yield b"application/json", [body(WIDE)]
        yield b"application/json", [body(b"{broken")]
        yield b"application/json", [body(b"[" * 100)]
        yield b"text/plain", [body(b"\xff\x00text")]
        yield b"application/json", [body(plain, end=False), data_plane.request_trailers()]
    else:
        yield b"application/json", [body(plain)]
        yield b"application/json", [body(plain[:9], end=False), body(plain[9:], end=False), last]
        yield b"application/json", [body(b"{broken")]
        yield (
            b"application/json",
            [body(plain[index : index + 3], end=False) for index in range(0, len(plain), 3)] + [last],
        )
        yield b"text/plain", [body(b"\xff\x00text"), last][:1]
        yield b"text/plain", [body(b"".join(b"%d," % i for i in range(30_000))), last][:1]
        yield b"application/json", [body(plain, end=False), data_plane.request_trailers()]
    if mode == MODES["full-duplex"]:
        yield b"text/plain", [body(b"x" * 4_500_000)]
        yield b"application/json", [body(b'{"prompt":"' + b"x" * 1_200 + b'"}')]
        yield b"application/json", [body(WIDE)]


WIDE = b'{"model":"m","prompt":"x' + "🌍".encode() * 200 + b'"}'
"""A prompt of which few places are between two characters."""

LONG = b'"' + b"a" * 600 + b'"}]}'
"""The rest of a JSON body that has several blocks, as prefixes are counted."""

HINTS: list[Any] = [
    [A], [C], [SIX], ["10.0.0.1:9"], ["10.0.0.1:80"], ["0.0.0.1:8000"], ["9.9.9.9:1"], [], [B, "9.9.9.9:1"], "x", "", 7,
    [1], ["10.0.0.1"], [OTHER_PORT, B], ["9.9.9.9:1", C], [SIX.rpartition(":")[0] + ":9"],
    ["9.9.9.9:1", "9.9.9.9:2"], [*POOL],
    [B, *(f"9.9.{index // 250}.{index % 250}:1" for index in range(1000))],
    [*(f"9.9.{index // 250}.{index % 250}:1" for index in range(1000)), B],
]  # fmt: skip


def conversations(mode: int, data_plane: Any) -> Iterator[list[ProcessingRequest]]:
    headers = functools.partial(data_plane.request_headers, mode=mode)
    get = functools.partial(headers, end=True)
    body = [data_plane.request_body()] if mode else []
    for content_type, messages in bodies(mode, data_plane) if mode else ():
        yield [headers(("content-type", content_type), ("content-length", b"9")), *messages]
    yield [headers(), *body]
    yield [headers((":path", b"/v1/models")), *body]
    for extra in (
        ("x-gateway-destination-endpoint", b"6.6.6.6:1"),
        ("x-custom", b"\xff"),
        ("authorization", b"Bearer secret"),
    ):
        yield [headers(extra), *body]
    yield [headers(("x-many", b"1"), ("x-many", b"2")), *body]
    yield [headers(*((f"x-filler-{index}", b"1") for index in range(95))), *body]
    for hint in HINTS:
        yield [get(hint=hint)]
        yield [headers(hint=hint), *([data_plane.request_body(hint=hint)] if mode else [])]
    yield [headers(subset=[C]), *body]
    yield [headers(("x-gateway-destination-endpoint", A.encode()), subset=[C]), *body]
    other = MODES["buffered" if mode == MODES["full-duplex"] else "full-duplex"]
    yield [headers(response_mode=other), *body, data_plane.response_headers(), data_plane.response_body()]
    yield [headers(empty_namespace=True), *body]
    odd = get()
    odd.attributes["x"].SetInParent()
    yield [odd]
    yield [headers(), ProcessingRequest(), *body]
    elsewhere = get()
    fields = elsewhere.metadata_context.filter_metadata["envoy.lb"].fields
    fields["x-gateway-destination-endpoint-subset"].list_value.values.add().string_value = C
    yield [elsewhere]
    for first in (get(mode=None), get(without_waiting=True), get(subset=[B])):
        response = data_plane.response_headers
        yield [
            first,
            response(content_type=b"text/plain"),
            *(data_plane.response_body(b"%d\xff" % i, end=i == 11) for i in range(12)),
        ]
        yield [first, response(end=True, status=b"204")]
        yield [
            first,
            response(status=b"500"),
            data_plane.response_body(b"{oops", end=False),
            data_plane.response_trailers(),
        ]
        for event_stream in (b"text/event-stream", b"text/event-stream; charset=utf-8"):
            yield [first, response(content_type=event_stream), data_plane.response_body(b"data: 1\n\n", end=False)]
            yield [first, response(content_type=event_stream), data_plane.response_body(b"id: 1\ndata: 1\n\ndata: 2")]
            halves = [data_plane.response_body(half, end=half == b"1\n\n") for half in (b"data: ", b"1\n\n")]
            yield [first, response(content_type=event_stream), *halves]
        yield [first, response(), data_plane.response_body(b"{", end=False), data_plane.response_body(b"}")]
        for served in (A, "9.9.9.9:1", 7):
            yield [first, response(served=served), data_plane.response_body()]
    yield [data_plane.response_headers(status=b"413"), data_plane.response_body()]
    yield from one_path_only(headers, get, mode, data_plane)
    yield from seldom_sent(get, mode, data_plane)
    yield [get(), data_plane.response_headers(content_type=b"text/plain"), data_plane.response_body(b"x" * 100_000)]
    yield [get(), data_plane.response_headers(), data_plane.response_body(b'{"usage": "7"}')]


def one_path_only(headers: Any, get: Any, mode: int, data_plane: Any) -> Iterator[list[ProcessingRequest]]:
    """Requests of many kinds, with a subset that none of the usual picks is in."""
    body = data_plane.request_body
    kinds = [
        ((":path", b"/v1/chat/completions"), [body()]),
        ((":path", b"/v1/completions"), [body(b'{"model":"m","stream":true}')]),
        (("content-type", b"text/plain"), [body(b"words")]),
        (("x-trailers", b"1"), [body(end=False), data_plane.request_trailers()]),
        ((":method", b"PATCH"), [body()]),
        ((":path", b"/v1/completions?limit=2"), [body()]),
        (("content-type", b"multipart/form-data; boundary=x"), [body(b"words")]),
        (("content-type", b"application/grpc"), [body(b"\x00")]),
        (("content-type", b"Application/JSON"), [body()]),
        (("x-model", b"unknown"), [body(b'{"model":"no-such-model"}')]),
        ((":path", b"/v1/completions?limit=2"), [body(b'{"model":"no-such-model"}')]),
        (("x-model", b"large"), [body(b'{"model":"no-such-model","prompt":"%s"}' % (b"x" * 70_000))]),
        (("content-type", b"text/plain"), [body(b" words \r\n")]),
        *((("x-model", b"nearly"), [body(b'{"model":"%s"}' % model)]) for model in (b"M", b"", b"m-2", b"n/m")),
    ]
    for extra, messages in kinds:
        for _ in range(len(POOL)):  # equal endpoints take turns
            yield [headers(extra, subset=[C]), *(messages if mode else [])]
    chat = (":path", b"/v1/chat/completions")
    others = [
        ([("x-long", b"x" * 9000)], body()),
        ([(":path", b"/v1/completions?q=100%")], body()),
        ([(":path", b"/v1/completions?q=" + b"x" * 4000)], body()),
        ([(":authority", b"api.example:8443")], body()),
        ([chat, ("x-gateway-destination-endpoint", b"6.6.6.6:1")], body()),
        ([chat], body(b'{"model":"m","messages":[{"role":"user","content":[]}]}')),
        ([(":method", b"POST"), (":path", b"/v1/messages")], body()),
        ([(":path", b"/invocations")], body()),
        ([], body(b'{"model":"m","prompt":["a","b"]}')),
        ([], body(b'{"model":["m"],"prompt":"a"}')),
        ([("content-type", b"text/plain")], body(b"x" * 2 * CHUNK_LIMIT)),
    ]
    for extras, message in others:
        yield [headers(*extras), *([message] if mode else [])]
    for one in (A, C):
        yield [headers(chat, subset=[one]), *([body(b'{"model":"m","messages":[{"content":' + LONG)] if mode else [])]
    for method in (b"OPTIONS", b"DELETE"):
        yield [get((":method", method))]
        for _ in range(len(POOL)):
            yield [get((":method", method), subset=[C])]


def seldom_sent(get: Any, mode: int, data_plane: Any) -> Iterator[list[ProcessingRequest]]:
    """What other metadata, headers, line ends and trailers there may be."""
    for namespace in ("envoy.lb", "envoy.lb.subset_hint"):
        for _ in range(len(POOL)):
            beside = get(subset=[C])
            beside.metadata_context.filter_metadata[namespace].fields["x-other"].string_value = "1"
            yield [beside]
    yield [
        get(
            ("traceparent", b"00-%s-b7ad6b7169203331-01" % (b"0a" * 16)),
            ("tracestate", b"a=1"),
            ("baggage", b"a=1,b=2"),
        )
    ]
    packed = data_plane.request_headers(("content-encoding", b"gzip"), mode=mode)
    yield [packed, *([data_plane.request_body(gzip.compress(b'{"model":"m"}', mtime=0))] if mode else [])]
    not_ended = data_plane.request_headers((":method", b"GET"), mode=mode)
    yield [not_ended, *([data_plane.request_body(b"")] if mode else [])]
    older = get()
    older.request_headers.headers.headers.add(key="x-gateway-destination-endpoint", value="6.6.6.6:1")
    yield [older]
    untyped = data_plane.request_headers(mode=mode)
    del untyped.request_headers.headers.headers[:]
    yield [untyped, *([data_plane.request_body()] if mode else [])]
    response = data_plane.response_headers
    events = [data_plane.response_body(b"data: %d\r\n\r\n" % number, end=number == 2) for number in range(3)]
    yield [get(), response(content_type=b"text/event-stream"), *events]
    yield [get(), response(("set-cookie", b"a"), ("set-cookie", b"b"), ("x-model", b"m")), data_plane.response_body()]
    trailers = data_plane.response_trailers()
    trailers.response_trailers.trailers.headers.add(key="x-took", raw_value=b"1")
    yield [get(), response(), trailers]
    yield [get(), response(), data_plane.response_body(end=False), trailers]


STIMULI: dict[int, list[list[ProcessingRequest]]] = {}


def observe(world: Callable[..., Any], data_plane: Any, parts: Parts, version: str, mode: int) -> list[Any]:
    """What an EPP made of `parts` does about all stimuli; exceptions and the end of the process count too."""
    seen: list[Any] = []
    objectives = {"batch": -1}
    made = world(version, parts=parts, models=frozenset({"m"}), objectives=objectives)

    def note(act: Callable[[], Any]) -> None:
        try:
            said = act()
        except (TypeError, ValueError, SystemExit) as problem:
            seen.append(repr(problem))
        else:
            seen.append(
                [
                    item.SerializeToString(deterministic=True) if isinstance(item, ProcessingResponse) else item
                    for item in said
                ]
            )

    headers = functools.partial(data_plane.request_headers, mode=mode)
    sheddable = ("x-gateway-inference-objective", b"batch")
    body = [data_plane.request_body()] if mode else []
    unknown = [data_plane.request_body(b'{"model":"nope"}')] if mode else []

    options = headers((":method", b"OPTIONS"), end=True)
    for messages in ([headers()], [headers(), *body], [headers(sheddable), *body], [headers(end=True)], [options]):
        note(lambda messages=messages: made.talk(*messages))  # the pool is empty
    made.endpoints(*POOL)
    if mode not in STIMULI:
        STIMULI[mode] = list(conversations(mode, data_plane))
    for messages in STIMULI[mode]:
        note(lambda messages=messages: made.talk(*messages))
    note(lambda: made.talk(headers(), *unknown))
    for index in range(45):
        note(lambda index=index: made.talk(headers(end=True), connection=1 + index % 2))

    aborted = made.open()
    aborted.receive(headers())
    note(lambda: [aborted.finished() or 0])
    note(lambda: made.talk(headers(), *body))

    one = made.open()
    made.streams += 191  # so that both get the same place in every table of 64 or 24 places
    two = made.open()
    same_id = ("x-request-id", b"same")
    note(lambda: [*one.receive(headers(same_id, subset=[A])), *two.receive(headers(same_id, subset=[B]))])
    halves = [data_plane.request_body(half, end=half.endswith(b"}")) for half in (b'{"n":', b"1}")] if mode else []
    for half in halves:
        for conversation in (one, two):
            note(lambda conversation=conversation, half=half: conversation.receive(half))

    both = [made.open(), made.open()]
    for conversation, model in zip(both, (b"m", b"n"), strict=True):
        begin = [headers(), *([data_plane.request_body(b'{"model": "%s"' % model, end=False)] if mode else [])]
        for message in begin:
            note(lambda conversation=conversation, message=message: conversation.receive(message))
    for conversation in both if mode else ():
        note(lambda conversation=conversation: conversation.receive(data_plane.request_body(b"}")))

    waiting = made.open()
    for message in (headers(), *body, data_plane.response_headers()):
        note(lambda message=message: waiting.receive(message))
    seen.append(waiting.impatient)
    held = made.open()
    note(lambda: held.receive(headers()))
    seen.append(held.impatient)

    note(lambda: made.talk(headers(end=True, subset=[A])))
    long = [data_plane.request_body(b'{"model":"m","prompt":[{"text":' + LONG)] if mode else []
    note(lambda: made.talk(headers(subset=[A]), *long))
    made.endpoints(B, C, SIX)
    note(lambda: made.talk(headers(end=True, subset=[A])))
    note(lambda: made.talk(headers(), *long))
    note(lambda: made.talk(headers(), *body))
    for _ in range(len(POOL)):
        note(lambda: made.talk(headers(sheddable, subset=[C]), *body))
    made.load(B, queued=50)
    made.load(C)
    note(lambda: made.talk(headers(subset=[B]), *body))
    made.load(SIX, queued=50)
    note(lambda: made.talk(headers(sheddable, subset=[B]), *body))
    made.load(C, queued=50)
    note(lambda: made.talk(headers(sheddable), *body))
    made.endpoints(B, C)
    note(lambda: made.talk(headers(end=True, subset=[SIX])))
    made.endpoints()
    note(lambda: made.talk(headers(end=True)))
    made.endpoints(B, C)

    for endpoints, synced in (((), False), ((), True), ((*made.pool.endpoints,), True)):
        pool = Pool()
        pool.update(endpoints, synced=synced)
        health = parts.health(pool)
        seen.append([health.status(name) for name in SERVICES])
        pool.update((), synced=synced)  # and then it loses them
        seen.append([health.status(name) for name in SERVICES])
        pool.update(endpoints, synced=True)  # and then it has them
        seen.append([health.status(name) for name in SERVICES])
        seen.append(sorted(health.methods()))
    return seen


@pytest.fixture(scope="module")
def correct() -> dict[tuple[str, int], list[Any]]:
    return {}


@pytest.fixture
def differs(world: Any, data_plane: Any, correct: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    def exit_(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", exit_)

    def compare(deviation: Deviation, version: str, mode: str) -> bool:
        key = (version, MODES[mode])
        if key not in correct:
            correct[key] = observe(world, data_plane, Parts(), *key)
        return observe(world, data_plane, Parts().exchange(*deviation.classes), *key) != correct[key]

    return compare


def test_the_correct_epp_is_deterministic(world: Any, data_plane: Any) -> None:
    first, second = (observe(world, data_plane, Parts(), "1.0.0", 4) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_in_every_version_it_names(name: str, differs: Callable[..., bool]) -> None:
    fault = FAULTS[name]
    assert re.fullmatch(r"(ENV|EPP-[A-Z]+|RAR-[A-Z]+)-\d\d", fault.breaks)
    assert fault.breaks not in fault.also_breaks
    assert all(fault.also_breaks.values())
    assert fault.why.endswith(".")
    assert fault.versions
    assert set(fault.versions) <= set(ALL)
    if name not in ELSEWHERE:
        for version in {fault.versions[0], fault.versions[-1]}:
            assert any(differs(fault, version, mode) for mode in fault.modes[::-1]), (
                f"{name} does not show in {version}"
            )


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_and_serves(name: str, world: Any, data_plane: Any, differs: Any, destination: Any) -> None:
    variant = VARIANTS[name]
    version = variant.versions[-1]
    assert variant.why.endswith(".")
    for mode in variant.modes:
        made = world(version, parts=Parts().exchange(*variant.classes), max_endpoints=4, models=frozenset({"m"}))
        made.endpoints(A, B, C)
        messages = [
            data_plane.request_headers(mode=MODES[mode], subset=[A, C]),
            *([data_plane.request_body()] if mode != "none" else []),
        ]
        said = [item for item in made.talk(*messages) if isinstance(item, ProcessingResponse)]
        answers = [item for item in said if not item.HasField("override_message_timeout")]
        named = [destination(answer) for answer in answers]
        header, metadata = ({value for pair in named if (value := pair[side])} for side in (0, 1))
        assert header == metadata
        assert len(header) == 1
        assert set(header.pop().split(",")) <= ({A, C} if version in WITH_SUBSET else {A, B, C})
        pieces = [item.request_body.response.body_mutation for item in answers if item.HasField("request_body")]
        if mode == "full-duplex":
            assert json.loads(b"".join(piece.streamed_response.body for piece in pieces)) == {
                "model": "m",
                "prompt": "hi",
            }
            assert [piece.streamed_response.end_of_stream for piece in pieces].count(True) == 1
    if name not in ELSEWHERE:
        assert any(differs(variant, version, mode) for mode in [*variant.modes[::-1], "full-duplex", "streamed"])


@pytest.mark.parametrize("name", [name for name, variant in VARIANTS.items() if variant.limits])
def test_a_variant_that_limits_modes_closes_streams_of_others(name: str, world: Any, data_plane: Any) -> None:
    made = world(parts=Parts().exchange(*VARIANTS[name].classes))
    made.endpoints(A)
    for mode in MODES.keys() - set(VARIANTS[name].modes):
        (end,) = made.talk(data_plane.request_headers(end=True, mode=MODES[mode]))
        assert end.code == 9


def test_enough_are_declared() -> None:
    assert len(FAULTS) >= 70
    assert len(VARIANTS) >= 20
    assert not FAULTS.keys() & VARIANTS.keys()
    with pytest.raises(DeviationError, match="did you mean 'no-header'"):
        find("no-headre")
    with pytest.raises(DeviationError, match="--list-variants"):
        find(None, ["xyzzy"])
    with pytest.raises(DeviationError, match=r"'sticky' and 'shuffled-lists' both change Picker\.rank"):
        find(None, ["sticky", "shuffled-lists"])


def test_variants_that_change_different_things_are_one_epp(world: Any, data_plane: Any) -> None:
    names = ["extra-keys", "extra-request-headers", "sticky", "refuses-odd-queries"]

    def said(*chosen: str) -> str:
        made = world(parts=Parts().exchange(*find(None, chosen)))
        made.endpoints(A, B)
        return str(made.talk(data_plane.request_headers(end=True)))

    alone, together = said(), said(*names)
    for name in ("extra-keys", "extra-request-headers"):
        shown = {word for word in said(name).split() if word not in alone.split()}
        assert shown
        assert shown <= set(together.split())


# -- faults and variants of the service


def with_epp(tmp_path: Path, fault: str | None, odd: Sequence[str], act: Callable[[Any], Any]) -> Any:
    (tmp_path / "endpoints").write_text("127.0.0.1:9\n")
    settings = Settings(listen=("127.0.0.1", 0), endpoints_file=tmp_path / "endpoints")

    async def main() -> Any:
        async with (
            running(settings, Parts().exchange(*find(fault, odd))) as addresses,
            grpc.aio.insecure_channel(addresses["address"]) as channel,
        ):
            return await act(channel)

    return asyncio.run(main())


def stream(channel: Any) -> Any:
    method = channel.stream_stream(PROCESS, ProcessingRequest.SerializeToString, ProcessingResponse.FromString)
    return method(timeout=20)


def test_fifty_streams_at_most(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        calls = []
        for _ in range(50):
            calls.append(stream(channel))
            await calls[-1].write(data_plane.request_headers(end=True))
            assert isinstance(await calls[-1].read(), ProcessingResponse)
        assert await stream(channel).code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    with_epp(tmp_path, "fifty-streams-at-most", (), act)


def test_ready_but_unavailable(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        check = channel.unary_unary(CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
        for refused in (False, True, False):
            if refused:
                assert (await check(HealthCheckRequest(service="readiness"))).status == 1
            call = stream(channel)
            if refused:
                assert await call.code() == grpc.StatusCode.UNAVAILABLE
            else:
                await call.write(data_plane.request_headers(end=True))
                assert isinstance(await call.read(), ProcessingResponse)

    with_epp(tmp_path, "ready-but-unavailable", (), act)


def test_slow_is_slow_and_right(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        call = stream(channel)
        await call.write(data_plane.request_headers(end=True))
        assert (await call.read()).HasField("request_headers")

    with_epp(tmp_path, None, ["slow"], act)


def test_a_queue_holds_requests_until_there_is_an_endpoint(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        (tmp_path / "endpoints").write_text("")
        refused = ProcessingResponse()
        while not refused.HasField("immediate_response"):  # it waits three seconds before it says so
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True))
            refused = await call.read()
            call.cancel()
        assert refused.immediate_response.status.code == 503
        call = stream(channel)
        await call.write(data_plane.request_headers(end=True))
        (tmp_path / "endpoints").write_text("127.0.0.1:9\n")
        assert (await call.read()).HasField("request_headers")
        call.cancel()

    with_epp(tmp_path, None, ["queues-until-ready"], act)


@pytest.mark.slow
def test_a_stream_has_five_seconds(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        call = stream(channel)
        await call.write(data_plane.request_headers(end=True))
        assert (await call.read()).HasField("request_headers")
        assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert await call.details() == "deadline exceeded"

    with_epp(tmp_path, "stream-deadline-of-five-seconds", (), act)


def test_a_refusal_is_followed_by_a_reset(tmp_path: Path, data_plane: Any) -> None:
    async def act(channel: Any) -> None:
        call = stream(channel)
        await call.write(data_plane.request_headers())
        await call.write(data_plane.request_body(b"{broken"))
        assert await call.code() == grpc.StatusCode.CANCELLED

    with_epp(tmp_path, "refusal-and-a-reset", (), act)
