"""A report in the form of upstream's `ConformanceReport`, as tools of the Gateway API read it.

It has names of failed tests and counts, no reasons and no evidence; the canonical report is linked by its digest.
"""

from __future__ import annotations

from typing import Any

from conformance.report.document.model import Report
from conformance.report.document.rows import ScenarioRow
from conformance.report.render.safe import safe
from conformance.verdict import KINDS, Kind, Result, Verdict

RESULT = {Result.CONFORMANT: "success", Result.NON_CONFORMANT: "failure", Result.INCOMPLETE: "partial"}
PROFILE = {"epp": "EPP", "data-plane": "Gateway"}
"""What upstream calls what is tested."""


def conformance_report(report: Report) -> dict[str, Any]:
    """The document, of the report's headline version: one profile for each kind of requirements."""
    report = safe(report)
    version = report.specification.version
    headline = report.headline()
    who = report.implementation
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ConformanceReport",
        "date": report.finished_at,
        "GatewayAPIInferenceExtensionVersion": version if version == "next" else f"v{version}",
        "implementation": {
            "organization": who.organization,
            "project": who.project,
            "url": who.url,
            "version": who.version,
            "contact": list(who.contact),
        },
        "mode": report.mode or "default",
        "profiles": [
            _profile(report, kind, headline.kinds[kind])
            for kind in KINDS
            if headline is not None and kind in headline.kinds
        ],
        "succeededProvisionalTests": [
            row.id for row in report.results_of(version) if row.provisional and row.verdict is Verdict.PASS
        ],
    }


def _profile(report: Report, kind: Kind, result: Result) -> dict[str, Any]:
    version = report.specification.version
    own = {row.id for row in report.requirements_of(version) if row.kind == kind}
    rows = [row for row in report.results_of(version) if not row.provisional and own & {*row.requirements}]

    def named(verdicts: set[Verdict]) -> list[ScenarioRow]:
        return [row for row in rows if row.verdict in verdicts]

    passed, failed = named({Verdict.PASS, Verdict.WARN}), named({Verdict.FAIL, Verdict.ERROR})
    skipped = [row for row in rows if row not in passed and row not in failed]
    core: dict[str, Any] = {
        "result": RESULT[result],
        "statistics": {"Passed": len(passed), "Failed": len(failed), "Skipped": len(skipped)},
    }
    core |= {"failedTests": [row.id for row in failed]} if failed else {}
    core |= {"skippedTests": [row.id for row in skipped]} if skipped else {}
    name = PROFILE[report.implementation.role]
    summary = f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped; report {report.digest}"
    return {"name": name if kind == "protocol" else f"{name}-{kind}", "core": core, "summary": summary}


def to_yaml(report: Report) -> str:
    """The document as YAML."""
    import yaml

    text: str = yaml.safe_dump(conformance_report(report), sort_keys=False, allow_unicode=True, width=120)
    return text
