"""JUnit XML: one case per scenario and per universal requirement, as CI systems read it.

`fail` is a failure; `error` and `inconclusive` (no verdict was reached) are errors; what was not applicable, skipped,
attested or untested is skipped, with the reason; `warn` passes, and says so in its output.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from conformance.outcome import ScenarioResult
from conformance.report.document.failures import Concern, concerns, waived_text, waiver_of_concern, waiver_of_scenario
from conformance.report.document.model import Report
from conformance.report.render.marks import MEANING
from conformance.report.render.safe import safe
from conformance.verdict import Finding, Verdict

OUTCOME = {
    Verdict.FAIL: "failure",
    Verdict.ERROR: "error",
    Verdict.INCONCLUSIVE: "error",
    Verdict.SKIPPED: "skipped",
    Verdict.NOT_APPLICABLE: "skipped",
    Verdict.ATTESTED: "skipped",
    Verdict.UNTESTED: "skipped",
}
"""The element that says so; verdicts without one pass."""


def junit(report: Report) -> str:
    """The document, UTF-8 with declaration: a suite of scenarios and one of universal requirements per version."""
    report = safe(report)
    found = {(one.requirement.version, one.requirement.id): one for one in concerns(report, Verdict)}
    root = ET.Element("testsuites", name=_clean(f"epp-conformance {report.name}"))
    for row in report.versions:
        scenarios = [_scenario(result, report) for result in report.results_of(row.version)]
        seconds = sum(result.duration for result in report.results_of(row.version))
        _suite(root, report, f"EPP {row.version}", scenarios, seconds)
        invariants = [
            _invariant(found[one.version, one.id], report)
            for one in report.requirements_of(row.version)
            if one.universal
        ]
        _suite(root, report, f"EPP {row.version} invariants", invariants, 0.0)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(one.get(name, "0")) for one in root)))
    root.set("time", f"{report.duration:.3f}")
    for one in root.iter():
        one.attrib.update({name: _clean(value) for name, value in one.attrib.items()})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, report: Report, name: str, cases: list[ET.Element], seconds: float) -> None:
    suite = ET.SubElement(root, "testsuite", name=name, time=f"{seconds:.3f}", timestamp=report.started_at)
    suite.set("tests", str(len(cases)))
    for tag, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(counted, str(sum(case.find(tag) is not None for case in cases)))
    properties = {
        "suite": report.suite.version,
        "catalogue": report.catalogue.version,
        "seed": str(report.environment.seed),
        "report": report.digest,
    }
    _properties(suite, properties.items())
    suite.extend(cases)


def _scenario(row: ScenarioResult, report: Report) -> ET.Element:
    case = ET.Element("testcase", classname=f"epp.{row.version}.{row.section}", name=row.id, time=f"{row.duration:.3f}")
    levels = {one.id: one.level for one in report.requirements_of(row.version)}
    _properties(
        case,
        [
            *(("requirement", name) for name in row.requirements),
            *(("level", levels[name]) for name in row.requirements[:1] if name in levels),
            ("verdict", row.verdict.value),
            ("mode", row.mode),
            *((("provisional", "true"),) if row.provisional else ()),
        ],
    )
    waiver = waiver_of_scenario(report, row)
    excused = row.provisional or waiver is not None
    verdict = Verdict.SKIPPED if excused and row.verdict is Verdict.FAIL else row.verdict
    finding = row.decisive or Finding(requirement="".join(row.requirements[:1]), verdict=row.verdict)
    message = row.actual or MEANING[row.verdict]
    if finding.actual:
        message = f"{finding.requirement}: {message}"
    if waiver is not None and row.verdict is Verdict.FAIL:
        message = f"{waived_text(waiver)}; {message}"
    expected = [f"expected: {one}" for one in finding.expected]
    lines = [row.title, f"requirement: {finding.requirement}", *expected, f"actual: {row.actual}"]
    lines += [f"hint: {finding.hint}"] if finding.hint else []
    lines += [f"reproduce: {command}"] if (command := report.reproduce(row)) else []
    _say(case, verdict, row.verdict, message, "\n".join(lines))
    return case


def _invariant(found: Concern, report: Report) -> ET.Element:
    row, seen = found.requirement, found.occurrences
    case = ET.Element("testcase", classname=f"epp.{row.version}.invariant", name=f"invariant::{row.id}", time="0.000")
    properties = [("requirement", row.id), ("level", row.level), ("verdict", row.verdict.value), ("effect", row.effect)]
    _properties(case, properties)
    message = f"{row.id}: {seen[0].finding.actual}" if seen else row.note or MEANING[row.verdict]
    lines = [row.statement, *(f"{one.result.id}: {one.finding.actual}" for one in seen[:10])]
    verdict = Verdict.WARN if row.verdict is Verdict.FAIL and row.effect != "fail" else row.verdict
    waiver = waiver_of_concern(report, found)
    if row.verdict is Verdict.FAIL and waiver is not None:
        verdict = Verdict.SKIPPED
        message = f"{waived_text(waiver)}; {message}"
    _say(case, verdict, row.verdict, message, "\n".join(lines))
    return case


def _say(case: ET.Element, shown: Verdict, verdict: Verdict, message: str, text: str) -> None:
    if tag := OUTCOME.get(shown):
        ET.SubElement(case, tag, type=verdict.value, message=_clean(message)).text = _clean(text)
    elif shown is Verdict.WARN:
        ET.SubElement(case, "system-out").text = _clean(f"{verdict}: {text}")


def _properties(parent: ET.Element, pairs: Iterable[tuple[str, str]]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", name=name, value=_clean(value))


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 has no place for."""
    return "".join(one if one in "\t\n" or (one >= " " and one not in "\ufffe\uffff") else "\ufffd" for one in text)
