"""One pass over the evidence: the digests of its lines, and each result derived again from plan and episode.

Without a plan, which only the report's own catalogue gives, the verdicts of each episode are compared instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from conformance.evidence.episode import Context, Episode
from conformance.evidence.store import EvidenceError, EvidenceLine, EvidenceReader
from conformance.outcome import BLOCKING, ScenarioResult
from conformance.printable import plural, printable
from conformance.report.document.build import releases
from conformance.report.document.model import Report
from conformance.report.verify import unheard
from conformance.report.verify.conversation import asked_about, cut_short, problems
from conformance.report.verify.expected import Expected, Key
from conformance.report.verify.steps import VerificationStep, answered, short, unknown
from conformance.report.verify.stimulus import Learned
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding, Verdict

STRANGE = 1000
"""Lines that no result names, after which no more are read: a small file can hold millions."""

Judge = Callable[[Episode, Context, Catalogue], tuple[Finding, ...]]


class JudgedAgain:
    """What the evidence gives. `rows` are the results that follow from plan and evidence, as far as there are any."""

    def __init__(self, report: Report, catalogue: Catalogue, judge: Judge, expected: Expected | None) -> None:
        self._report = report
        self._catalogue = catalogue
        self._judge = judge
        self._expected = expected
        self._learned = Learned(report.redactions)
        self._by_line: dict[str, list[ScenarioResult]] = {}
        for row in report.results:
            if row.evidence is not None:
                self._by_line.setdefault(row.evidence, []).append(row)
        self._differences: list[str] = []
        self._broken: list[str] = []
        self._cut: list[str] = []
        self._changed: Counter[str] = Counter()
        self.judged = 0
        self.rows: dict[Key, ScenarioResult] = {}

    def evidence(self, path: Path | None) -> VerificationStep:
        """Read it all, and derive. The answer is about the lines alone: each there, named by one result, unchanged."""
        if path is None:
            return unknown("evidence", self._missing())
        reader, missing, strange = EvidenceReader(path), dict(self._by_line), 0
        try:
            for line in reader:
                rows = missing.pop(line.sha256, None)
                if rows is None:
                    strange += 1
                    self._broken.append(f"line {line.number}: no result names it, or it is there twice")
                    if strange > STRANGE:
                        break  # whatever it is, it is not this report's
                else:
                    self._line(line, rows)
        except EvidenceError as error:
            self._broken.append(error.message)
        self._broken += [f"{row.version} {row.id}: its episode is not in the evidence" for rows in missing.values()
                         for row in rows]  # fmt: skip
        self._broken += [f"block {name}: no episode has it" for name in reader.blocks.unused]
        stated = self._report.evidence
        if stated is None:
            self._broken.append("the report names no file of evidence")
        elif (stated.sha256, stated.bytes, stated.episodes) != (reader.sha256, reader.bytes, reader.episodes):
            self._broken.append(
                f"the report names {plural(stated.episodes, 'episode')}, {plural(stated.bytes, 'byte')}, "
                f"sha256 {stated.sha256}; "
                f"the file has {reader.episodes}, {reader.bytes}, {reader.sha256}"
            )
        good = f"{plural(reader.episodes, 'episode')}, each of one result, every digest as stated"
        return answered("evidence", self._broken, good, "the evidence is not what the report was made of")

    def _missing(self) -> str:
        stated = self._report.evidence
        if stated is None:
            return "the report names no file of evidence"
        file, sha256 = short(printable(stated.file)), printable(stated.sha256)
        return (
            f"missing: {file} (sha256 {sha256} of its unpacked content). Put it beside the report, or name it: "
            "`report verify REPORT EVIDENCE`. Published reports are kept with their evidence at "
            f"{releases(printable(self._report.suite.version))}"
        )

    def _line(self, line: EvidenceLine, rows: list[ScenarioResult]) -> None:
        try:
            episode, context, cut = line.read_cut()
        except EvidenceError as error:
            self._broken.append(error.message)
            return
        for row in rows[1:]:
            self._broken.append(f"{row.version} {row.id}: names the same episode as {rows[0].id}")
        row = rows[0]
        if cut:
            self._cut.append(f"{row.version} {row.id}: its episode was cut, as it would not fit")
            return
        self.judged += 1
        findings: tuple[Finding, ...] | Exception
        try:
            findings = self._judge(episode, context, self._catalogue)
        except Exception as problem:  # noqa: BLE001 - a harness error, or evidence made up to cause one
            findings = problem
        try:
            if self._expected is None:
                self._compare_verdicts(row, findings)
            else:
                self._derive(row, self._expected, episode, context, findings)
        except Exception as problem:  # noqa: BLE001 - evidence made up to cause a harness error
            self._differences.append(f"{row.version} {row.id}: can't be judged: {problem!r}")

    def _derive(
        self,
        row: ScenarioResult,
        expected: Expected,
        episode: Episode,
        context: Context,
        findings: tuple[Finding, ...] | Exception,
    ) -> None:
        planned = expected.planned.get((row.version, row.id))
        if planned is not None:
            found = [*problems(planned, episode, context, self._report, row.duration, self._learned)]
            if not isinstance(findings, Exception):
                names = asked_about(planned, episode, self._report)
                found += unheard.problems(names, episode, context, self._catalogue, findings)
            self._differences += [f"{row.version} {row.id}: {problem}" for problem in found]
        wanted = expected.row(row, episode, findings)
        if planned is not None and wanted is not None and cut_short(planned, episode) and not _is_open(wanted):
            text = "its evidence has fewer exchanges than its scenario, and nothing that ended it"
            self._differences.append(f"{row.version} {row.id}: {text}")
        self._compare(row, wanted)

    def _compare_verdicts(self, row: ScenarioResult, findings: tuple[Finding, ...] | Exception) -> None:
        if isinstance(findings, Exception):
            raise findings
        before, after = _verdicts(row.said), _verdicts((one.requirement, one.verdict) for one in findings)
        for name in before.keys() | after.keys():
            stated, now = before.get(name, "none"), after.get(name, "none")
            if stated != now:
                self._changed[f"{row.version} {name}: stated {stated}, judged again {now}"] += 1

    def without_evidence(self) -> None:
        """The results whose episodes were not read: those that have none, and all if no evidence was given."""
        if self._expected is None:
            return
        for row in self._report.results:
            if (row.version, row.id) not in self.rows and (row.evidence is None or self.judged == 0):
                self._compare(row, self._expected.row(row, None, None))

    def _compare(self, row: ScenarioResult, wanted: ScenarioResult | None) -> None:
        if wanted is None:
            return  # in no plan, which is said there
        self.rows[row.version, row.id] = wanted
        if row.evidence is not None and wanted.evidence is None:
            self._differences.append(f"{row.version} {row.id}: has evidence, and can't have been run on this target")
        if row != wanted:
            self._differences += [f"{row.version} {row.id}: {text}" for text in differences(row, wanted)]

    def judgement(self, path: Path | None) -> VerificationStep:
        """Whether every result is what its episode gives; without a plan, whether its verdicts are the same."""
        changed = [f"{text} ({plural(count, 'scenario run')})" for text, count in sorted(self._changed.items())]
        differ = [*self._differences, *changed]
        again = f"{plural(self.judged, 'episode')} judged again"
        if self._expected is None:
            version = self._catalogue.version
            good = f"{again} by catalogue {version}: the same verdicts"
            bad = f"{again} by catalogue {version}: {plural(len(differ), 'difference')}"
        else:
            good = f"{again}, with the same results"
            bad = "the plan and the evidence do not give the results of the report"
        step = answered("judgement", differ, good, bad)
        if step.answer == "pass" and self._cut:
            text = (
                f"{plural(len(self._cut), 'episode')} can't be judged again: the target sent more than evidence keeps"
            )
            return unknown("judgement", text, tuple(self._cut[:12]))
        if step.answer == "pass" and (path is None or self.judged == 0) and self._by_line:
            return unknown("judgement", "no evidence was given" if path is None else "no episode could be judged again")
        return step


def _verdicts(said: Iterable[tuple[str, Verdict]]) -> dict[str, str]:
    """The verdicts on each requirement, as a text."""
    found: dict[str, set[str]] = {}
    for name, verdict in said:
        found.setdefault(name, set()).add(verdict)
    return {name: " and ".join(sorted(verdicts)) for name, verdicts in found.items()}


def _is_open(row: ScenarioResult) -> bool:
    """Whether something failed, or stayed open."""
    return row.verdict in BLOCKING or any(one.verdict in BLOCKING for one in row.findings)


def differences(stated: ScenarioResult, computed: ScenarioResult) -> Iterator[str]:
    """What a result says otherwise than it must."""
    for name in (one.name for one in fields(stated)):
        before, after = getattr(stated, name), getattr(computed, name)
        if before == after:
            continue
        if name in ("findings", "passed", "not_applicable"):
            yield f"{name}: {_change(before, after)}"
        else:
            yield f"{name} is {short(before)}, must be {short(after)}"


def _change(stated: Iterable[object], computed: Iterable[object]) -> str:
    def names(rows: Iterable[object]) -> list[str]:
        return [row if isinstance(row, str) else f"{row.requirement} {row.verdict} {row.actual}" for row in rows]  # type: ignore[attr-defined]

    before, after = names(stated), names(computed)
    lost, gained = [n for n in before if n not in after], [n for n in after if n not in before]
    return f"stated {short(lost)}, judged again {short(gained)}"
