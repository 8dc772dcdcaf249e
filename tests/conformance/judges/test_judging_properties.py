"""For any conversation, the judges never raise, always give the same findings, and lose nothing."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import (
    BODY,
    Script,
    body_answer,
    echo,
    headers_answer,
    immediate,
    option,
    streamed,
    trailers_answer,
)

from conformance.evidence import episode as episodes
from conformance.evidence.episode import BackendFact, Claims, Context, Episode, Expectation, GatewayFacts
from conformance.judges import JUDGES, judge, unweighed
from conformance.judges.episode_view import EpisodeView
from conformance.reading.bodies import Sameness, compare
from conformance.reading.endpoints import canonical, parse, parse_list
from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.verdict import Verdict
from ext_proc.messages import ProcessingResponse
from ext_proc.record import DRAINING, Author, Malformed, Wait

A, B = "10.0.0.1:8000", "[fd00::1]:8000"
CATALOGUE = Catalogue.load()

values = st.one_of(
    st.sampled_from([A, B, f"{A},{B}", "", ",", " ", "10.0.0.1", "x", f" {A} "]), st.text(max_size=20)
).map(lambda text: text.encode("utf-8", "ignore").decode())
hints = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(values, inner, max_size=2),
    max_leaves=4,
)
bodies = st.one_of(st.just(BODY), st.binary(max_size=40), st.just(b"[" * 2000))
messages = st.one_of(
    st.builds(headers_answer, st.none() | values, side=st.sampled_from(["request", "response"])),
    st.builds(
        headers_answer, header=st.none() | values, metadata=st.none() | values, remove=st.lists(values, max_size=2)
    ),
    st.builds(
        headers_answer,
        metadata=st.dictionaries(
            st.sampled_from(["envoy.lb", "x-gateway-destination-endpoint", "o"]), hints, max_size=2
        ),
        options=st.lists(st.builds(option, values, values, append_action=st.integers(0, 5)), max_size=3),
    ),
    st.builds(streamed, bodies, side=st.sampled_from(["request", "response"]), end=st.booleans()),
    st.builds(body_answer, side=st.sampled_from(["request", "response"])),
    st.builds(trailers_answer, side=st.sampled_from(["request", "response"])),
    st.builds(immediate, st.none() | st.integers(-5, 1000)),
    st.just(ProcessingResponse()),
    st.binary(max_size=60),
)
WAITS = ("answer to request_headers", "answer to response_body", "echo of response", DRAINING)
steps = st.one_of(
    st.tuples(st.just("answers"), messages),
    st.tuples(st.just("request_headers"), st.booleans()),
    st.tuples(st.just("response_headers"), st.tuples(st.booleans(), hints)),
    st.tuples(st.just("chunk"), st.tuples(bodies, st.sampled_from(["request", "response"]), st.booleans())),
    st.tuples(st.just("trailers"), st.sampled_from(["request", "response"])),
    st.tuples(st.just("raw"), st.binary(max_size=30)),
    st.tuples(st.just("cut"), st.tuples(messages, st.integers(0, 12))),
    st.tuples(st.just("wait"), st.tuples(st.sampled_from(WAITS), st.booleans())),
    st.tuples(st.just("end"), st.sampled_from(["drained", "closed", "reset", "lost", "refused", "aborted", "error"])),
    st.tuples(st.just("malformed"), st.binary(max_size=5)),
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("asks"), st.sampled_from(["first", "second"])),
    st.tuples(st.just("upstream"), st.tuples(st.sampled_from([A, B, "x"]), st.sampled_from(["response", "reset"]))),
    st.tuples(st.just("client"), st.sampled_from([None, 200, 503])),
    st.tuples(st.just("conduct"), st.sampled_from(["serves", "refuses", "resets", "503"])),
    st.tuples(st.just("epps"), st.booleans()),
)  # fmt: skip
exchanges = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["NONE", "STREAMED", "BUFFERED", "FULL_DUPLEX_STREAMED", "BUFFERED_PARTIAL", "?"]),
        "ending": st.sampled_from(["drain", "envoy"]),
        "method": st.sampled_from(["GET", "POST"]),
        "protocol_config": st.just(False),
        "hint_on": st.sampled_from(["every", "headers", "body"]),
        "note": st.sampled_from([{}, {"sheddable": True}, {"unknown_model": True}, {"settling": True}]),
        "opened": st.booleans(),
        "stream": st.booleans(),
        "epp": st.sampled_from(["", "first"]),
        "headers": st.sampled_from([(), ((b"x-gateway-destination-endpoint", A.encode()),)]),
    },
    optional={"subset": hints},
)


def play(script, one, step):
    kind, what = step
    match kind:
        case "request_headers":
            one.request_headers(end=what)
        case "response_headers":
            one.response_headers(end=what[0], served=what[1])
        case "chunk":
            one.chunk(what[0], side=what[1], end=what[2])
        case "trailers":
            one.trailers(side=what)
        case "raw":
            one.raw(what, Author.DATA_PLANE)
        case "cut":
            raw = what[0] if isinstance(what[0], bytes) else what[0].SerializeToString()
            one.raw(raw[: what[1]], Author.EPP, size=len(raw))
        case "wait":
            one.emit(Wait(exchange=one.name, what=what[0], outcome="expired" if what[1] else "met"))
        case "end":
            one.closed(13) if what == "error" else getattr(one, what)()
        case "malformed":
            one.emit(Malformed(exchange=one.name, stream=one.stream, author=Author.EPP, raw=what, reason="odd"))
        case "crash":
            script.crashed()
        case "upstream":
            one.upstream(what[0], outcome=what[1])
        case "conduct":
            script.conduct(a=what)
        case "epps":
            script.epps(first=what)
        case _:
            getattr(one, kind)(what)


@st.composite
def scripts(draw):
    pool = draw(st.sampled_from([None, {}, {"a": A, "b": B}, {"a": (A, "10.0.0.1:8001")}]))
    script = Script(pool=pool)
    open_ones = [script.exchange(**arguments) for arguments in draw(st.lists(exchanges, min_size=1, max_size=3))]
    for number, step in draw(st.lists(st.tuples(st.integers(0, 2), steps), max_size=14)):
        play(script, open_ones[number % len(open_ones)], step)
    return script


contexts = st.builds(
    Context,
    version=st.sampled_from(VERSIONS),
    scenario=st.just("s"),
    requirements=st.sampled_from([(), ("ENV-27", "EPP-SUB-10")]),
    stimulus=st.sampled_from(["contract", "off-contract"]),
    claims=st.sampled_from([Claims(), Claims(sheds=True, queues=True, body_rewrites=("model",))]),
    expectations=st.sampled_from(
        [{}, {"x1": Expectation(answer=("endpoint", "4xx"), within=(A,), status=(200,), served_by=(A,))}]
    ),
    role=st.sampled_from(["epp", "data-plane"]),
    gateway=st.sampled_from(
        [
            None,
            GatewayFacts(retries=2, retry_statuses=(503,), sends_subset=True, failure_mode="open"),
            GatewayFacts(
                follows="header",
                backends=(BackendFact(epp="first", endpoints=(A,)), BackendFact(epp="second", endpoints=(B,))),
            ),
        ]
    ),
)

quick = settings(suppress_health_check=list(HealthCheck))


@quick
@given(scripts(), contexts)
def test_never_raises_and_is_deterministic(script, context):
    first = judge(script.episode, context, CATALOGUE)
    assert judge(script.episode, context, CATALOGUE) == first
    assert all(CATALOGUE.effect(finding.requirement, context.version) for finding in first)
    assert all(finding.expected and finding.actual for finding in first if finding.verdict is Verdict.FAIL)
    sequence = {entry.seq for entry in script.entries}
    assert all(finding.seq in sequence for finding in first if finding.seq is not None)


@quick
@given(scripts(), contexts)
def test_judging_the_evidence_again_gives_the_same(script, context):
    written = json.loads(json.dumps(episodes.to_json(script.episode, context)))
    episode, read = episodes.from_json(written)
    assert judge(episode, read, CATALOGUE) == judge(script.episode, context, CATALOGUE)


@quick
@given(scripts(), contexts)
def test_judges_keep_to_their_requirements(script, context):
    episode_view = EpisodeView(script.episode, context, CATALOGUE)
    spoken_of = {requirement for one in JUDGES.values() for requirement in one.requirements}
    for one in JUDGES.values():
        assert {finding.requirement for finding in _given_by(one, episode_view)} <= set(one.requirements), one.name
    expected = {e.requirement or (context.requirements or (None,))[0] for e in context.expectations.values()}
    assert {finding.requirement for finding in unweighed(episode_view)} <= spoken_of | expected


def _given_by(one, episode_view):
    if one.of_episode:
        return one.of_episode(episode_view)
    if one.of_gateway_exchange:
        return (
            finding
            for one_exchange in episode_view.gateway_exchanges
            for finding in one.of_gateway_exchange(one_exchange)
        )
    return (finding for view in episode_view.exchanges for finding in one.of_exchange(view))


@quick
@given(st.lists(st.binary(max_size=200), max_size=6), st.sampled_from(VERSIONS))
def test_arbitrary_bytes_of_an_epp(raws, version):
    script = Script(pool={"a": A})
    one = script.exchange().request(BODY)
    one.answers(*raws).drained()
    judge(script.episode, Context(version=version, scenario="s"), CATALOGUE)


@quick
@given(
    st.binary(max_size=400).filter(bool),
    st.integers(1, 9),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["request", "response"]),
)
def test_however_a_body_is_cut_its_echo_is_right(body, chunks, answers, trailers, side):
    script = Script(pool={"a": A})
    one = script.exchange()
    sent = body if side == "request" else BODY
    one.request(sent, chunks=chunks, trailers=trailers and side == "request").answers(headers_answer(A))
    one.answers(*echo(sent, chunks=answers, end=not (trailers and side == "request")))
    if trailers and side == "request":
        one.answers(trailers_answer())
    if side == "response":
        one.response_headers(content_type="application/octet-stream").answers(headers_answer(side="response"))
        one.body(body, side="response", chunks=chunks, trailers=trailers)
        one.answers(*echo(body, side="response", chunks=answers, end=not trailers))
        if trailers:
            one.answers(trailers_answer(side="response"))
    one.drained()
    findings = judge(script.episode, Context(version="next", scenario="s"), CATALOGUE)
    assert [finding for finding in findings if finding.verdict in (Verdict.FAIL, Verdict.WARN)] == []
    assert Verdict.PASS in {finding.verdict for finding in findings if finding.requirement == "ENV-09"}


@given(st.lists(scripts().map(lambda script: script.entries), max_size=2))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_any_prefix_of_an_episode_can_be_judged(logs):
    for entries in logs:
        for end in range(len(entries)):
            judge(Episode(id="cut", entries=entries[:end]), Context(version="1.0.0", scenario="s"), CATALOGUE)


# -- what judges parse -------------------------------------------------------------------------------------------------


@given(st.text(max_size=40))
def test_endpoints_never_raise(text):
    found = parse(text)
    assert (found.canonical is None) == bool(found.problem)
    assert len(parse_list(text).items) == text.count(",") + 1


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_endpoint_is_understood(address, port):
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    assert parse(text).canonical == canonical(text) == canonical(canonical(text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(json_values)
def test_json_serialized_again_is_the_same(value):
    sent = json.dumps(value, indent=1).encode()
    got = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if b"\xed" not in got:
        assert compare(sent, got).sameness in (Sameness.BYTES, Sameness.VALUE)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_comparisons_never_raise(sent, got):
    assert (compare(sent, got).sameness is Sameness.BYTES) == (sent == got)
    compare(sent, got, claims=("a",), events=True)
