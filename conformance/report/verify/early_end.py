"""Whether something in the log ended an episode early, or had its scenario skipped, and whether that can be.

A requirement that other scenarios reached passes, though one was skipped. So a skip is believed only where the suite
itself makes one, and it excuses no exchange from being there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from conformance.evidence.episode import Episode, HarnessTrouble, ProcessExited, Unmet, UnreadConnection
from conformance.planning.data_plane import about_the_response
from conformance.scenario.schema import Step
from ext_proc.record import UNROUTED, ClientResponse, Entry


def ended_early(episode: Episode) -> bool:
    """Whether something is in the log that ends a scenario, and that never passes."""
    crashed = any(not exited.asked for _, exited in episode.of(ProcessExited))
    unmet = any(event.verdict == "inconclusive" for _, event in episode.of(Unmet))
    return crashed or unmet or any(True for _ in episode.of(HarnessTrouble))


def skipped(episode: Episode) -> bool:
    """Whether the log says that the scenario was skipped."""
    return any(event.verdict == "skipped" for _, event in episode.of(Unmet))


def problems(
    steps: Sequence[Step], sent: Iterable[tuple[Step, Sequence[Entry]]], episode: Episode, *, asked: bool
) -> Iterator[str]:
    """What speaks against the skips of `episode`. `sent`: its exchanges, each with its step. `asked`: the data plane is
    our own, which can follow every pick.

    There is one for each exchange in which a real Envoy could not follow the pick, and one for each connection that
    could not be made, or not be kept beside another.
    """
    found = [event for _, event in episode.of(Unmet) if event.verdict == "skipped"]
    unread = sum(1 for step in steps if step.unread_connection is not None)
    due = unread - sum(1 for _ in episode.of(UnreadConnection))
    due += sum(1 for step, entries in sent if not asked and _unrouted(step, entries))
    if len(found) > due or any(event.exchange is not None for event in found):
        yield "its evidence says that the scenario was skipped, and nothing in it is a reason"


def _unrouted(step: Step, entries: Sequence[Entry]) -> bool:
    events = (entry.event for entry in entries)
    details = {event.details for event in events if isinstance(event, ClientResponse)}
    return step.exchange is not None and UNROUTED in details and about_the_response(step.exchange, step.expect)
