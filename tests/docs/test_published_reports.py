"""Published reports: sound, about what they say, and without a trace of the machine that made them."""

import re
from pathlib import Path

import pytest

from conformance.report.document.model import read_report
from conformance.report.verify.verification import verify
from conformance.targets.gateway import GatewayProfile
from conformance.targets.resolve import load_any, shipped

ROOT = Path(__file__).parents[2] / "reports"
REPORTS = sorted(ROOT.rglob("*-report.yaml"))


def test_every_way_to_set_envoy_up_has_its_report():
    profiles = (load_any(name) for name in shipped())
    variants = {one.start.envoy for one in profiles if isinstance(one, GatewayProfile)}
    assert {read_report(path).subject.flags[0] for path in REPORTS} == variants


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_published_report_is_sound(path):
    report = read_report(path)
    assert report.complete
    assert not report.stopped
    assert (
        path.name
        == f"{report.implementation.version}-{report.subject.flags[0].removeprefix('envoy-')}-gateway-report.yaml"
    )
    # With evidence that is not published, or another catalogue, some questions stay open. None is answered with no.
    steps = verify(path, None).steps
    assert [one for one in steps if one.answer == "fail" and one.name != "evidence"] == []


@pytest.mark.parametrize("path", [*REPORTS, *ROOT.rglob("*.md")], ids=lambda path: path.name)
def test_a_published_report_names_no_machine(path):
    text = path.read_text()
    assert not re.search(r"/(?:work|tmp|home|root|usr)\b", text)
    assert "localhost" not in text
