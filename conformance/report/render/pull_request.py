"""The pull request that publishes an implementation's results among upstream's: its files and its text.

    conformance/reports/v<protocol version>/<side>/<implementation>/<implementation version>-<mode>-<side>-report.yaml
    conformance/reports/v<protocol version>/<side>/<implementation>/README.md
    PULL_REQUEST.md   the title and the description

Upstream takes a `ConformanceReport` with exactly one profile whose result is success, a README with its five columns,
and a section that says how to reproduce. The whole reports stay where `write_submission` put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UsageError
from conformance.report.document.model import Report, read_report
from conformance.report.render.markup import cell, code, link, text
from conformance.report.render.readme import how_run
from conformance.report.render.safe import safe
from conformance.report.render.upstream import PROFILE, to_yaml
from conformance.verdict import Result

FOLDER = Path("conformance", "reports")
TEXT = "PULL_REQUEST.md"
REQUIRED = "https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/main/conformance/reports/README.md"


def write_pull_request(submissions: Sequence[Path], root: Path) -> tuple[Path, ...]:
    """Write below `root` what upstream takes of these folders of `write_submission`, one for each protocol version.

    Versions without a number, and reports that are not conformant, are left out. Returns the files, the text of the
    pull request first. Raises `UsageError` if nothing is left.
    """
    taken: dict[Path, list[tuple[Path, Report]]] = {}
    left_out: dict[str, None] = {}
    for folder in submissions:
        for path in sorted(folder.glob("*-report.yaml")):
            report = read_report(path)
            version = report.specification.version
            if version == "next":
                left_out["next: upstream has not numbered it"] = None
            elif report.result is not Result.CONFORMANT:
                left_out[f"{version} {report.name}: {report.result.value}"] = None
            elif report.observed:
                left_out[f"{version} {report.name}: observed, not submitted by its makers"] = None
            else:
                target = root / FOLDER / f"v{version}" / folder.parent.name / folder.name
                taken.setdefault(target, []).append((target / path.name, report))
    if not taken:
        raise UsageError(
            "there is nothing to submit to upstream: " + "; ".join(left_out),
            hint="upstream takes conformant reports of numbered versions; the folder of reports is written",
        )
    texts = {root / TEXT: _description([report for own in taken.values() for _, report in own], list(left_out))}
    for target, own in taken.items():
        texts |= {path: to_yaml(report, one_profile=True) for path, report in own}
        texts[target / "README.md"] = _readme(own)
    for path, content in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tuple(texts)


def _readme(files: Sequence[tuple[Path, Report]]) -> str:
    reports = [safe(report) for _, report in files]
    who = reports[0].implementation
    profile = PROFILE[who.role]
    lines = [
        f"# {text(who.project)} ({profile} Profile Conformance)",
        "",
        f"[{text(who.project)}]({link(who.url)}) by {text(who.organization)}.",
        "",
        "## Table of Contents",
        "",
        "| Extension Version Tested | Profile Tested | Implementation Version | Mode | Report |",
        "|---|---|---|---|---|",
        *(
            f"| v{one.specification.version} | {profile} | [{cell(one.implementation.version)}]({link(who.url)}) "
            f"| {cell(one.mode or 'default')} | [{cell(one.implementation.version)} {profile} report](./{path.name}) |"
            for one, (path, _) in zip(reports, files, strict=True)
        ),
        "",
        *_reproduce(reports),
    ]
    return "\n".join(lines) + "\n"


def _reproduce(reports: Sequence[Report]) -> list[str]:
    lines = ["## Reproduce", "", "With the profile of this implementation, on any machine with Linux and Python:", ""]
    commands = [f"pipx install epp-conformance=={reports[-1].suite.version}"]
    commands += [
        f"epp-conformance certify --profile PROFILE --protocol-version {one.specification.version} "
        f"--mode {one.mode or 'default'} --seed {one.environment.seed}"
        for one in reports
    ]
    modes = [f"- Mode {one.mode or 'default'}: {text(str(one.environment.topology))}." for one in reports]
    return [*lines, *code("\n".join(commands)), "", *modes, "", *how_run(reports)]


def _description(reports: Sequence[Report], left_out: Sequence[str]) -> str:
    reports = [safe(one) for one in reports]
    first = reports[0]
    who, profile = first.implementation, PROFILE[first.implementation.role]
    versions = ", ".join(dict.fromkeys(f"v{one.specification.version}" for one in reports))
    lines = [
        f"# conformance: add {profile} reports of {text(who.project)} for {versions}",
        "",
        f"Conformance of [{text(who.project)}]({link(who.url)}) by {text(who.organization)} to the Endpoint Picker "
        f"Protocol, tested with epp-conformance {text(first.suite.version)}, catalogue "
        f"{text(first.catalogue.version)}.",
        "",
        "| Version | Implementation version | Mode | Scenarios | Digest of the whole report |",
        "|---|---|---|---|---|",
        *(
            f"| v{one.specification.version} | {cell(one.implementation.version)} | {cell(one.mode or 'default')} "
            f"| {len(one.results)} | `{one.digest}` |"
            for one in reports
        ),
        "",
        f"By the [rules for reports]({REQUIRED}): the report has one profile, {profile}, with the result success; its "
        "README has the table and says how to reproduce. The whole reports with their evidence are checked offline by "
        "`epp-conformance report verify`.",
        "",
        f"Contact: {text(', '.join(who.contact))}",
    ]
    if left_out:
        lines += ["", "Tested and not submitted:", "", *(f"- {text(one)}" for one in left_out)]
    return "\n".join(lines) + "\n"
