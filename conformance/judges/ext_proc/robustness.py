"""The process stays alive (ENV-27), aborts are survived (ENV-22), streams end when they are told to.

A crash is put down to what was particular about the exchange in flight, to an abort before it (ENV-22), and else to
ENV-27; to that as well where the rule of what was particular only warns. With several in flight none is accused: the
runner repeats them one at a time, and gives the judge the episode of the one that reproduces it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges import root_cause
from conformance.judges.episode_view import Crash, EpisodeView
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_episode, judge_of_exchange
from conformance.reading.crash import cause_of
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.record import STILL_OPEN

_LIVES = (AnswerKind.ENDPOINT, AnswerKind.IMMEDIATE, AnswerKind.UNSTEERED)


@judge_of_episode("ENV-22", "ENV-26", "ENV-27", "ENV-19", "ENV-23", "EPP-SRVD-01", "EPP-SUB-10", "EPP-SUB-11")
def process(episode_view: EpisodeView) -> Iterator[Finding]:
    """The process of the target does not end by itself."""
    if episode_view.crash is not None:
        yield from _crash(episode_view.crash)
        return
    if any(view.answer in _LIVES for view in episode_view.exchanges):
        yield passed("ENV-27")
    yield from _survived_aborts(episode_view)


def _crash(crash: Crash) -> Iterator[Finding]:
    code, output = crash.exited.code, crash.exited.output.strip()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    lines = output.splitlines()
    last = f"; its last words: {' '.join(cause_of(lines) or lines[-1:])[:300]}" if output else ""
    lone = crash.suspects[0] if len(crash.suspects) == 1 else None
    several = "" if lone else f" with {len(crash.suspects) or 'no'} exchanges in flight"
    for requirement in _whose(lone) if lone else ("ENV-27",):
        yield Finding(
            requirement=requirement,
            verdict=Verdict.FAIL,
            expected=("the process stays alive",),
            actual=f"the process ended with {how}{several}{last}",
            hint="" if lone else _OF_SEVERAL if crash.suspects else _OF_NONE,
            exchange=lone.exchange if lone else None,
            seq=crash.entry.seq,
            nature=Nature.CRASH,
        )


_OF_SEVERAL = "Any of them may have ended it, or their number: each is tried alone by other scenarios."
_OF_NONE = "Look at what reads the pods' metrics, what follows the pool, and what goes on after an exchange has ended."


def _whose(view: ExchangeView) -> tuple[str, ...]:
    rows = root_cause.RESPONSES if view.stream.response.headers is not None else root_cause.STIMULI
    abort = root_cause.aborted(view) or root_cause.after_an_abort(view)
    found = "ENV-22" if abort else root_cause.first(view, rows) or "ENV-27"
    return (found,) if view.facts.counts(found) else (found, "ENV-27")


def _survived_aborts(episode_view: EpisodeView) -> Iterator[Finding]:
    for view in episode_view.exchanges:
        if view.answer in _LIVES and root_cause.after_an_abort(view):
            yield passed("ENV-22")
            return


@judge_of_exchange("ENV-22", hygiene=True)
def end_of_stream(view: ExchangeView) -> Iterator[Finding]:
    """A stream that the data plane half-closed ends."""
    for entry, wait in view.conversation.expired:
        if wait.what == STILL_OPEN:
            yield view.warn(
                "ENV-22",
                "the stream ends when the data plane half-closes it",
                f"it was still open {wait.seconds:.1f} s later",
                at=entry.seq,
                hint="Return from the handler at the end of the data plane's messages. With grpc-js, call end() on "
                "the event `end`: a loop of `for await` destroys the call, and no status is sent.",
            )
