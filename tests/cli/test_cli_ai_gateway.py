"""With which configurations of Envoy AI Gateway an EPP would work: right ones, and faults that break some of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

REFERENCE = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
MODES = ("--body-mode", "full-duplex", "--body-mode", "buffered", "--body-mode", "streamed")
WORKS = dict.fromkeys(("original-dst", "override-host", "full-duplex", "buffered", "streamed"), "yes")
NOTHING = dict.fromkeys(WORKS, "no")


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ("--max-endpoints 1", {}),
        ("", {"original-dst": "no"}),  # it gives lists, which that cluster can't follow
        ("--max-endpoints 1 --fault removed-endpoint-kept", {"override-host": "no"}),
        ("--max-endpoints 1 --fault no-header-when-buffered", {"buffered": "no"}),
        ("--max-endpoints 1 --fault no-end-of-stream", {"full-duplex": "no"}),
        ("--max-endpoints 1 --fault no-header", NOTHING),
    ],
)
def test_every_form_of_the_report_lists_working_features(
    cli, tmp_path: Path, flags: str, changed: dict[str, str]
) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "name: picker\ndiscovery: {file: {reread: 0.15}}\nstart: {command: [unused]}\nclaims: {fallbackLists: true}\n"
        "timeouts: {answer: 2, convergence: 1, scrape: 1}\n"
    )
    ran = cli(
        *("run", "-q", "--epp", f"{REFERENCE} --scrape-interval 20ms --log-level error {flags}", *MODES),
        *("--profile", profile, "-k", "destination.completion", "-k", "pool.removed"),
        *("-o", tmp_path / "r"),
    )
    document = json.loads((tmp_path / "r/report.json").read_text())
    gateway = document["versions"][0]["envoyAiGateway"]
    found = {one["way"]: one["works"] for one in (*gateway["routing"], *gateway["bodyModes"])}
    assert found == WORKS | changed, ran.out
    (line,) = [line for line in ran.out.splitlines() if line.startswith("AI Gateway")]
    for way, works in found.items():
        (part,) = [part for part in line.split("·") if way in part]
        assert f"{works}: " in part
        assert f"| {way} | {works} |" in (tmp_path / "r/summary.md").read_text()
    assert 'id="envoy-ai-gateway"' in (tmp_path / "r/report.html").read_text()
    assert cli("report", "verify", tmp_path / "r").code == 0


def test_features_that_were_not_exercised_are_unknown(cli, tmp_path: Path) -> None:
    cli("run", "-q", "-k", "destination.completion", "--body-mode", "buffered", "-o", tmp_path / "r")
    gateway = json.loads((tmp_path / "r/report.json").read_text())["versions"][0]["envoyAiGateway"]
    modes = {one["way"]: (one["works"], one["why"]) for one in gateway["bodyModes"]}
    assert modes["buffered"] == ("yes", "")
    assert modes["full-duplex"] == ("unknown", "it was not driven")
