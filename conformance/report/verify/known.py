"""Whether this suite has the catalogue and the scenarios that a report was judged by, and who has them if not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from conformance.printable import printable
from conformance.report.document.build import specification, suite
from conformance.report.document.model import Report
from conformance.report.verify.steps import VerificationStep, answered, unknown
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.digest import scenarios_digest
from conformance.scenario.history import release_of
from conformance.scenario.loader import Instance


def catalogue_step(report: Report, catalogue: Catalogue, built_in: Sequence[Instance]) -> VerificationStep:
    """`unknown` for another catalogue or other scenarios: older or newer ones are no tampering."""
    ours = (f"sha256:{catalogue.digest}", f"sha256:{scenarios_digest(built_in)}")
    if (report.catalogue.digest, report.catalogue.scenarios) != ours:
        what = "catalogue" if report.catalogue.digest != ours[0] else "scenarios of catalogue"
        text = (
            f"the report was judged by {what} {report.catalogue.version} of suite {report.suite.version}; this is "
            f"catalogue {catalogue.version} of suite {suite().version}. {remedy(report)}"
        )
        return unknown("catalogue", text)
    named = [report.specification, *(row.specification for row in report.versions)]
    problems = [
        f"{one.version}: {one.name} {one.digest} is not the document that the catalogue has"
        for one in named
        if one.version not in catalogue.documents or one != specification(catalogue, one.version)
    ]
    if report.catalogue.version != catalogue.version:
        problems.append(f"version {report.catalogue.version} is not the version of this digest, {catalogue.version}")
    if report.suite.name != suite().name:
        problems.append(f"{report.suite.name} is no suite that has this catalogue")
    return answered("catalogue", problems, f"catalogue {catalogue.version}, known to this suite", "wrong documents")


def remedy(report: Report) -> str:
    """Which suite can verify the report."""
    digests = (report.catalogue.digest, report.catalogue.scenarios or "")
    known = release_of(report.catalogue.version, *(one.removeprefix("sha256:") for one in digests))
    if known is None and report.suite.version == suite().version:
        return "Both call themselves the same version: use the very build that made the report"
    wanted = shlex.quote(f"epp-conformance=={known or printable(report.suite.version)}")
    return f"Verify it with `pip install {wanted}`"
