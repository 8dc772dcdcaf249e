"""Whether the gauges of model servers reach an EPP: information in every form of the report, and never a verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

REFERENCE = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
PROFILE = """
name: picker
discovery: {file: {reread: 0.15}}
start: {command: [unused]}
timeouts: {answer: 5, convergence: 2, scrape: 2}
"""


def profile(folder: Path, *engines: str) -> Path:
    path = folder / "profile.yaml"
    path.write_text(PROFILE + f"claims: {{engines: [{', '.join(engines)}]}}\n")
    return path


def followed(document: dict) -> dict[tuple[str, str], str]:
    return {(one["engine"], one["gauge"]): one["followed"] for row in document["results"] for one in row["gauges"]}


BOTH = {(engine, gauge): "yes" for engine in ("vllm", "vllm-0.8.5") for gauge in ("queue", "kv")}


@pytest.mark.parametrize(
    ("variant", "changed"),
    [
        ("--variant reads-the-first-series", {("vllm", "ranks"): "no"}),
        ("--variant reads-new-names-only", {("vllm-0.8.5", "kv"): "no"}),
        ("--variant sticky", dict.fromkeys([*BOTH, ("vllm", "ranks")], "unclear")),
    ],
)
def test_the_report_tells_which_gauges_move_the_picks(cli, tmp_path: Path, variant: str, changed: dict) -> None:
    ran = cli(
        *("run", "-q", "--epp", f"{REFERENCE} --scrape-interval 20ms --log-level error {variant}"),
        *("--profile", profile(tmp_path, "vllm", "vllm-0.8.5"), "-k", "pool.*-followed", "-o", tmp_path / "r"),
    )
    document = json.loads((tmp_path / "r/report.json").read_text())
    found = followed(document)
    assert found == BOTH | {("vllm", "ranks"): "yes"} | changed, ran.out
    assert {row["verdict"] for row in document["results"]} == {"pass", "notApplicable"}, "it is information"
    (line,) = [line for line in ran.out.splitlines() if line.startswith("gauges ")]
    assert f"{list(found.values()).count('yes')} of {len(found)} followed" in line
    words = {"queue": "queue", "kv": "KV cache", "ranks": "other ranks"}
    page = (tmp_path / "r/report.html").read_text()
    for (engine, gauge), answer in found.items():
        assert f"| {engine} | {words[gauge]} | {answer} |" in (tmp_path / "r/summary.md").read_text()
        assert f'<th scope="row">{engine}</th><td>{words[gauge]}</td><td>{answer}</td>' in page
    assert cli("report", "verify", tmp_path / "r").code == 0


def test_gauges_without_a_claim_are_not_tested(cli, tmp_path: Path) -> None:
    ran = cli(
        *("run", "-q", "--epp", f"{REFERENCE} --scrape-interval 20ms --log-level error"),
        *("--profile", profile(tmp_path), "-k", "pool.*-followed", "-k", "pool.engines", "-o", tmp_path / "r"),
    )
    document = json.loads((tmp_path / "r/report.json").read_text())
    assert followed(document) == {}
    assert "\ngauges " not in ran.out
    verdicts = {(row["scenario"], row["verdict"]) for row in document["results"]}
    assert verdicts == {
        ("pool.gauges-followed", "notApplicable"),
        ("pool.ranks-followed", "notApplicable"),
        ("pool.engines", "pass"),
    }


def test_a_picker_that_does_not_survive_a_page_fails(cli, tmp_path: Path) -> None:
    script = tmp_path / "picker.py"
    script.write_text(
        "import os, re\n"
        "from reference_epp import scraper\n"
        "from reference_epp.__main__ import main\n"
        "parse = scraper.parse_gauges\n"
        "def read(page):\n"
        "    return os._exit(3) if re.search('waiting{[^}]*} 64', page) else parse(page)\n"
        "scraper.parse_gauges = read\n"
        "main()\n"
    )
    target = f"cmd:{sys.executable} {script} --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
    cli(
        *("run", "-q", "--epp", f"{target} --scrape-interval 20ms --log-level error"),
        *("--profile", profile(tmp_path, "vllm-0.8.5"), "-k", "pool.gauges-followed", "-o", tmp_path / "r"),
    )
    rows = json.loads((tmp_path / "r/report.json").read_text())["results"]
    assert [row["verdict"] for row in rows if row["evidence"]] == ["fail"]


def test_an_unknown_engine_is_refused(cli, tmp_path: Path) -> None:
    ran = cli("run", "--profile", profile(tmp_path, "vllm", "vlm"))
    assert ran.code == 2
    assert "profile.yaml:6:" in ran.err
    assert "vlm" in ran.err or "vllm-rust" in ran.err
