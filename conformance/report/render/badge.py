"""Badges: an SVG to put beside a README, and the JSON that shields.io's endpoint badge reads."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from conformance.errors import UnknownNameError
from conformance.report.document.model import Report
from conformance.report.render.marks import SUBJECT
from conformance.report.render.safe import safe
from conformance.verdict import Result

COLOUR = {Result.CONFORMANT: "#2e7d32", Result.NON_CONFORMANT: "#c62828", Result.INCOMPLETE: "#9a6700"}


def badge(report: Report, version: str | None = None) -> tuple[str, str, str]:
    """Label, message and colour for `version`, or for the version the report is about first.

    Raises `UnknownNameError` if the report has no such version.
    """
    report = safe(report)
    side = "" if report.implementation.role == "epp" else f" {SUBJECT[report.implementation.role]}"
    if version is None:
        return f"EPP {report.specification.version}{side}", report.result.value, COLOUR[report.result]
    row = next((row for row in report.versions if row.version == version), None)
    if row is None:
        raise UnknownNameError("result for version", version, [row.version for row in report.versions])
    return f"EPP {version}{side}", row.result.value, COLOUR[row.result]


def endpoint(report: Report, version: str | None = None) -> dict[str, Any]:
    """What shields.io's endpoint badge reads."""
    label, message, colour = badge(report, version)
    return {"schemaVersion": 1, "label": label, "message": message, "color": colour.removeprefix("#")}


def svg(report: Report, version: str | None = None) -> str:
    """A flat badge, readable by a screen reader, that needs nothing from any network."""
    label, message, colour = badge(report, version)
    left, right = _width(label), _width(message)
    title = escape(f"{label}: {message}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{left}" height="20" fill="#444c56"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14" textLength="{left - 12}">{escape(label)}</text>'
        f'<text x="{left + right / 2}" y="14" textLength="{right - 12}">{escape(message)}</text></g></svg>\n'
    )


def _width(text: str) -> int:
    """Roughly the width of a text in 11 px Verdana, with 6 px at each side; `textLength` makes it exact."""
    return 12 + round(6.6 * len(text))
