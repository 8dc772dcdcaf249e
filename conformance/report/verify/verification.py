"""Check a report offline: its form, its digests, its arithmetic, and its verdicts, by judging the evidence again.

`verify(report, evidence)` gives one step per question, each `pass`, `fail` or `unknown`. What another catalogue or
another suite judged can't be judged again by this one: that is `unknown`, with the suite to use, and never tampering.

It proves that a report is consistent with its evidence. Who made both needs a signature, or a rerun.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from conformance.evidence.episode import Context, Episode
from conformance.evidence.store import EvidenceError, EvidenceLine, read_evidence
from conformance.outcome import VersionOutcome, scenario_verdict, version_outcome
from conformance.report.document.build import overall, specification, suite, version_row
from conformance.report.document.canonical import ReportError, digest, read_document
from conformance.report.document.model import Report, parse_report
from conformance.report.document.rows import FindingRow, RequirementRow, ScenarioRow, listed
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding, Verdict

Judge = Callable[[Episode, Context, Catalogue], tuple[Finding, ...]]
Answer = Literal["pass", "fail", "unknown"]

PROVES = "This proves that the report and its evidence agree. Who made them needs a signature, or a rerun."
MOST = 12
"""Details kept per step; the rest are counted."""

NEED_EVIDENCE = (Verdict.PASS, Verdict.FAIL, Verdict.WARN)

UNREACHED = (Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.SKIPPED, Verdict.ATTESTED)
"""What a reason may make of a scenario, unless its findings are a failure; of one that was not begun, also
`notApplicable`: the plan has no place for it with this target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationStep:
    """One question with its answer. `text` says what was found, `details` where."""

    name: str
    answer: Answer
    text: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All steps, in order."""

    steps: tuple[VerificationStep, ...]

    @property
    def answer(self) -> Answer:
        """`fail` if a step failed, else `unknown` if one is unknown."""
        answers = {step.answer for step in self.steps}
        return "fail" if "fail" in answers else "unknown" if "unknown" in answers else "pass"

    @property
    def proves(self) -> str:
        """What the answer proves: only a report whose every step passed agrees with its evidence."""
        match self.answer:
            case "pass":
                return PROVES
            case "fail":
                return "The report can't be trusted as it is: see the steps that failed."
            case _:
                return "This proves nothing yet: see the steps that could not be checked."

    def step(self, name: str) -> VerificationStep:
        """The step of that name. Raises KeyError."""
        return {step.name: step for step in self.steps}[name]


def verify(
    report_path: Path,
    evidence_path: Path | None,
    *,
    catalogue: Catalogue | None = None,
    judge: Judge | None = None,
) -> Verification:
    """Check the report (JSON or YAML) and, if given, its evidence. `catalogue` and `judge` default to the suite's own.

    Raises nothing for what is wrong with the files: that is the answer of a step.
    """
    catalogue = catalogue or Catalogue.load()
    try:
        document = read_document(report_path)
        report = parse_report(document, str(report_path))
    except ReportError as error:
        rest = ("digest", "catalogue", "evidence", "requirements", "roll-ups", "judgement")
        unread = tuple(VerificationStep(name=name, answer="unknown", text="the report can't be read") for name in rest)
        return Verification(steps=(VerificationStep(name="schema", answer="fail", text=error.message), *unread))
    steps = [
        VerificationStep(name="schema", answer="pass", text=f"{report.api_version} {report.kind}"),
        _digest(report, document),
        _catalogue(report, catalogue),
    ]
    known = steps[-1].answer == "pass"
    again = _Evidence(report, catalogue, (judge or _suites_judge()) if known else None)
    steps.append(again.step(evidence_path))
    if known:
        steps += [_requirements(report, catalogue), _roll_ups(report, catalogue)]
        steps.append(_judgement(report, again, evidence_path))
    else:
        text = "not checked: the catalogue is not known here"
        steps += [
            VerificationStep(name=n, answer="unknown", text=text) for n in ("requirements", "roll-ups", "judgement")
        ]
    return Verification(steps=tuple(steps))


def _suites_judge() -> Judge:
    from conformance.judges import judge

    return judge


def _answer(name: str, problems: Iterable[str], good: str, bad: str) -> VerificationStep:
    found = list(problems)
    if not found:
        return VerificationStep(name=name, answer="pass", text=good)
    more = (f"… and {len(found) - MOST} more",) if len(found) > MOST else ()
    return VerificationStep(name=name, answer="fail", text=bad, details=(*found[:MOST], *more))


# -- the steps ---------------------------------------------------------------------------------------------------------


def _digest(report: Report, document: Mapping[str, Any]) -> VerificationStep:
    computed = digest(document)
    problems = [] if computed == report.digest else [f"the report says {report.digest}, its content gives {computed}"]
    return _answer("digest", problems, report.digest, "the report was changed after it was made")


def _catalogue(report: Report, catalogue: Catalogue) -> VerificationStep:
    ours, theirs = f"sha256:{catalogue.digest}", report.catalogue.digest
    if ours != theirs:
        text = (
            f"the report was judged by catalogue {report.catalogue.version} of suite {report.suite.version}; this is "
            f"catalogue {catalogue.version} of suite {suite().version}. {_remedy(report)}"
        )
        return VerificationStep(name="catalogue", answer="unknown", text=text)
    named = [report.specification, *(row.specification for row in report.versions)]
    problems = [
        f"{one.version}: {one.name} {one.digest} is not the document that the catalogue has"
        for one in named
        if one.version not in catalogue.documents or one != specification(catalogue, one.version)
    ]
    if report.catalogue.version != catalogue.version:
        problems.append(f"version {report.catalogue.version} is not the version of this digest, {catalogue.version}")
    return _answer("catalogue", problems, f"catalogue {catalogue.version}, known to this suite", "wrong documents")


def _remedy(report: Report) -> str:
    """Which suite can verify the report."""
    if report.suite.version == suite().version:
        return "Both call themselves the same version: use the very build that made the report"
    return f"Verify it with `pip install {report.suite.name}=={report.suite.version}`"


def _requirements(report: Report, catalogue: Catalogue) -> VerificationStep:
    problems: list[str] = []
    run = [row.version for row in report.versions]
    for version in dict.fromkeys([*run, *(row.version for row in report.requirements)]):
        if version not in catalogue.documents or version not in run:
            problems.append(f"{version}: not a version of this report")
            continue
        rows = Counter(row.id for row in report.requirements_of(version))
        wanted = [entry.id for entry in catalogue.for_version(version, report.implementation.role)]
        problems += [f"{version}: {name} is missing" for name in wanted if name not in rows]
        problems += [f"{version}: {name} is there {count} times" for name, count in rows.items() if count > 1]
        problems += [f"{version}: {name} is no requirement of this version" for name in rows if name not in wanted]
    good = f"{len(report.requirements)} entries, each once"
    return _answer("requirements", problems, good, "the requirements are not those of the catalogue")


def _roll_ups(report: Report, catalogue: Catalogue) -> VerificationStep:
    problems = [problem for row in report.results for problem in _own_verdict(row)]
    versions = [row.version for row in report.versions]
    problems += [f"{row.version} {row.id}: no such version in this report" for row in report.results
                 if row.version not in versions]  # fmt: skip
    for (version, name), count in Counter((row.version, row.id) for row in report.results).items():
        if count > 1:
            problems.append(f"{version} {name}: is there {count} times")
    problems += [f"version {name} is there twice" for name, count in Counter(versions).items() if count > 1]
    for row in report.versions:
        if row.version not in catalogue.documents:
            continue
        results = [one.result() for one in report.results_of(row.version)]
        outcome = version_outcome(
            catalogue,
            row.version,
            results,
            role=report.implementation.role,
            claimed=row.claimed,
            complete=row.complete,
        )
        if (computed := version_row(catalogue, outcome)) != row:
            problems += _differences(f"version {row.version}", row.model_dump(), computed.model_dump())
        problems += _rows(report, outcome)
    complete = bool(report.versions) and not report.stopped
    if report.complete != (complete and all(row.complete for row in report.versions)):
        problems.append(f"complete is {report.complete}")
    if (result := overall(report.versions, complete=complete)) != report.result:
        problems.append(f"result is {report.result}, its versions give {result}")
    good = f"{len(report.results)} results give the requirements' verdicts and the results of both kinds"
    return _answer("roll-ups", problems, good, "what is summed up does not follow from the results")


def _own_verdict(row: ScenarioRow) -> Iterable[str]:
    """A scenario's verdict is that of its findings, or a reason why it was not reached: which hides no failure."""
    result = row.result()
    where = f"{row.version} {row.id}"
    judged = scenario_verdict(result.findings, row.requirements)
    not_begun = row.evidence is None and not result.findings and row.verdict is Verdict.NOT_APPLICABLE
    unreached = row.verdict in UNREACHED or not_begun
    if row.verdict is not judged and not (unreached and row.reason and judged is not Verdict.FAIL):
        yield f"{where}: verdict {row.verdict}, its findings give {judged}"
    decisive = result.decisive
    if decisive is not None and decisive.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE):
        stated = FindingRow.of(decisive)
        if any(getattr(row, name) != getattr(stated, name) for name in ("requirement", "expected", "actual", "hint")):
            yield f"{where}: requirement, expected, actual or hint are not those of its decisive finding"


def _rows(report: Report, outcome: VersionOutcome) -> Iterable[str]:
    stated = {row.id: row for row in report.requirements_of(outcome.version)}
    for row in outcome.requirements:
        computed = RequirementRow.of(outcome.version, row)
        found = stated.get(computed.id)
        if found is not None and found != computed:
            yield from _differences(f"{outcome.version} {computed.id}", found.model_dump(), computed.model_dump())


def _differences(where: str, stated: Mapping[str, Any], computed: Mapping[str, Any]) -> Iterable[str]:
    for name, value in computed.items():
        if stated[name] != value:
            yield f"{where}: {name} is {_short(stated[name])}, computed {_short(value)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _judgement(report: Report, again: _Evidence, path: Path | None) -> VerificationStep:
    if path is None or again.judged == 0:
        text = "no evidence was given" if path is None else "no episode could be judged again"
        nothing_to_judge = path is not None and not any(row.evidence for row in report.results)
        return VerificationStep(name="judgement", answer="pass" if nothing_to_judge else "unknown", text=text)
    good = f"{again.judged} episodes judged again, with the same findings"
    step = _answer("judgement", again.differences, good, "the evidence does not give the findings of the report")
    ours = suite().version
    if step.answer == "fail" and report.suite.version != ours:
        text = (
            f"suite {ours} judges differently from suite {report.suite.version}, which made the report. "
            f"{_remedy(report)}"
        )
        return VerificationStep(name="judgement", answer="unknown", text=text, details=step.details)
    return step


@dataclass(kw_only=True)
class _Tally:
    problems: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    judged: int = 0


class _Evidence:
    """One pass over the evidence: the digests of its lines, and the findings of its episodes."""

    def __init__(self, report: Report, catalogue: Catalogue, judge: Judge | None) -> None:
        self._report = report
        self._catalogue = catalogue
        self._judge = judge
        self._tally = _Tally()
        self._rows: dict[str, list[ScenarioRow]] = {}
        for row in report.results:
            if row.evidence is not None:
                self._rows.setdefault(row.evidence.sha256, []).append(row)

    @property
    def judged(self) -> int:
        return self._tally.judged

    @property
    def differences(self) -> list[str]:
        return self._tally.differences

    def step(self, path: Path | None) -> VerificationStep:
        """Read it all; the answer is about digests alone."""
        problems = self._tally.problems
        for row in self._report.results:
            if row.evidence is None and row.verdict in NEED_EVIDENCE:
                problems.append(f"{row.version} {row.id}: verdict {row.verdict} without evidence")
        if path is None:
            if problems:
                return _answer("evidence", problems, "", "there are verdicts without evidence")
            return VerificationStep(name="evidence", answer="unknown", text="no evidence was given")
        import hashlib

        whole, size, number, missing = hashlib.sha256(), 0, 0, dict(self._rows)
        try:
            for line in read_evidence(path):
                whole.update(line.raw + b"\n")
                size, number = size + len(line.raw) + 1, number + 1
                if rows := missing.pop(line.sha256, None):
                    self._line(line, rows)
        except EvidenceError as error:
            problems.append(error.message)
        problems += [f"{row.version} {row.id}: its episode is not in the evidence" for rows in missing.values()
                     for row in rows]  # fmt: skip
        stated = self._report.evidence
        if stated is None:
            problems.append("the report names no file of evidence")
        elif (stated.sha256, stated.bytes, stated.episodes) != (whole.hexdigest(), size, number):
            problems.append(
                f"the report names {stated.episodes} episodes, {stated.bytes} bytes, sha256 {stated.sha256}; "
                f"the file has {number}, {size}, {whole.hexdigest()}"
            )
        good = f"{number} episodes, {len(self._rows)} of them referred to, every digest as stated"
        return _answer("evidence", problems, good, "the evidence is not what the report was made of")

    def _line(self, line: EvidenceLine, rows: Iterable[ScenarioRow]) -> None:
        try:
            episode, context = line.read()
        except EvidenceError as error:
            self._tally.problems.append(error.message)
            return
        for row in rows:
            self._context(row, episode, context)
        if self._judge is None:
            return
        self._tally.judged += 1
        try:
            findings = listed(self._judge(episode, context, self._catalogue))
        except Exception as error:  # noqa: BLE001 - a defect of ours, or evidence made up to hit one
            self._tally.differences += [
                f"{row.version} {row.id}: can't be judged: {error!r}"
                for row in rows
                if row.verdict is not Verdict.ERROR
            ]
            return
        for row in rows:
            for name, value in findings.items():
                if getattr(row, name) != value:
                    self._tally.differences.append(f"{row.version} {row.id}: {_change(getattr(row, name), value)}")

    def _context(self, row: ScenarioRow, episode: Episode, context: Context) -> None:
        stated = (row.version, row.id, row.requirements, row.provisional, row.evidence and row.evidence.episode)
        if stated != (context.version, context.scenario, context.requirements, context.provisional, episode.id):
            self._tally.differences.append(f"{row.version} {row.id}: its evidence is about {context.scenario}")
        claims = context.claims if context.gateway is None else dataclasses.replace(context.gateway, backends=())
        if claims != self._report.claims:
            self._tally.differences.append(f"{row.version} {row.id}: was judged with other claims than the report has")


def _change(stated: Iterable[Any], computed: Iterable[Any]) -> str:
    def names(rows: Iterable[Any]) -> list[str]:
        return [row if isinstance(row, str) else f"{row.requirement} {row.verdict} {row.actual}" for row in rows]

    before, after = names(stated), names(computed)
    lost, gained = [n for n in before if n not in after], [n for n in after if n not in before]
    return f"stated {_short(lost)}, judged again {_short(gained)}"
