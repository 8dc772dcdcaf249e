"""Published reports: verified by their evidence, and without a trace of the machine that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.evidence.packing import is_packed, unpacked
from conformance.report.document.model import read_report
from conformance.report.verify.verification import verify
from conformance.targets.gateway import GatewayProfile
from conformance.targets.resolve import load_any, shipped

ROOT = Path(__file__).parents[2] / "reports"
REPORTS = sorted(ROOT.rglob("*-report.yaml"))


def test_every_way_to_set_envoy_up_has_its_report():
    profiles = (load_any(name) for name in shipped())
    variants = {one.start.envoy for one in profiles if isinstance(one, GatewayProfile)}
    gateways = [read_report(path) for path in REPORTS if path.parent.parent.name == "gateway"]
    assert {report.subject.flags[0] for report in gateways} == variants


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_published_report_is_verified_by_its_evidence(path):
    verification = verify(path)
    assert [(step.name, step.text, step.details) for step in verification.steps if step.answer != "pass"] == []


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_published_report_is_complete_and_its_file_named_after_it(path):
    report = read_report(path)
    assert report.complete
    assert not report.stopped
    side = path.parent.parent.name
    mode = report.mode or report.subject.flags[0].removeprefix("envoy-")
    assert path.name == f"{report.implementation.version}-{mode}-{side}-report.yaml"
    assert path.parts[-4] == report.specification.version


@pytest.mark.parametrize("path", [path for path in ROOT.rglob("*") if path.is_file()], ids=lambda path: path.name)
def test_a_published_report_names_no_machine(path):
    with unpacked(path) if is_packed(path) else path.open("rb") as file:
        text = file.read().decode()
    assert not re.search(r"/(?:work|tmp|home|root|usr)\b", text)
    assert "localhost" not in text
