"""Whether an exchange ran its course, and whether the suite did in its episode only what the scenario has it do.

Judges say nothing against a target that was not heard to the end: the client went away, the suite stopped the process,
part of a message was not kept. Each of these must be the scenario's doing, or the log must say how it came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from conformance.evidence.episode import (
    Episode,
    EppConduct,
    GaugesShown,
    HealthProbe,
    PodConduct,
    PoolState,
    ProcessExited,
    ProcessStarted,
    UnreadConnection,
)
from conformance.printable import plural
from conformance.report.verify import early_end
from conformance.report.verify.steps import short
from conformance.scenario.schema import ABORTED_AT, ClientRequest, Exchange, Step
from conformance.targets.gateway import EPPS
from ext_proc.record import (
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Malformed,
    Message,
    StreamEnded,
    StreamOpened,
    Wait,
)


def problems(
    request: ClientRequest, opened: ExchangeOpened, entries: Sequence[Entry], *, asked: bool, ended_early: bool
) -> Iterator[str]:
    """What speaks against the `entries` of an exchange being those of `request`, from its beginning to its end.

    `asked`: the EPP under test was asked about each, as the data plane is our own. `ended_early`: something is in the
    log that ends a scenario, whatever is under way.
    """
    events = [entry.event for entry in entries]
    if isinstance(request, Exchange) and dict(opened.note) != request.note:
        yield f"its evidence has the note {short(dict(opened.note))}, its scenario {short(request.note)}"
    if any(isinstance(one, Message) and one.truncated for one in events):
        yield "part of a message was not kept, and its evidence does not say that it was cut"
    if strangers := _strangers(events):
        yield f"its evidence has streams that were not opened: {short(sorted(strangers))}"
    at = None if request.abort is None else ABORTED_AT[request.abort]
    aborted = [one.point for one in events if isinstance(one, ClientAborted)]
    if any(point != at for point in aborted):
        yield f"its client went away at {short(aborted[0])}, that of its scenario {at or 'stays'}"
    expired = any(isinstance(one, Wait) and one.outcome == "expired" for one in events)
    if aborted or expired or ended_early:
        return
    if not any(isinstance(one, ClientResponse) for one in events):
        yield "it has no end: no response to its client, and nothing that was waited for in vain"
    elif asked and not any(map(_heard, events)):
        yield "nothing came from the EPP, not even an end, and it was not waited for in vain"
    elif asked and not any(map(_told, events)) and not any(map(is_gone, events)):
        yield "the EPP was told nothing, and its connection was not lost"


def _strangers(events: Sequence[Event]) -> set[str]:
    """Streams of which there is something and that were not opened, but for what says that none could be."""
    opened = {one.stream for one in events if isinstance(one, StreamOpened)}
    on = [one for one in events if isinstance(one, Message | Malformed | HalfClosed | StreamEnded)]
    out_of_reach = [one for one in on if isinstance(one, StreamEnded) and not one.stream and is_gone(one)]
    return {one.stream for one in on if one not in out_of_reach} - opened


def _heard(event: Event) -> bool:
    """Whether an event is one of the EPP's side of a stream, or of the connection."""
    return isinstance(event, Message | Malformed | StreamEnded) and event.author is not Author.DATA_PLANE


def _told(event: Event) -> bool:
    """Whether something was sent to the EPP, be it no message."""
    return isinstance(event, Message | Malformed) and event.author is Author.DATA_PLANE


def is_gone(event: Event) -> bool:
    """Whether the connection broke, or could not be made, which is a failure."""
    return isinstance(event, StreamEnded) and event.how in ("lost", "refused")


def doings(
    steps: Sequence[Step], episode: Episode, begun: Sequence[tuple[int, int]], *, ended_early: bool
) -> Iterator[str]:
    """What the suite did to pods, EPPs and process otherwise than `steps` say; `begun`: the step and the first entry of
    each exchange, in order.
    """
    at = [
        (entry.seq, (event.pod, event.conduct) if isinstance(event, PodConduct) else (event.epp, _state(event)))
        for entry in episode.entries
        if isinstance(event := entry.event, PodConduct | EppConduct)
    ]
    found, wanted = [one for _, one in at], _conducts(steps)
    for step, seq in begun:
        if (then := [one for when, one in at if when < seq]) != _conducts(steps[:step]):
            was = short(then or "usual")
            yield f"its pods or EPPs behave as {was} when an exchange of step {step + 1} begins, which is another time"
            break
    left: dict[str, str] = {name: state for step in steps for name, state in (step.epps or {}).items()}
    wanted += [(name, "up") for name in EPPS if left.get(name) == "down"]  # so that the next scenario finds it
    if found != (wanted[: len(found)] if ended_early else wanted):
        yield f"its pods or EPPs were made to behave as {short(found)}, by its scenario {short(wanted)}"
    yield from _beside(steps, episode, begun, loose=ended_early, skipped=early_end.skipped(episode))


def _beside(
    steps: Sequence[Step], episode: Episode, begun: Sequence[tuple[int, int]], *, loose: bool, skipped: bool
) -> Iterator[str]:
    """Between which exchanges connections were left unread, and the target was stopped and started again."""
    unread = [entry.seq for entry, _ in episode.of(UnreadConnection)]
    stopped = [entry.seq for entry, event in episode.of(ProcessExited) if event.asked]
    started = [entry.seq for entry, _ in episode.of(ProcessStarted)]
    step, after = 0, 0
    for until, seq in (*begun, (len(steps), sys.maxsize)):
        there = [sum(1 for one in found if after < one < seq) for found in (unread, stopped, started)]
        due = sum(1 for one in steps[step:until] if one.unread_connection is not None)
        if there[0] > due or (there[0] < due and not (loose or skipped)):
            yield f"its evidence has {plural(there[0], 'connection')} that nothing was read of, its scenario {due}"
        restarts = any(one.restart for one in steps[step:until])
        there[2] = there[2] if after or restarts else 0  # it was started before
        for times, what in ((there[1], "stopped"), (there[2], "started")):
            if times and not restarts:
                yield f"the target was {what} in its course, which its scenario does not do"
            elif restarts and not times and not loose:
                yield f"the target was not {what} in its course, as its scenario has it"
        step, after = until, max(after, seq)


def probe(steps: Sequence[Step], number: int, entries: Sequence[Entry]) -> Iterator[str]:
    """What speaks against a health check being the one of step `number`, with the pool that the target has read."""
    exists, read = True, True
    for step in steps[:number]:
        if step.pool is not None and step.pool.pool is not None:
            exists = step.pool.pool == "create"
        read = exists or (read and step.restart is None)
    synced, health = exists or (None if read else False), steps[number].health
    probes = [entry.event for entry in entries if isinstance(entry.event, HealthProbe)]
    found = [(probe.service, probe.pool_synced) for probe in probes]
    if found != ([] if health is None else [(health.service, synced)]):
        yield f"its evidence has the health check {short(found)}, its scenario {short(health and health.service)}"


def _conducts(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """How pods and EPPs are made to behave, in order."""
    return [one for step in steps for one in (*(step.pods or {}).items(), *(step.epps or {}).items())]


def _state(event: EppConduct) -> str:
    return "up" if event.up else "down"


def meanwhile(exchanges: Iterable[tuple[str, Sequence[Entry]]], episode: Episode) -> Iterator[str]:
    """What the suite changed while a request was under way: its steps come one after the other."""
    changes = [entry.seq for kind in (PoolState, GaugesShown, PodConduct, EppConduct) for entry, _ in episode.of(kind)]
    for name, entries in exchanges:
        ends = [entry.seq for entry in entries if isinstance(entry.event, ClientResponse | ClientAborted)]
        if ends and any(entries[0].seq < seq < ends[0] for seq in changes):
            yield f"{name}: pods, pool or EPPs changed in it, which its scenario does not do"
