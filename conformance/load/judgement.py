"""Verdicts of whole exchanges, and what they depend on beside the exchange itself: the pool as it was.

An exchange of the load path is judged by all judges, as the only one of its episode. Of the pool they see what an
exchange may rightly have acted on (`Window`); equal circumstances of the endpoints that the exchange names give equal
verdicts, whatever else became of the pool.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from conformance.evidence.episode import Context, Episode, Expectation, GaugesShown, HarnessTrouble, PoolState
from conformance.judges import Rules, judge
from conformance.load.moments import Window
from conformance.load.steps import EXCHANGE
from conformance.reading.endpoints import parse, read_leniently
from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.verdict import ACCUSING, UNJUDGED, Finding, Verdict
from ext_proc.messages import ProcessingResponse
from ext_proc.record import Author, Entry, Event, Message, UpstreamRequest, Wait

TELLING = (*ACCUSING, *UNJUDGED)
"""Findings that are shown; of the others there is only a count."""

Counts: TypeAlias = tuple[tuple[str, Verdict], ...]
"""Requirement and verdict of every finding, sorted."""

_PORT = re.compile(rb":[0-9]{1,5}(?![0-9])")
_ADDRESS = re.compile(rb"[0-9A-Fa-f.:\[\]]+\Z")
_LONGEST = 48
"""Characters of the longest address."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """What the judges said of one exchange: requirement and verdict of every finding, and the telling ones in full."""

    counts: Counts
    telling: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Judgement:
        """What `findings` come to."""
        found = tuple(findings)
        return cls(
            counts=_one_of(tuple(sorted((one.requirement, one.verdict) for one in found))),
            telling=tuple(one for one in found if one.verdict in TELLING),
        )

    @property
    def failed(self) -> bool:
        """Whether a requirement was broken."""
        return any(one.verdict is Verdict.FAIL for one in self.telling)

    @property
    def undecided(self) -> bool:
        """Whether it did not fail and can't be said to conform: something of it was inconclusive or an error."""
        return not self.failed and any(one.verdict in UNJUDGED for one in self.telling)


@functools.lru_cache(maxsize=1024)
def _one_of(counts: Counts) -> Counts:
    """Equal counts as one object: those of thousands of remembered verdicts are few, and some 3 kB each."""
    return counts


class Bench:
    """Judges single exchanges by `context` and `rules`."""

    def __init__(self, context: Context, rules: Rules) -> None:
        self.context = context
        self._rules = rules
        self.judged = 0
        """How often the judges were asked."""

    def judge(self, on: Episode, context: Context | None = None) -> Judgement:
        """Judge the exchange of an episode; `context`: what it is judged by, if that is not the load's."""
        self.judged += 1
        return Judgement.of(self.findings(on, context or self.context))

    def findings(self, on: Episode, context: Context) -> tuple[Finding, ...]:
        """What the judges say of an episode."""
        return judge(on, context, self._rules)

    def context_of(self, exchange: str, answers: Sequence[str], strangers: Sequence[str]) -> Context:
        """The context of an exchange by that name. `answers`: see `Expectation`; `strangers`: see `Context`."""
        if not answers and not strangers:
            return self.context
        expectations = {exchange: Expectation(answer=tuple(answers))} if answers else {}
        return replace(self.context, expectations=expectations, strangers=tuple(strangers))


def episode(
    events: Sequence[Event],
    window: Window | None,
    mentions: Sequence[str],
    *,
    service_time: float = 0.0,
    silent: float = 1.0,
    name: str = EXCHANGE,
    trouble: str = "",
) -> Episode:
    """The episode of one exchange: what the pool may have been, then what happened.

    `window`: None if the pool was not observed. `mentions`: the endpoints that the exchange names (`mentioned`).
    `service_time`: seconds that each attempt took to answer. `silent`: the part of its deadline in which the target
    gave no answer (`DueStep`). `trouble`: what the harness could not do meanwhile; then nothing is held against the
    target.
    """
    before: list[Event] = []
    if window is not None:
        first, *others = window.states
        if former := window.former(mentions):
            before.append(PoolState(phase="effective", pods=former))
        before.append(PoolState(phase="effective", pods=first.pods))
        before += [PoolState(phase="asked", pods=other.pods) for other in others]
        before += [GaugesShown(pod=pod, values=values) for pod, values in window.gauges.items()]
    after = [HarnessTrouble(exchange=name, what=trouble)] if trouble else []
    log = (*before, *events, *after)
    entries, passed = [], 0
    for seq, event in enumerate(log, 1):
        if isinstance(event, Wait) and event.outcome == "expired":
            share = silent if event.what.startswith(AWAITED_ANSWER) else 1.0
            passed += round(share * event.seconds * 1e9)  # a record without a clock: no time passes but that of waits
        entries.append(Entry(seq, passed, event))
        if isinstance(event, UpstreamRequest):
            passed += round(service_time * 1e9)
    return Episode(id=name, entries=tuple(entries))


def mentioned(events: Iterable[Event], subset: Sequence[str]) -> tuple[str, ...]:
    """Every endpoint that the EPP's messages or the subset hint name, or may be read to name, in canonical spelling,
    sorted."""
    texts = {item for text in subset for item in text.split(",")}
    for event in events:
        if isinstance(event, Message) and event.author is Author.EPP:
            texts |= set(_endpoints(event.raw))
    return tuple(sorted({parse(text).canonical or read_leniently(text) or text.strip() for text in texts}))


def _endpoints(raw: bytes) -> Iterator[str]:
    """What may be an endpoint in any text of a message; judges read nothing of one that can't be decoded."""
    try:
        message = ProcessingResponse.FromString(raw)
    except DecodeError:
        return
    for text in _texts(message):
        for port in _PORT.finditer(text):
            address = _ADDRESS.search(text[max(0, port.start() - _LONGEST) : port.start()])
            if address is not None:
                yield (address[0] + port[0]).decode()


def _texts(value: Any) -> Iterator[bytes]:
    """The texts in a value of a message, one by one: on the wire a length or tag beside one may look like its digit."""
    match value:
        case bytes():
            yield value
        case str():
            yield value.encode()
        case Protobuf():
            for _, inner in value.ListFields():
                yield from _texts(inner)
        case Mapping():
            for pair in value.items():
                yield from _texts(pair)
        case Sequence():
            for inner in value:
                yield from _texts(inner)
