"""A report in the form of upstream's `ConformanceReport`, as tools of the Gateway API read it.

It has names of failed tests and counts, no reasons and no evidence; the canonical report is linked by its digest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from conformance.outcome import ScenarioResult
from conformance.report.document.model import Report
from conformance.report.render.safe import safe
from conformance.verdict import KINDS, Kind, Result, Verdict

RESULT = {Result.CONFORMANT: "success", Result.NON_CONFORMANT: "failure", Result.INCOMPLETE: "partial"}
PROFILE = {"epp": "EPP", "data-plane": "Gateway", "model-server": "ModelServer"}
"""What upstream calls what is tested."""


def conformance_report(report: Report, *, one_profile: bool = False) -> dict[str, Any]:
    """The document, of the report's headline version: one profile for each kind of requirements, or one for all, as
    upstream's rules for published reports ask."""
    report = safe(report)
    version = report.specification.version
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
        "profiles": _profiles(report, one_profile=one_profile),
        "succeededProvisionalTests": [
            row.id for row in report.results_of(version) if row.provisional and row.verdict is Verdict.PASS
        ],
    }


def _profiles(report: Report, *, one_profile: bool) -> list[dict[str, Any]]:
    headline = report.headline()
    if headline is None:
        return []
    name = PROFILE[report.implementation.role]
    if one_profile:
        return [_profile(report, name, KINDS, headline.result)]
    whole = headline.complete and not report.stopped
    results = {
        kind: result if whole or result is Result.NON_CONFORMANT else Result.INCOMPLETE  # of what was selected
        for kind, result in headline.kinds.items()
    }
    return [
        _profile(report, name if kind == "protocol" else f"{name}-{kind}", [kind], results[kind])
        for kind in KINDS
        if kind in results
    ]


def _profile(report: Report, name: str, kinds: Collection[Kind], result: Result) -> dict[str, Any]:
    version = report.specification.version
    own = {row.id for row in report.requirements_of(version) if row.kind in kinds}
    rows = [row for row in report.results_of(version) if not row.provisional and own & {*row.requirements}]

    def named(verdicts: set[Verdict]) -> list[ScenarioResult]:
        return [row for row in rows if row.verdict in verdicts]

    passed, failed = named({Verdict.PASS, Verdict.WARN}), named({Verdict.FAIL, Verdict.ERROR})
    skipped = [row for row in rows if row not in passed and row not in failed]
    core: dict[str, Any] = {
        "result": RESULT[result],
        "statistics": {"Passed": len(passed), "Failed": len(failed), "Skipped": len(skipped)},
    }
    core |= {"failedTests": [row.id for row in failed]} if failed else {}
    core |= {"skippedTests": [row.id for row in skipped]} if skipped else {}
    summary = f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped; report {report.digest}"
    return {"name": name, "core": core, "summary": summary}


def to_yaml(report: Report, *, one_profile: bool = False) -> str:
    """The document as YAML."""
    import yaml

    document = conformance_report(report, one_profile=one_profile)
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text
