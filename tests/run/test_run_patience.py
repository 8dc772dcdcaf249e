"""How long a target is waited for, and what of its silence counts."""

from __future__ import annotations

import pytest

from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.run.epp.patience import BRIEF, UNANSWERED, Patience
from conformance.scenario.schema import Reply
from ext_proc.record import Recorder, Wait

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


def test_an_exchange_that_goes_on_has_its_full_time_where_silence_was_shortened() -> None:
    """A long answer takes what it takes, however long an EPP that says nothing is waited for."""
    recorder = Recorder()
    patience = Patience(ANSWER, recorder, lambda _: None)
    for _ in range(UNANSWERED):
        recorder.emit(Wait(what=f"{AWAITED_ANSWER}request_headers", outcome="expired"))
    assert patience.pace(Reply(), None).left(0, 25, 25) == BRIEF
    assert patience.pace(Reply(), None).left(0, 25, 25 + BRIEF) <= 0
