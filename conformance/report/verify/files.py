"""Whether what a run writes beside its report is rendered from it: people read the page, and not the document."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from conformance.errors import ConformanceError
from conformance.folder import open_regular
from conformance.report.document.build import suite
from conformance.report.document.model import Report
from conformance.report.verify.known import remedy
from conformance.report.verify.steps import VerificationStep, answered, unknown

README = "README.md"
"""The page of an implementation's folder, which people may take for checked."""

MOST_BYTES = 256 * 1024 * 1024
"""A larger file is no face of a report."""


def files_step(report: Report, path: Path, evidence: Path | None) -> VerificationStep:
    """Compare summary, JUnit file and page beside the report at `path`; the page shows conversations of `evidence`.

    Another release of the suite may have other words: then a file that differs is `unknown`.
    """
    from conformance.report.render.folder import HTML, JUNIT, MARKDOWN, REPORT
    from conformance.report.render.html import html
    from conformance.report.render.junit import junit
    from conformance.report.render.markdown import summary

    faces: dict[str, Callable[[Report], str]] = {
        MARKDOWN: summary,
        JUNIT: junit,
        HTML: partial(html, evidence=evidence),
    }
    there = [name for name in faces if path.name == REPORT and os.path.lexists(path.with_name(name))]
    if evidence is None and HTML in there:
        there.remove(HTML)
        beside = f"; {HTML} can't be compared without the evidence"
    else:
        beside = ""
    if path.with_name(README).is_file():
        beside += f"; {README} is not compared: it tells of a whole folder, and `certify` makes it"
    problems = []
    for name in there:
        try:
            if not _is(path.with_name(name), faces[name](report)):
                problems.append(f"{name}: is not what the report gives; `report convert` makes it")
        except (OSError, ValueError, ConformanceError) as problem:
            problems.append(f"{name}: {problem}")
    good = f"{', '.join(there)} as the report gives" if there else "none beside the report"
    step = answered("files", problems, good + beside, "a file beside the report says something else")
    if step.answer == "fail" and report.suite.version != suite().version:
        text = f"suite {suite().version} writes them otherwise than suite {report.suite.version}. {remedy(report)}"
        return unknown("files", text, step.details)
    return step


def _is(path: Path, text: str) -> bool:
    with open_regular(path, MOST_BYTES, follow=True) as file:
        return file.read() == text.encode()
