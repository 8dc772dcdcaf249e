"""What the suite says to the author of a naive EPP: the cause first, once, and in words that lead to it."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.cli import call

pytestmark = pytest.mark.program

Tried = Callable[..., str]
FULL = "x-gateway-destination-endpoint"


@pytest.fixture
def tried(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Run scenarios on a naive EPP with these traits: what is printed on a terminal of 100 columns."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")

    def run(traits: str, *scenarios: str, answer: float = 2.0) -> str:
        script = str(Path(__file__).with_name("naive_epp.py"))
        profile = {
            "name": "naive",
            "start": {"command": [sys.executable, script, "{port}", "{endpointsFile}", *traits.split()]},
            "discovery": {"file": {}, "scrapes": False},
            "timeouts": {"answer": answer},
        }
        (tmp_path / "profile.yaml").write_text(json.dumps(profile))
        chosen = [part for one in scenarios for part in ("-k", one)]
        profile_path, folder = str(tmp_path / "profile.yaml"), str(tmp_path / "report")
        capfd.readouterr()
        assert call(["run", "--profile", profile_path, *chosen, "-q", "--seed", "1", "-o", folder]) == 1
        return capfd.readouterr().out

    return run


def failures(out: str) -> list[str]:
    """The requirements of the failures in the order shown, those with a screen and those with a line."""
    return re.findall(r"^(?:✗|fail) +(\S+)", out, re.MULTILINE)


def block(out: str, requirement: str) -> str:
    """The screen of one failure."""
    return re.split(r"\n\n", out[out.index(f"✗ {requirement} fail") :])[0]


def unfolded(text: str) -> str:
    """`text` without its line breaks."""
    return " ".join(text.split())


def test_missing_answers_come_first_and_explain_other_failures(tried: Tried) -> None:
    once = ("destination.completion[http=1]", "destination.bodyless[method=HEAD]")
    out = tried("no-metadata no-responses", *once, "ext-proc.matching-answers[http=1,chunks=1]")
    assert failures(out) == ["ENV-16", "EPP-DEST-02"]
    assert "ENV-07 (1 scenario)" in block(out, "ENV-16").partition("explains")[2]
    assert "ENV-07" in out.partition("blockers")[2]
    hint = unfolded(block(out, "ENV-16")).partition(" hint ")[2]
    assert "for response_headers nothing" in hint
    assert "request_headers" in hint.partition(" came, and ")[0]


def test_one_that_waits_for_a_body_that_does_not_come_has_one_defect(tried: Tried) -> None:
    without = ("ext-proc.headers-only[method=GET]", "subset.bodyless-nobody*")
    out = tried("needs-body", *without)
    assert failures(out) == ["ENV-07"]
    assert "EPP-SUB-02" in block(out, "ENV-07").partition("explains")[2]


def test_a_header_that_envoy_drops_comes_first_and_an_attempt_elsewhere_has_its_reason(
    tried: Tried, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tried("value no-metadata", "destination.client-names-one*", "destination.completion*")
    assert failures(out) == ["ENV-11", "EPP-DEST-02"]
    assert "(in `value`)" in block(out, "ENV-11")
    drawn = ""
    for row in json.loads((tmp_path / "report" / "report.json").read_text())["results"]:
        call(["report", "show", str(tmp_path / "report"), "--format", "mermaid", "--scenario", row["id"]])
        drawn += capfd.readouterr().out
    assert "the data plane's own choice: none was taken from the EPP's answers" in drawn
    kinds = re.findall(r"^warn +(\S+)", out, re.MULTILINE)
    assert len(kinds) == len(set(kinds))


def test_a_state_that_streams_share_is_one_defect(tried: Tried) -> None:
    out = tried("shared", "robustness.same-request-id", "kinds.endpoint*")
    assert failures(out) == ["ENV-21"]
    screen = block(out, "ENV-21")
    assert "look for state that streams share" in unfolded(screen)
    assert "EPP-SUB-01" in screen.partition("explains")[2]


def test_one_that_gives_no_endpoint_any_more_is_not_said_to_lag_behind(tried: Tried, tmp_path: Path) -> None:
    told = tried("refuses-later", "destination.completion[http=1]", "pool.removed")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    (told_of, *_) = [one["text"] for one in report["anomalies"] if "gave no endpoint after" in one["text"]]
    assert "within 5 s (timeouts.convergence)" in told_of
    assert "did not follow" not in unfolded(told)


def test_a_subset_that_is_ignored_is_one_defect_and_names_are_whole(tried: Tried, tmp_path: Path) -> None:
    out = tried("no-subset", "subset.pick-stays-inside*", "subset.nobody", "subset.empty")
    assert failures(out) == ["EPP-SUB-01"]
    screen = block(out, "EPP-SUB-01")
    assert len(screen.splitlines()) <= 40
    commands = ("reproduce", "all of it")  # these stay in one piece
    assert max(len(line) for line in screen.splitlines() if not line.strip().startswith(commands)) <= 100
    assert {"EPP-SUB-02", "EPP-SUB-03"} <= set(re.findall(r"[A-Z-]+-\d\d", screen.partition("explains")[2]))
    assert f"envoy.lb.subset_hint / {FULL}-subset: [" in unfolded(screen)
    assert "The pick stays inside the subset" in screen
    assert call(["report", "show", str(tmp_path / "report"), "--all"]) == 0
    junit = ET.parse(tmp_path / "report" / "junit.xml")
    messages = [one.get("message", "") for one in junit.iter("failure")]
    assert messages
    assert all(re.match(r"EPP-SUB-0\d: .* is not in the list", one) for one in messages)


def test_threads_that_ran_out_are_told_with_the_streams_that_were_open(tried: Tried) -> None:
    out = tried("threads", "robustness.interleaved*")
    assert failures(out) == ["ENV-21"]
    screen = unfolded(block(out, "ENV-21"))
    assert re.search(r"no answer to request_headers, with \d+ streams open at the same time", screen)
    assert "A server with a thread for each stream may have run out of threads" in screen
    assert "A hundred interleaved streams do not touch each other" in screen
    for line in re.findall(r"^warn .*ENV-22.*$", out, re.MULTILINE):
        assert line.endswith("(follows from ENV-21)")
    assert "no for some paths" in out or "no: full-duplex (ENV-21)" in out


def test_the_words_of_a_wait_are_those_of_the_finding(tried: Tried) -> None:
    out = tried("no-trailers", "ext-proc.request-trailers[chunks=1,http=1]")
    screen = block(out, "ENV-06")
    assert re.search(r"^actual +no answer to request_trailers$", screen, re.MULTILINE)
    assert "waits: answer to request_trailers: expired" in screen
    assert "request_body: expired" not in screen


def test_a_rare_failure_does_not_stand_against_all_paths(tried: Tried, tmp_path: Path) -> None:
    out = tried("no-trailers", "ext-proc.request-trailers[chunks=1,http=1]", "destination.*")
    line = out.partition("AI Gateway")[2].splitlines()[0]
    assert re.search(r"no for some paths: full-duplex \(ENV-06 in \d+ of \d+ scenarios\)", line), line
    why = r"it breaks ENV-06 in \d+ of \d+ scenarios"
    assert re.search(rf"\| full-duplex \| no for some paths \| {why} \|", (tmp_path / "report/summary.md").read_text())
    page = (tmp_path / "report/report.html").read_text()
    assert re.search(rf"full-duplex</th><td>no for some paths</td><td>{why}</td>", page)
