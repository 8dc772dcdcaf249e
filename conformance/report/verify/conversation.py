"""Whether an episode is one of its scenario: its context, its pool, its exchanges in number and order, its times.

What a client sends is drawn from seed, scenario, body mode, step and repeat. So a conversation of another scenario, or
of a run with another seed, does not have the prompts that this one must have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence

from conformance.evidence.episode import (
    Context,
    Episode,
    Expectation,
    HealthProbe,
    PoolState,
    StartAttempt,
)
from conformance.evidence.model_server import ServerAsked
from conformance.planning.data_plane import DataPlaneChoice
from conformance.printable import plural
from conformance.report.document.blocks import Topology
from conformance.report.document.model import Report
from conformance.report.verify import (
    backends,
    course,
    early_end,
    epp_script,
    gauges,
    hints,
    pacing,
    pool_states,
    replies,
    server_episode,
    stimulus,
    through_envoy,
    unheard,
)
from conformance.report.verify.expected import Planned
from conformance.report.verify.steps import short
from conformance.report.verify.stimulus import Learned
from conformance.report.verify.told import Told
from conformance.scenario import references
from conformance.scenario.expect import Expect
from conformance.scenario.schema import BodySpec, ClientRequest, Exchange, Request, Step
from conformance.scenario.seeded import source_of
from ext_proc.record import Author, Entry, ExchangeOpened, Message, StreamEnded, UpstreamRequest, Wait

_REQUEST_BODY = b"\x22"
"""How a ProcessingRequest with a body of the request begins."""

_WINDOW = 4096
"""Bytes in which the prompt is: it comes first."""

LATE = 2.0
"""Seconds by which clocks may differ that were read one after the other."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Due:
    """An exchange that a scenario has: of which step, the number of its repeat."""

    number: int
    step: Step
    repeat: int


def problems(
    planned: Planned, episode: Episode, context: Context, report: Report, seconds: float, learned: Learned
) -> Iterator[str]:
    """What speaks against `episode` being the one of `planned` that took so many seconds.

    `learned` is what the episodes before showed of requests to the target, and learns from this one.
    """
    yield from _context(planned, episode, context, report, learned)
    if not planned.generated and not all(map(learned.same, *_shared(planned.version, episode))):
        yield "other episodes of the same target have other pods, gauges or processes in the same entry of the log"
    if not planned.generated:
        steps, early = planned.work.instance.scenario.steps, early_end.ended_early(episode)
        numbered = _numbered(episode) or []
        due = _due(steps, numbered)
        begun = [(one.number, entries[0].seq) for one, (_, entries) in zip(due, numbered, strict=False)]
        fixed = isinstance(around := report.environment.topology, Topology) and around.discovery == "fixed"
        yield from pool_states.problems(planned, episode, begun, ended_early=early, fixed=fixed)
        yield from course.doings(steps, episode, begun, ended_early=early)
        yield from course.meanwhile(numbered, episode)
    yield from _exchanges(planned, episode, context, report, learned)
    yield from server_episode.problems(planned.work, episode, report)
    yield from _times(episode, report, seconds)


def _shared(version: str, episode: Episode) -> tuple[list[Hashable], list[Entry]]:
    """What concerns all exchanges is in each episode that it happened in: by target and place in the log."""
    common = [entry for entry in episode.entries if entry.event.exchange is None]
    return [("log", version, episode.id.partition("-")[0], entry.seq) for entry in common], common


# -- context -----------------------------------------------------------------------------------------------------------


def _context(planned: Planned, episode: Episode, context: Context, report: Report, learned: Learned) -> Iterator[str]:
    scenario, basis = planned.work.instance.scenario, report.plan
    assert basis is not None, "without it there is no plan"
    wanted = {
        "version": planned.version,
        "scenario": planned.work.id,
        "requirements": scenario.requirements,
        "stimulus": scenario.stimulus,
        "provisional": scenario.provisional,
        "destination_namespace": basis.destination_namespace,
        "subset_namespace": basis.subset_namespace,
        "deadline": basis.deadline,
        "role": report.implementation.role,
    }
    for name, value in wanted.items():
        if getattr(context, name) != value:
            yield f"its evidence has the {name} {short(getattr(context, name))}, its scenario {short(value)}"
    if context.stated != report.claims:
        yield "was judged with other claims than the report has"
    if basis.gateway is not None:
        yield from backends.problems(context, episode, basis.gateway, scenario.pool, learned)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def _exchanges(planned: Planned, episode: Episode, context: Context, report: Report, learned: Learned) -> Iterator[str]:
    numbered = _numbered(episode)
    if numbered is None:
        yield "its evidence has exchanges whose ids do not count from 1"
        return
    steps, ended_early = planned.work.instance.scenario.steps, early_end.ended_early(episode)
    due = list(_due(steps, numbered))
    if len(numbered) != len(due) and not (len(numbered) < len(due) and ended_early):
        yield f"its evidence has {plural(len(numbered), 'exchange')}, its scenario {len(due)}"
        return
    sent = [(one.step, entries) for (_, entries), one in zip(numbered, due, strict=False)]
    yield from early_end.problems(steps, sent, episode, asked=_asked_about(report))
    strangers = set(context.expectations) - {name for name, _ in numbered}
    if strangers:
        yield f"its evidence expects something of exchanges that it has not: {short(sorted(strangers))}"
    if planned.pool is not None:
        begun = [
            (name, one.number, entries[0].seq)
            for (name, entries), one in zip(numbered, due, strict=False)
            if one.step.exchange is not None
        ]
        yield from gauges.problems(planned.pool, steps, episode, begun)
    for number, step in enumerate(steps):
        if step.exchange is not None and step.exchange.interleaved and _asked_about(report):
            alike = [entries for (_, entries), one in zip(numbered, due, strict=False) if one.number == number]
            yield from pacing.interleaved(alike)
    for (name, entries), one in zip(numbered, due, strict=False):
        expectation = context.expectations.get(name)
        wanted = None if one.step.expect is None else _expectation(one.step.expect, _endpoints(episode, entries[0].seq))
        if not _alike(expectation, wanted, episode):
            yield f"{name}: its evidence expects {short(expectation)}, its scenario {short(wanted)}"
        found = _stimulus(
            planned, one, entries, report, _endpoints(episode, entries[-1].seq), learned, ended_early=ended_early
        )
        yield from (f"{name}: {problem}" for problem in found)
        if one.step.exchange is not None:
            known = _endpoints(episode, entries[-1].seq)
            found = hints.problems(one.step.exchange, one.repeat, entries, known, context.subset_namespace)
            yield from (f"{name}: {problem}" for problem in found)


def _numbered(episode: Episode) -> list[tuple[str, tuple[Entry, ...]]] | None:
    """The exchanges in the order of their numbers; None if one is missing or strange. Polls of the suite have none."""
    found: dict[int, tuple[str, tuple[Entry, ...]]] = {}
    for name, entries in episode.exchanges.items():
        if not any(
            isinstance(entry.event, ExchangeOpened | HealthProbe | StartAttempt | ServerAsked) for entry in entries
        ):
            continue
        prefix, _, number = name.rpartition(".")
        if prefix != episode.id:
            continue
        if not number.isdecimal() or len(number) > 6:
            return None
        found[int(number)] = (name, entries)
    return [found[number] for number in sorted(found)] if sorted(found) == list(range(1, len(found) + 1)) else None


def cut_short(planned: Planned, episode: Episode) -> bool:
    """Whether an episode has fewer exchanges than its scenario: then something in it must have ended it."""
    whole = sum(1 for _ in _due(planned.work.instance.scenario.steps, ()))
    return len(_numbered(episode) or ()) < whole


def asked_about(planned: Planned, episode: Episode, report: Report) -> list[str]:
    """The exchanges in which a data plane asked the EPP under test until it answered."""
    numbered = _numbered(episode) or []
    if report.implementation.role != "epp" or early_end.ended_early(episode):
        return []
    due = _due(planned.work.instance.scenario.steps, numbered)
    pairs = ((name, one.step.exchange) for (name, _), one in zip(numbered, due, strict=False))
    mode = planned.work.mode
    return [name for name, exchange in pairs if exchange is not None and unheard.must_be(exchange, mode)]


def _in_vain(entries: Sequence[Entry]) -> bool:
    """Whether an exchange waited in vain for its answer, which is a failure."""
    events = (entry.event for entry in entries)
    return any(isinstance(one, Wait) and one.outcome == "expired" and one.what[:7] == "answer " for one in events)


def _due(steps: Sequence[Step], numbered: Sequence[tuple[str, Sequence[Entry]]]) -> Iterator[_Due]:
    """The exchanges that must be there, where those that there are (`numbered`) waited in vain, or not.

    Each of the requests that a step sends at a time goes on to the next repeat only if it was answered.
    """
    in_vain, sent = [_in_vain(entries) for _, entries in numbered], 0
    for number, step in enumerate(steps):
        request = step.exchange or step.request or step.ask
        if request is not None:
            hanging = 0
            for repeat in range(request.repeat):
                yield _Due(number, step, repeat)
                hanging += sent < len(in_vain) and in_vain[sent]
                sent += 1
                if hanging == getattr(request, "concurrent", 1):
                    break
        elif step.health is not None or step.start_with is not None:
            yield _Due(number, step, 0)
            sent += 1


class _Endpoints(dict[str, tuple[str, ...]]):
    """Endpoints of pods; those that the evidence does not name are `hints.ANY`."""

    def __missing__(self, name: str) -> tuple[str, ...]:
        return tuple(f"{hints.ANY}{name}:{port}" for port in range(1, 10))


def _endpoints(episode: Episode, before: int) -> _Endpoints:
    found = _Endpoints()
    for entry, state in episode.of(PoolState):
        if entry.seq < before or not found:
            found.update({fact.name: fact.endpoints for fact in state.pods})
    return found


def _expectation(expect: Expect, endpoints: Mapping[str, tuple[str, ...]]) -> Expectation:
    def several(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else value or ()

    return Expectation(
        answer=several(expect.answer),
        within=None if expect.within is None else references.resolve(expect.within, endpoints),
        absent=references.resolve(expect.absent, endpoints),
        status=(expect.status,) if isinstance(expect.status, int) else expect.status or (),
        health=several(expect.health),
        served_by=None if expect.served_by is None else references.resolve(expect.served_by, endpoints),
        report=expect.reported,
        starts=expect.starts,
        requirement=expect.requirement,
    )


def _alike(found: Expectation | None, wanted: Expectation | None, episode: Episode) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if found.status != wanted.status and not (found.status == () and early_end.skipped(episode)):
        return False
    return all(
        hints.same(getattr(found, name), getattr(wanted, name))
        for name in ("answer", "within", "absent", "health", "served_by", "report", "starts", "requirement")
    )


def _stimulus(
    planned: Planned,
    one: _Due,
    entries: Sequence[Entry],
    report: Report,
    endpoints: Mapping[str, tuple[str, ...]],
    learned: Learned,
    *,
    ended_early: bool,
) -> Iterator[str]:
    """What the client sent, as far as it follows from scenario and seed, and how it went on."""
    asked = next((entry.event for entry in entries if isinstance(entry.event, ServerAsked)), None)
    if asked is not None and one.step.ask is not None:
        yield from server_episode.stimulus(one.step.ask, asked, planned.work, one.number, one.repeat, report)
        return
    if asked is not None or one.step.ask is not None:
        yield "a request to another kind of target than its scenario's"
        return
    request: ClientRequest | None = one.step.exchange or one.step.request
    opened = next((entry.event for entry in entries if isinstance(entry.event, ExchangeOpened)), None)
    if request is None:
        if opened is not None:
            yield "an HTTP request where the scenario has a health check"
        yield from course.probe(planned.work.instance.scenario.steps, one.number, entries)
        return
    if opened is None:
        yield "a health check where the scenario has an HTTP request"
        return
    http = {"flag": 2, "empty": 1}.get(request.end, request.http)
    if (opened.method, opened.http) != (request.method, http):
        was = f"{opened.method} over HTTP/{opened.http}"
        yield f"its evidence has {short(was)}, its scenario {request.method} over HTTP/{http}"
    asked_about, around = _asked_about(report), report.environment.topology
    choice = DataPlaneChoice.named(around.data_plane) if isinstance(around, Topology) else DataPlaneChoice()
    yield from course.problems(request, opened, entries, asked=isinstance(request, Exchange), ended_early=ended_early)
    prompt = _prompt(planned, one, request, report.environment.seed)
    if prompt is not None and not _says(entries, prompt):
        yield f"its body does not have the prompt that seed {report.environment.seed} gives"
    work, told = planned.work, Told(entries)
    yield from stimulus.problems(
        request,
        opened,
        entries,
        told,
        repeat=one.repeat,
        mode=work.mode,
        source=source_of(report.environment.seed, work.instance.id, work.mode, one.number, one.repeat),
        endpoints=endpoints,
        plane="gateway" if isinstance(request, Request) else "fake" if asked_about else "envoy",
        choice=choice,
        learned=learned,
    )
    basis = report.plan
    assert basis is not None, "without it there is no plan"
    if isinstance(request, Request):
        namespace, hidden = basis.destination_namespace, learned.hidden
        yield from epp_script.problems(
            request, one.repeat, entries, endpoints, namespace, hidden, ended_early=ended_early
        )
    elif asked_about and isinstance(request, Exchange):
        yield from pacing.of_response(request, opened, entries, told)
        yield from pacing.served(request, entries, told, endpoints, basis.destination_namespace)
    elif isinstance(request, Exchange):
        yield from through_envoy.problems(entries, told, choice)
    if not any(step.pods for step in work.instance.scenario.steps):
        yield from replies.problems(request, entries, told if asked_about else None)


def _asked_about(report: Report) -> bool:
    """Whether the data plane was our own: then the EPP under test was asked about each exchange, and no other."""
    around = report.environment.topology
    return isinstance(around, Topology) and around.data_plane == "fake"


def _prompt(planned: Planned, one: _Due, request: ClientRequest, seed: int) -> bytes | None:
    """The beginning of the fresh prompt of an exchange; None if it has none, or none that must be there."""
    spec = request.body
    own = isinstance(spec, BodySpec) and (
        spec.text is not None or spec.base64 is not None or "json_" in spec.model_fields_set or bool(spec.fields)
    )
    whole = request.method == "POST" and request.prompt == "fresh" and request.abort is None and request.chunks == 1
    if own or not whole or spec in ("none", "empty"):
        return None
    work = planned.work
    source = source_of(seed, work.instance.id, work.mode, one.number, one.repeat)
    return f"{source.getrandbits(64):016x}".encode()


def _says(entries: Sequence[Entry], prompt: bytes) -> bool:
    """Whether the request body has the prompt, as the EPP was told; where it was not, as model servers got it.

    What they get of a body that the EPP was told is the EPP's doing, and so it is once the EPP has ended its stream:
    pieces that were on their way are lost with it. True where there is none.
    """
    told, sent, ended = b"", [], False
    for entry in entries:
        event = entry.event
        ended = ended or (isinstance(event, StreamEnded) and event.author is Author.EPP)
        if isinstance(event, UpstreamRequest) and not ended:
            sent.append(event.body)
        elif isinstance(event, Message) and event.author is Author.DATA_PLANE and event.raw[:1] == _REQUEST_BODY:
            told += event.raw[: _WINDOW - len(told)]
    return all(prompt in body for body in ([told] if told else sent) if body)


# -- times -------------------------------------------------------------------------------------------------------------


def _times(episode: Episode, report: Report, seconds: float) -> Iterator[str]:
    last_seq, last_t = 0, 0
    for entry in episode.entries:
        if entry.seq <= last_seq or entry.t < last_t:
            yield f"entry {entry.seq} is not after the one before it"
            return
        last_seq, last_t = entry.seq, entry.t
    if last_t / 1e9 > report.duration + LATE:
        yield f"its evidence ends {last_t / 1e9:.1f} s after the target was started, the run took {report.duration} s"
    own = [entry.t for _, entries in _numbered(episode) or () for entry in entries]  # no polls of an earlier change
    if own and (max(own) - min(own)) / 1e9 > seconds + LATE:
        yield f"its exchanges took {(max(own) - min(own)) / 1e9:.1f} s, the report says {seconds} s"
