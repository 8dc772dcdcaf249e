"""A scripted endpoint picker towards a data plane: any answer, any delay, any violation, per request.

    epp = await open_epp(rules=[Rule(script=picks("10.0.0.1:8000")), …], recorder=recorder)
    …                                    # the data plane under test calls epp.address
    await epp.close()

    acts.py      what an EPP may do at one moment of a stream
    answers.py   the right answers, and those that are wrong on purpose
    script.py    what is done when, and for which requests
    player.py    a script, played on one stream
    epp.py       the server

It imports the carrier only. What is right here says nothing about what is judged right.
"""

from __future__ import annotations

from fake_epp.acts import (
    Act,
    Answer,
    BreakConnection,
    Bytes,
    Delay,
    End,
    EndWithoutTrailers,
    GoAway,
    HttpAnswer,
    Immediate,
    Pick,
    Raw,
    Reset,
    SetHeader,
)
from fake_epp.epp import AskedRequest, FakeEpp, open_epp
from fake_epp.script import (
    MOMENTS,
    Match,
    Script,
    ScriptRule,
    answers_immediately,
    closes,
    does,
    picks,
    resets,
    stays_silent,
)

__all__ = [
    "MOMENTS",
    "Act",
    "Answer",
    "AskedRequest",
    "BreakConnection",
    "Bytes",
    "Delay",
    "End",
    "EndWithoutTrailers",
    "FakeEpp",
    "GoAway",
    "HttpAnswer",
    "Immediate",
    "Match",
    "Pick",
    "Raw",
    "Reset",
    "Script",
    "ScriptRule",
    "SetHeader",
    "answers_immediately",
    "closes",
    "does",
    "open_epp",
    "picks",
    "resets",
    "stays_silent",
]
