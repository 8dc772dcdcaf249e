"""The hundred interleaved streams of a scenario are open at the same time, and each of their pieces comes in turn."""

from __future__ import annotations

from conformance.run.events import RunEvent, ScenarioFinished
from conformance.run.plan import Selection
from conformance.run.session import RunSettings, run
from conformance.targets.resolve import REFERENCE, load_profile
from ext_proc.record import Author, Message, StreamEnded, StreamOpened


def test_a_hundred_at_the_same_time():
    profile = load_profile(REFERENCE).model_copy(update={"body_modes": ("full-duplex",)})
    seen: list[RunEvent] = []
    selection = Selection(scenarios=("robustness.interleaved",))
    run(RunSettings(profile=profile, selection=selection, seed=1, jobs=1), seen.append)
    (episode,) = [event.episode for event in seen if isinstance(event, ScenarioFinished)]
    assert episode is not None
    is_open: set[str] = set()
    most = 0
    turns: list[str] = []
    for entry in episode.entries:
        match entry.event:
            case StreamOpened(stream=str(stream)):
                is_open.add(stream)
                most = max(most, len(is_open))
            case StreamEnded(stream=str(stream)):
                is_open.remove(stream)
            case Message(stream=str(stream), author=Author.DATA_PLANE):
                turns.append(stream)
    assert most == 100
    for piece in range(6):  # the headers and five pieces of the body
        assert len(set(turns[100 * piece : 100 * (piece + 1)])) == 100
