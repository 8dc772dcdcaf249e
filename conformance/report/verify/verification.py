"""Check a report offline: derive all of it again from the suite's plan and from its evidence.

`verify(report, evidence)` gives one step per question, each `pass`, `fail` or `unknown`. What another catalogue or
another suite judged can't be judged again by this one: that is `unknown`, with the suite to use, and never tampering.

It proves that a report is complete and follows from its evidence. It can't prove where the evidence comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from conformance.printable import plural
from conformance.report.document.build import suite
from conformance.report.document.canonical import ReportError, digest, read_document
from conformance.report.document.model import Report, parse_report
from conformance.report.verify.again import Judge, JudgedAgain
from conformance.report.verify.expected import Expected, UnplannableError
from conformance.report.verify.files import files_step
from conformance.report.verify.known import catalogue_step, remedy
from conformance.report.verify.roll_ups import requirement_problems, roll_up_problems
from conformance.report.verify.steps import PROVES, Verification, VerificationStep, answered, unknown
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance, load

__all__ = ["PROVES", "Verification", "VerificationStep", "verify"]

STEPS = ("schema", "digest", "catalogue", "plan", "requirements", "roll-ups", "evidence", "judgement", "files")


def verify(
    report_path: Path,
    evidence_path: Path | Literal["beside"] | None = "beside",
    *,
    catalogue: Catalogue | None = None,
    judge: Judge | None = None,
    instances: Sequence[Instance] | None = None,
) -> Verification:
    """Check the report (JSON or YAML) and, if given, its evidence, and what else a run writes beside it.

    The evidence is a file, or the one beside the report that the report names.

    `catalogue`, `judge` and `instances` (all scenario instances of the certified set) default to the suite's own.
    Raises nothing for what is wrong with the files: that is the answer of a step.
    """
    catalogue = catalogue or Catalogue.load()
    built_in = load(catalogue) if instances is None else instances
    try:
        document = read_document(report_path)
        report = parse_report(document, str(report_path))
    except ReportError as error:
        unread = tuple(unknown(name, "the report can't be read") for name in STEPS[1:])
        return Verification(steps=(VerificationStep(name="schema", answer="fail", text=error.message), *unread))
    if evidence_path == "beside":
        evidence_path = report.evidence_beside(report_path)
    steps = [
        VerificationStep(name="schema", answer="pass", text=f"{report.api_version} {report.kind}"),
        _digest(report, document),
        catalogue_step(report, catalogue, built_in),
    ]
    if steps[-1].answer != "pass":
        return Verification(steps=(*steps, *_by_another_catalogue(report, evidence_path, catalogue, judge)))
    try:
        expected = Expected(report, catalogue, built_in)
    except UnplannableError as error:
        plan = VerificationStep(name="plan", answer="fail", text=error.message)
        text = "not checked: there is no plan"
        return Verification(steps=(*steps, plan, *(unknown(name, text) for name in STEPS[4:])))
    again = JudgedAgain(report, catalogue, judge or _suites_judge(), expected)
    evidence = again.evidence(evidence_path)
    again.without_evidence()
    good = f"{plural(len(report.results), 'result')}: each instance of a complete run of this target, once"
    if not all(row.complete for row in report.versions):
        good = f"{plural(len(report.results), 'result')}, each of the plan; some were left out, as the report says"
    steps += [
        answered("plan", expected.problems(), good, "the results are not those of a run of this target"),
        answered(
            "requirements",
            requirement_problems(report, catalogue),
            f"{len(report.requirements)} entries, each once",
            "the requirements are not those of the catalogue",
        ),
        answered(
            "roll-ups",
            roll_up_problems(report, catalogue),
            f"{plural(len(report.results), 'result gives', 'results give')} the requirements' verdicts and "
            "the results of both kinds",
            "what is summed up does not follow from the results",
        ),
        evidence,
        _judgement(report, again, evidence_path),
        files_step(report, report_path, evidence_path),
    ]
    return Verification(steps=tuple(steps), notes=tuple(_notes(report, expected)))


def _by_another_catalogue(
    report: Report, evidence: Path | None, catalogue: Catalogue, judge: Judge | None
) -> Iterator[VerificationStep]:
    """Judge the evidence by this catalogue: a verdict that differs is no tampering. The rest depends on the other."""
    again = JudgedAgain(report, catalogue, judge or _suites_judge(), None)
    done = {"evidence": again.evidence(evidence)}
    step = again.judgement(evidence)
    done["judgement"] = unknown(step.name, step.text, step.details) if step.answer == "fail" else step
    text = f"not checked: depends on catalogue {report.catalogue.version}"
    yield from (done.get(name) or unknown(name, text) for name in STEPS[3:])


def _suites_judge() -> Judge:
    from conformance.judges import judge

    return judge


def _digest(report: Report, document: Mapping[str, Any]) -> VerificationStep:
    computed = digest(document)
    problems = [] if computed == report.digest else [f"the report says {report.digest}, its content gives {computed}"]
    return answered("digest", problems, report.digest, "the report was changed after it was made")


def _judgement(report: Report, again: JudgedAgain, path: Path | None) -> VerificationStep:
    step = again.judgement(path)
    ours = suite().version
    if step.answer == "fail" and report.suite.version != ours:
        text = (
            f"suite {ours} judges differently from suite {report.suite.version}, which made the report. "
            f"{remedy(report)}"
        )
        return unknown("judgement", text, step.details)
    return step


def _notes(report: Report, expected: Expected) -> Iterator[str]:
    unclaimed = [row.version for row in report.versions if not row.claimed]
    if 0 < len(unclaimed) < len(report.versions):  # if it claims none of them, all make the result
        yield f"The target does not claim {', '.join(unclaimed)}: that has no part in the result."
    if expected.own:
        own = ", ".join(expected.own[:5])
        yield f"{len(expected.own)} scenario instances are the vendor's own, not of the certified set: {own}"
    yield (
        "The vendor's word, not derived: implementation, mode, whether it was observed, subject, platform, topology, "
        "claims, seed and dates; facts of the plan about target and machine (ipv6, marksBodyless, knowsModels, "
        "experimental, restartable, deadline, takesASubset, pools); that the target was tested as the version it is "
        "labelled with; times of entries and addresses of pods; what was in flight at a scrape; troubles of "
        "the Kubernetes API; reasons of waivers; anomalies; which secrets were redacted; that generated "
        "conversations were tried."
    )
