"""What machines that share a load say to each other: it arrives as it was said, and what is damaged is refused."""

from __future__ import annotations

import contextlib
import json
from array import array
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import HarnessError, IncompleteError, UsageError
from conformance.evidence.episode import Context, Episode, Expectation, PodFact, PoolState, ProcessExited
from conformance.load.examples import Example, KeptExchange
from conformance.load.generators import Begin, GetReady, Share, ShareEnd, ShareReport, Stop
from conformance.load.memory import MemoryCounts
from conformance.load.mix import Arrivals, LoadFile, MixedRequest
from conformance.load.moments import ShownLoad, State
from conformance.load.settings import LoadSettings
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally
from conformance.load.wire import Message as Known
from conformance.load.wire import WireError, decode, encode
from conformance.scenario.expect import Expect
from conformance.scenario.schema import Exchange
from conformance.targets.profile import Discovery, File, Fixed, Profile, Requests, Start, Timeouts, Tls
from conformance.verdict import Finding, Verdict
from ext_proc.record import Author, Entry, Message

counts = st.integers(0, 2**53)
times = st.lists(st.floats(-1e6, 1e6)).map(lambda values: array("d", values))
names = st.text(max_size=12)
some = st.lists(names, max_size=2).map(tuple)
verdicts = st.sampled_from(Verdict)
pods = st.builds(PodFact, name=names, endpoints=some, ready=st.booleans(), terminating=st.booleans())
events = st.one_of(
    st.builds(Message, stream=st.just("s"), exchange=names, author=st.sampled_from(Author), raw=st.binary()),
    st.builds(PoolState, phase=st.just("effective"), pods=st.lists(pods, max_size=2).map(tuple)),
)
episodes = st.lists(events, max_size=4).map(
    lambda found: Episode(id="a", entries=tuple(Entry(number, number * 7, one) for number, one in enumerate(found)))
)
contexts = st.builds(
    Context, version=st.just("1.0.0"), scenario=st.just("load"), strangers=some,
    expectations=st.sampled_from([{}, {"a": Expectation(answer=("endpoint", "4xx"))}]),
)  # fmt: skip
findings = st.builds(
    Finding, requirement=names, verdict=verdicts, expected=some, actual=st.text(), exchange=st.none() | names,
    seq=st.none() | counts,
)  # fmt: skip
examples = st.builds(Example, finding=findings, episode=st.just("a"), shape=names, second=st.floats(0, 1e6))
ends = st.builds(
    ShareEnd, complete=st.booleans(), examples=st.lists(examples, max_size=2).map(tuple),
    shown=st.builds(KeptExchange, episode=episodes, context=contexts).map(lambda one: {"a": one}),
    vitals=st.dictionaries(names, st.floats(-1e9, 1e9), max_size=3),
)  # fmt: skip
COUNTS = ("stage", "due", "crowded_out", "left_out", "open", "refused", "waited", "memory_bytes")
MEMORY = ("steps", "learned", "exchanges", "judged", "opaque", "forgotten")
memories = st.builds(MemoryCounts, **dict.fromkeys(MEMORY, counts))
reports = st.builds(
    ShareReport, covered=st.floats(0, 1e6),
    totals=st.builds(Totals, **dict.fromkeys(COUNTS, counts), memory=memories),
    tally=st.builds(
        LoadTally.of, counts, counts, counts, st.dictionaries(st.tuples(names, verdicts), counts, max_size=4)
    ),
    begun=counts, by_shape=st.dictionaries(names, counts, max_size=3).map(Counter), unfinished=counts,
    lost_with_process=counts, troubles=st.just(()), times=st.dictionaries(names, times, max_size=3),
    end=st.none() | ends,
)  # fmt: skip
mixes = st.just((
    MixedRequest(name="empty-hint", exchange=Exchange(hint=None)),
    MixedRequest(name="sse", weight=2, exchange=Exchange.model_validate({"reply": {"kind": "sse", "events": 3}})),
    MixedRequest(name="large", exchange=Exchange.model_validate({"body": {"size": 10_000}}), service_time=1.5),
    MixedRequest(name="subset", subset_of=3, expect=Expect(answer=("endpoint", "4xx"))),
    MixedRequest(name="ending", exchange=Exchange.model_validate({"ending": "drain", "headers": [["x", "é"]]})),
))  # fmt: skip
arrivals = st.just((
    Arrivals(seconds=3, rate=(1, 5)), Arrivals(seconds=0.5, rate=7), Arrivals(seconds=1, burst=5),
    Arrivals(seconds=2, concurrent=3),
))  # fmt: skip
profiles = st.sampled_from([
    Profile(discovery=Discovery(fixed=Fixed(endpoints=("10.0.0.1:8000",)))),
    Profile(
        discovery=Discovery(file=File(template="{{ endpoints }}")), timeouts=Timeouts(answer=3),
        requests=Requests(secret_headers={"authorization": "Bearer x"}), tls=Tls(mode="verified", ca="/ca.pem"),
        body_modes=("buffered", "full-duplex"),
    ),
])  # fmt: skip
shares = st.builds(
    Share,
    settings=st.builds(
        LoadSettings, profile=profiles, version=names, values=st.just({}),
        file=st.builds(LoadFile, mix=mixes, arrivals=arrivals), seed=st.integers(0, 2**32),
        at_once=st.integers(1, 10**5), memory=counts, index=st.integers(0, 63), of=st.integers(1, 64), head=names,
    ),
    address=names, endpoints=st.dictionaries(names, st.lists(names).map(tuple), max_size=3),
    pool=st.builds(
        State, st.lists(pods, max_size=3).map(tuple),
        st.dictionaries(names, st.builds(ShownLoad, *4 * [st.booleans()]), max_size=2),
    ),
    grace=st.floats(0, 3600),
)  # fmt: skip
exits = st.builds(ProcessExited, pid=counts, code=st.integers(-64, 255), asked=st.booleans(), output=st.text())
messages = st.one_of(shares, reports, exits, st.sampled_from([GetReady(), Begin(), Stop()]))

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(messages)
def test_messages_arrive_unchanged(message) -> None:
    heard = decode(encode(message))
    assert type(heard) is type(message)
    assert encode(heard) == encode(message)
    if isinstance(message, ShareReport):
        assert heard.tally.counts == message.tally.counts
        assert (heard.totals, heard.times, heard.by_shape, heard.end) == (
            message.totals, message.times, message.by_shape, message.end,
        )  # fmt: skip
    elif isinstance(message, Share):
        assert heard.settings == message.settings
        assert (heard.pool.pods, heard.pool.loads) == (message.pool.pods, message.pool.loads)
        given = [one.exchange.model_fields_set for one in message.settings.file.mix]
        assert [one.exchange.model_fields_set for one in heard.settings.file.mix] == given
    else:
        assert heard == message


@pytest.mark.parametrize("kind", [UsageError, HarnessError, IncompleteError])
@given(text=st.text(), hint=st.text())
def test_errors_arrive_with_their_type(kind, text: str, hint: str) -> None:
    heard = decode(encode(kind(text, hint=hint)))
    assert type(heard) is kind
    assert (heard.message, heard.hint) == (text, hint)


@given(messages, st.data())
def test_damaged_messages_are_refused_or_have_a_known_form(message, data) -> None:
    raw = bytearray(encode(message))
    start = data.draw(st.integers(0, len(raw)))
    raw[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    with contextlib.suppress(WireError):
        assert isinstance(decode(bytes(raw)), get_args(Known))


@given(st.binary() | anything.map(lambda value: json.dumps(value).encode()))
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError, match="can't be read"):
        decode(raw)


def a_report(**fields) -> ShareReport:
    filled = {"covered": 1.0, "totals": Totals(), "tally": LoadTally(), "begun": 0, "by_shape": Counter()}
    return ShareReport(**filled, unfinished=0, lost_with_process=0, troubles=(), **{"times": {}, **fields})


@pytest.mark.parametrize("times", ["AAAA", "x", "AAAAAAAA+H8=", "AAAAAAAA8H8="])  # no times, no base64, no number
def test_invalid_times_are_refused(times: str) -> None:
    plain = json.loads(encode(a_report(times={"pick": array("d", [1.0])})))
    plain["times"]["pick"] = times
    with pytest.raises(WireError):
        decode(json.dumps(plain).encode())


def test_an_example_comes_with_its_exchange() -> None:
    example = Example(finding=Finding(requirement="A", verdict=Verdict.FAIL), episode="e1", shape="a", second=1.0)
    end = ShareEnd(complete=True, examples=(example,), shown={}, vitals={})
    with pytest.raises(WireError, match="e1 is named as an example"):
        decode(encode(a_report(end=end)))


def test_the_start_command_is_not_sent() -> None:
    profile = Profile(start=Start(command=("epp",), env={"TOKEN": "secret"}), discovery=Discovery(file=File()))
    file = LoadFile(mix=(MixedRequest(name="a"),))
    settings = LoadSettings(profile=profile, version="1.0.0", values={"workdir": "/w"}, file=file, seed=1)
    share = Share(settings=settings, address="h:1", endpoints={}, pool=State((), {}), grace=1.0)
    assert b"secret" not in encode(share)
