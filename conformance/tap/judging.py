"""One exchange of live traffic, judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.evidence.episode import Claims, Context, Episode
from conformance.judges import Role, Rules, judge
from conformance.judges.remembered import RememberedVerdicts
from conformance.reading.owed import owed_answer
from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.tap.gathering import Gathered
from conformance.verdict import ACCUSING, Finding, Verdict
from ext_proc.record import Entry, Wait

SCENARIO = "live"
"""The scenario of a context made for live traffic."""

BOTH: tuple[Role, ...] = ("epp", "data-plane")
"""The roles that are judged where neither side is ours: what a tap heard."""

TELLING = (*ACCUSING, Verdict.ERROR)
"""Findings that are shown; of the others there is only a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingSettings:
    """What the process needs: the context to judge by; a file for transcripts, with its limit in bytes, of all
    exchanges or only of those with a broken rule; and how many findings of a kind are worth printing."""

    context: Context
    record: Path | None = None
    record_limit: int = 1 << 30
    record_failures_only: bool = False
    print_each: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedExchange:
    """What came of one exchange.

    `counts` are all findings by requirement and verdict; `findings` the telling ones. `problem` is what kept the judges
    from judging: a defect of theirs, never the EPP's.
    """

    exchange: str
    findings: tuple[Finding, ...] = ()
    counts: tuple[tuple[str, str, int], ...] = ()
    problem: str = ""
    remembered: bool = False
    """Whether the same was judged before under another request id, and its findings were remembered."""
    shown: tuple[str, ...] = ()
    """Telling findings as text, those that are worth printing."""
    unwritten: bool = False
    """Whether its transcript was asked for, and could not be written."""
    partial: bool = False
    """Whether what came after a limit, or after a long silence, is not in it."""

    @property
    def failed(self) -> bool:
        """Whether a rule was broken."""
        return any(finding.verdict is Verdict.FAIL for finding in self.findings)

    @property
    def untold(self) -> bool:
        """Whether it tells nothing of the EPP: no rule of its was seen to hold, or broken."""
        return not self.failed and not any(
            verdict == Verdict.PASS and not requirement.startswith("DP-") for requirement, verdict, _ in self.counts
        )


def context(version: str, claims: Claims | None = None, *, deadline: float = 10.0) -> Context:
    """What live traffic is judged by: a version of the protocol and what the target claims."""
    return Context(version=version, scenario=SCENARIO, claims=claims or Claims(), deadline=deadline)


def episode(gathered: Gathered, deadline: float = 10.0) -> Episode:
    """An exchange as judges read it. That the EPP owed an answer for `deadline` seconds is an event, as in any run."""
    entries = with_expired_wait(gathered.entries, deadline, quiet=gathered.seconds, late=gathered.late)
    return Episode(id=gathered.exchange, entries=entries)


def with_expired_wait(
    entries: tuple[Entry, ...], deadline: float, *, quiet: float = 0.0, late: float = 0.0
) -> tuple[Entry, ...]:
    """`entries` with the expired wait for an answer that was owed for `deadline` seconds, also if it came later.

    `late` is how many seconds of all were our own lateness. `quiet` is how many, without these, nothing happened after
    the last of them. The course is looked at when an answer would be overdue, at least an eighth of the deadline later
    each time, and in the end.
    """
    over = entries[-1].t + int(quiet * 1e9)
    patience = int((deadline + late) * 1e9)
    silent = quiet >= deadline
    at = entries[0].t + patience
    while at <= over or silent:
        at = min(at, over)
        before = [one for one in entries if one.t < at]
        owed = owed_answer(before)
        since = at if owed is None else owed.since.entry.t
        if owed is not None and (at - since >= patience or (at == over and silent)):
            seconds = round((at - since) / 1e9 - late if at - since >= patience else quiet, 3)
            what = AWAITED_ANSWER + owed.part
            wait = Wait(exchange=entries[0].event.exchange, what=what, outcome="expired", seconds=seconds)
            after = (replace(one, seq=one.seq + 1) for one in entries[len(before) :])
            return (*before, Entry(before[-1].seq + 1, at, wait), *after)
        if at == over:
            break
        at = max(since + patience, at + patience // 8)
    return entries


def judged(
    of: Episode,
    by: Context,
    rules: Rules,
    *,
    roles: Sequence[Role] = (),
    memory: RememberedVerdicts | None = None,
) -> JudgedExchange:
    """Judge an episode by the rules of `roles`, default: of the role that is under test. Never raises.

    With a `memory` of the same context, rules and roles, what was judged before is not judged again.
    """
    before = 0 if memory is None else memory.found
    try:
        findings = judge(of, by, rules, roles=roles) if memory is None else memory.judge(of)
    except Exception as problem:  # noqa: BLE001 - a judge that raises is the suite's defect; the traffic goes on
        return JudgedExchange(exchange=of.id, problem=f"{type(problem).__name__}: {problem}")
    remembered = memory is not None and memory.found > before
    return JudgedExchange(exchange=of.id, findings=telling(findings), counts=_counted(findings), remembered=remembered)


def telling(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings worth showing."""
    return tuple(finding for finding in findings if finding.verdict in TELLING)


def _counted(findings: Iterable[Finding]) -> tuple[tuple[str, str, int], ...]:
    counts = Counter((finding.requirement, finding.verdict.value) for finding in findings)
    return tuple((requirement, verdict, count) for (requirement, verdict), count in counts.items())
