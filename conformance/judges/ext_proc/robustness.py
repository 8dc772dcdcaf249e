"""The process stays alive (ENV-27), aborts are survived (ENV-22), streams end when they are told to.

A crash is put down to what was peculiar about the exchange in flight, to an abort before it (ENV-22), and else to
ENV-27. With several in flight none is accused: whoever runs the suite runs them again one at a time, and gives the
judge the episode of the one that reproduces it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges import peculiar
from conformance.judges.case import Answer, Case, Crash, Scene
from conformance.judges.registry import judge_of_case, judge_of_scene
from conformance.judges.ruling import Nature, Ruling, held
from conformance.verdict import Verdict
from ext_proc.record import STILL_OPEN

_LIVES = (Answer.ENDPOINT, Answer.IMMEDIATE, Answer.UNSTEERED)


@judge_of_scene("ENV-22", "ENV-26", "ENV-27", "ENV-19", "ENV-23", "EPP-SRVD-01", "EPP-SUB-10", "EPP-SUB-11")
def process(scene: Scene) -> Iterator[Ruling]:
    """The process of the target does not end by itself."""
    if scene.crash is not None:
        yield _crash(scene.crash)
        return
    if any(case.answer in _LIVES for case in scene.cases):
        yield held("ENV-27")
    yield from _survived_aborts(scene)


def _crash(crash: Crash) -> Ruling:
    code, output = crash.exited.code, crash.exited.output.strip()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = f"; its last words: {output.splitlines()[-1][:300]}" if output else ""
    lone = crash.suspects[0] if len(crash.suspects) == 1 else None
    several = "" if lone else f" with {len(crash.suspects)} exchanges in flight"
    return Ruling(
        requirement=_whose(lone) if lone else "ENV-27",
        verdict=Verdict.FAIL,
        expected=("the process stays alive",),
        actual=f"the process ended with {how}{several}{last}",
        hint="" if lone else "Any of them may have ended it, or their number: each is tried alone by other scenarios.",
        exchange=lone.exchange if lone else None,
        seq=crash.entry.seq,
        nature=Nature.CRASH,
    )


def _whose(case: Case) -> str:
    if peculiar.aborted(case) or peculiar.after_an_abort(case):
        return "ENV-22"
    rows = peculiar.RESPONSES if case.flow.response.headers is not None else peculiar.STIMULI
    return peculiar.first(case, rows) or "ENV-27"


def _survived_aborts(scene: Scene) -> Iterator[Ruling]:
    for case in scene.cases:
        if case.answer in _LIVES and peculiar.after_an_abort(case):
            yield held("ENV-22")
            return


@judge_of_case("ENV-22", hygiene=True)
def end_of_stream(case: Case) -> Iterator[Ruling]:
    """A stream that the data plane half-closed ends."""
    for entry, wait in case.conversation.expired:
        if wait.what == STILL_OPEN:
            yield case.warn(
                "ENV-22",
                "the stream ends when the data plane half-closes it",
                f"it was still open {wait.seconds:.1f} s later",
                at=entry.seq,
                hint="Return from the handler at the end of the data plane's messages.",
            )
