"""How long a target is waited for, and what of its silence counts."""

from __future__ import annotations

import pytest

from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.run.epp.patience import BRIEF, UNANSWERED, Patience
from conformance.scenario.schema import Reply
from ext_proc.record import Author, Message, Recorder, StreamEnded, Wait

pytestmark = pytest.mark.program

ANSWER = 10.0


@pytest.mark.parametrize(("starting", "deadline"), [(True, ANSWER), (False, BRIEF)])
def test_silence_shortens_the_waits_that_follow_unless_the_target_was_still_starting(starting, deadline):
    recorder, told = Recorder(), []
    patience = Patience(ANSWER, recorder, told.append)
    patience.starting = starting
    for _ in range(UNANSWERED):
        recorder.emit(Wait(what=f"{AWAITED_ANSWER}request_headers", outcome="expired"))
    patience.starting = False
    assert patience.pace(Reply(), None).deadline == deadline
    assert bool(told) is not starting


@pytest.mark.parametrize("answered", [False, True])
def test_a_stream_end_without_an_answer_shortens_the_waits_that_follow(answered: bool) -> None:
    """A model server that has half of a body is waited for in vain; one that answers late is no fault of the target."""
    recorder, told = Recorder(), []
    patience = Patience(ANSWER, recorder, told.append)
    for number in range(UNANSWERED):
        exchange = f"x{number}"
        authors = [Author.DATA_PLANE, Author.EPP] if answered else [Author.DATA_PLANE]
        for author in authors:
            recorder.emit(Message(exchange=exchange, stream="1", author=author, raw=b""))
        recorder.emit(StreamEnded(exchange=exchange, stream="1", author=Author.EPP, how="status", status=0))
        recorder.emit(Wait(exchange=exchange, what="response of the model server", outcome="expired"))
    assert bool(told) is not answered
    assert patience.pace(Reply(), None).deadline == (ANSWER if answered else BRIEF)


def test_an_exchange_that_goes_on_has_its_full_time_where_silence_was_shortened() -> None:
    """A long answer takes what it takes, however long an EPP that says nothing is waited for."""
    recorder = Recorder()
    patience = Patience(ANSWER, recorder, lambda _: None)
    for _ in range(UNANSWERED):
        recorder.emit(Wait(what=f"{AWAITED_ANSWER}request_headers", outcome="expired"))
    assert patience.pace(Reply(), None).left(0, 25, 25) == BRIEF
    assert patience.pace(Reply(), None).left(0, 25, 25 + BRIEF) <= 0
