"""One exchange of live traffic, judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.evidence.episode import Claims, Context, Episode
from conformance.judges import Role, Rules, judge
from conformance.judges.remembered import RememberedVerdicts
from conformance.reading.decoded_message import decode
from conformance.reading.stream_state import AWAITED_ANSWER
from conformance.tap.gathering import Gathered
from conformance.verdict import Finding, Verdict
from ext_proc.record import Entry, Message, Wait

SCENARIO = "live"
"""The scenario of a context made for live traffic."""

BOTH: tuple[Role, ...] = ("epp", "data-plane")
"""The roles that are judged where neither side is ours: what a tap heard."""

TELLING = (Verdict.FAIL, Verdict.WARN, Verdict.ERROR)
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
    shown: tuple[str, ...] = ()
    """Telling findings as text, those that are worth printing."""

    @property
    def failed(self) -> bool:
        """Whether a rule was broken."""
        return any(finding.verdict is Verdict.FAIL for finding in self.findings)


def context(version: str, claims: Claims | None = None, *, deadline: float = 10.0) -> Context:
    """What live traffic is judged by: a version of the protocol and what the target claims."""
    return Context(version=version, scenario=SCENARIO, claims=claims or Claims(), deadline=deadline)


def episode(gathered: Gathered) -> Episode:
    """An exchange as judges read it. That the EPP owes an answer for too long is an event, as in any run."""
    entries = gathered.entries
    if gathered.reason == "silent":
        last = next(entry for entry in reversed(entries) if isinstance(entry.event, Message))
        assert isinstance(last.event, Message)
        what = f"{AWAITED_ANSWER}{decode(last, last.event).what}"
        wait = Wait(exchange=gathered.exchange, what=what, outcome="expired", seconds=round(gathered.seconds, 3))
        entries = (*entries, Entry(entries[-1].seq + 1, entries[-1].t + int(gathered.seconds * 1e9), wait))
    return Episode(id=gathered.exchange, entries=entries)


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
    try:
        findings = judge(of, by, rules, roles=roles) if memory is None else memory.judge(of)
    except Exception as problem:  # noqa: BLE001 - a judge that raises is the suite's defect; the traffic goes on
        return JudgedExchange(exchange=of.id, problem=f"{type(problem).__name__}: {problem}")
    return JudgedExchange(exchange=of.id, findings=telling(findings), counts=_counted(findings))


def telling(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings worth showing."""
    return tuple(finding for finding in findings if finding.verdict in TELLING)


def _counted(findings: Iterable[Finding]) -> tuple[tuple[str, str, int], ...]:
    counts = Counter((finding.requirement, finding.verdict.value) for finding in findings)
    return tuple((requirement, verdict, count) for (requirement, verdict), count in counts.items())
