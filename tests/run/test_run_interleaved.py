"""The hundred interleaved streams of a scenario are open at the same time, at the target too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulated_time import SimulatedTime, simulated

from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Episode
from conformance.planning.plan import Selection
from conformance.run.barrier import Barrier
from conformance.run.session import RunSettings, run
from conformance.scenario.schema import BodyMode, Exchange
from conformance.targets.profile import Limits
from conformance.targets.resolve import REFERENCE, load_profile
from ext_proc.messages import ProcessingRequest
from ext_proc.record import Author, Message, StreamEnded, StreamOpened

pytestmark = pytest.mark.program


def interleaved(limits: Limits) -> Episode:
    return episode("robustness.interleaved", "full-duplex", limits)


def episode(scenario: str, mode: BodyMode, limits: Limits) -> Episode:
    """What happens in the scenario."""
    profile = load_profile(REFERENCE).model_copy(update={"body_modes": (mode,), "limits": limits})
    seen: list[RunEvent] = []
    selection = Selection(scenarios=(scenario,))
    run(RunSettings(profile=profile, selection=selection, seed=1, jobs=1), seen.append)
    (found,) = [event.episode for event in seen if isinstance(event, ScenarioFinished)]
    assert found is not None
    return found


def test_a_hundred_at_the_same_time():
    is_open: set[str] = set()
    most = 0
    turns: list[str] = []
    ended: list[int] = []
    for entry in interleaved(Limits()).entries:
        match entry.event:
            case StreamOpened(stream=str(stream)):
                is_open.add(stream)
                most = max(most, len(is_open))
            case StreamEnded(stream=str(stream)):
                is_open.remove(stream)
                ended.append(len(turns))
            case Message(stream=str(stream), author=Author.DATA_PLANE):
                turns.append(stream)
    assert most == 100
    for piece in range(2):  # the headers and the first piece of the body
        assert len(set(turns[100 * piece : 100 * (piece + 1)])) == 100
    scouts = turns[200 : ended[1]]
    assert len(set(scouts)) == 2  # the last on each of the connections goes through, answered to its end
    rest = turns[ended[1] :]
    for piece in range(4):
        assert len(set(rest[98 * piece : 98 * (piece + 1)])) == 98


def test_in_lock_step_a_response_overtakes_the_request():
    """Else the whole body may be there before the target has answered the headers."""
    asked = [
        ProcessingRequest.FromString(event.raw)
        for _, event in episode("ext-proc.early-response-streamed", "streamed", Limits()).of(Message)
        if event.author is Author.DATA_PLANE
    ]
    before = asked[: [one.WhichOneof("request") for one in asked].index("response_headers")]
    assert not any(one.request_body.end_of_stream for one in before)


@pytest.mark.parametrize("limit", [1, 7])
def test_fewer_where_the_target_may_be_asked_less(limit: int):
    found = interleaved(Limits(concurrency=limit))
    ended = [entry.seq for entry, event in found.of(StreamEnded)]
    opened = [entry.seq for entry, event in found.of(StreamOpened)]
    assert len(ended) == 100
    assert sum(seq < ended[0] for seq in opened) == limit


@pytest.mark.parametrize("exchange", [{"chunks": 3}, {"repeat": 9, "chunks": 3}, {"repeat": 9, "concurrent": 9}])
def test_interleaving_needs_several_requests_at_a_time(exchange):
    with pytest.raises(ValueError, match="`interleaved` needs several repeats at a time"):
        Exchange.model_validate({**exchange, "interleaved": True})


async def come(meeting: Barrier, over: asyncio.Event) -> None:
    """An exchange that goes on after its first chunk as soon as it may, and ends when it is told."""
    with meeting.place() as hold:
        await hold()
        await over.wait()


def met(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main` in simulated time, in which a wait without end is an error; exchanges end at once."""

    async def ended(loop: SimulatedTime) -> None:
        over = asyncio.Event()
        over.set()
        async with asyncio.timeout(3600):
            await main(over)

    simulated(ended)


def test_an_exchange_does_not_wait_forever() -> None:
    async def two_of_three(over: asyncio.Event) -> None:
        meeting = Barrier(size=3, apart=0.01)
        await asyncio.gather(come(meeting, over), come(meeting, over))
        await come(meeting, over)
        await come(meeting, over)  # more than were expected

    met(two_of_three)


@pytest.mark.parametrize("scouts", [1, 2])
def test_held_exchanges_wait_for_the_scouts(scouts: int) -> None:
    async def slow(_: asyncio.Event) -> None:
        meeting, over = Barrier(size=5, scouts=scouts, apart=0.001), [asyncio.Event() for _ in range(5)]
        for one in over[: 5 - scouts]:
            one.set()  # a held exchange ends as soon as it goes on
        every = [asyncio.create_task(come(meeting, one)) for one in over]
        held = asyncio.gather(*every[: 5 - scouts])
        for one in over[5 - scouts :]:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(held), 0.02)
            one.set()
        await asyncio.gather(held, *every)

    met(slow)


@pytest.mark.parametrize(("size", "scouts"), [(1, 1), (1, 2), (3, 1)])
def test_an_exchange_that_is_over_is_not_waited_for(size: int, scouts: int) -> None:
    async def others_are_over(over: asyncio.Event) -> None:
        meeting = Barrier(size=size, scouts=scouts)
        for _ in range(size > 1):
            with meeting.place():
                pass
        await asyncio.gather(*(come(meeting, over) for _ in range(max(1, size - 1))))

    met(others_are_over)


def test_one_of_two_exchanges_waits() -> None:
    async def two(over: asyncio.Event) -> None:
        meeting = Barrier(size=2, scouts=2)
        with meeting.place() as hold:
            held = asyncio.ensure_future(hold())
            await asyncio.sleep(0)
            assert not held.done()
            await come(meeting, over)
            await held

    met(two)
