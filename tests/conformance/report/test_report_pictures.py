"""The pictures of a report: sequence diagrams, the grid at a glance; in the page, as SVG and as Mermaid."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import axe_core_python
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.cli.diagram import diagram
from conformance.errors import UsageError
from conformance.evidence.store import episodes
from conformance.report.document.failures import concerns
from conformance.report.document.model import seal
from conformance.report.render.html import html as page_of
from conformance.report.render.sequence import LANES, mermaid, steps, svg
from conformance.report.render.transcript import Line, transcript

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
SVG = "{http://www.w3.org/2000/svg}"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture
def lines(run) -> tuple[Line, ...]:
    """The conversation of the first failure."""
    report = run.report()
    (one,) = [one for one in concerns(report) if one.requirement.id == "EPP-SUB-01"]
    first = one.occurrences[0]
    episode = next(episode for _, episode in episodes(run.evidence_path, {first.result.evidence.sha256}))
    return transcript(episode, first.finding.exchange, first.finding.seq)


def test_each_line_is_an_arrow_between_the_two_that_it_concerns(lines):
    ways = {(line.who, line.what): (step.source, step.target) for line, step in zip(lines, steps(lines), strict=True)}
    assert ways["client", "HTTP request"] == ("client", "data-plane")
    assert ways["data-plane", "request_headers"] == ("data-plane", "epp")
    assert ways["epp", "request_headers"] == ("epp", "data-plane")
    assert [step.marked for step in steps(lines)] == [line.marked for line in lines]


def test_the_drawing_marks_the_message_at_fault(lines):
    root = ET.fromstring(svg(lines))
    marked = [group for group in root.iter(f"{SVG}g") if group.get("class") == "marked"]
    assert len(marked) == 1
    assert "here" in "".join(marked[0].itertext())
    assert [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "head"] == list(LANES.values())
    arrows = [line for line in root.iter(f"{SVG}line") if line.get("class") == "arrow"]
    assert len(arrows) == sum(bool(step.source) for step in steps(lines))


def test_the_command_draws_the_first_failure_or_a_scenario(run):
    report = run.report()
    first = concerns(report)[0].occurrences[0].result
    assert "rect rgba" in diagram(report, run.evidence_path, None, mermaid=True)
    assert diagram(report, run.evidence_path, first.id, mermaid=False).startswith("<svg ")
    with pytest.raises(UsageError, match=r"no scenario 'no\.such'"):
        diagram(report, run.evidence_path, "no.such", mermaid=False)
    with pytest.raises(UsageError, match="no evidence beside"):
        diagram(report, None, None, mermaid=False)


@given(text=st.text(), what=st.text(), marked=st.booleans(), who=st.sampled_from([*LANES, "suite", "target", ""]))
def test_whatever_was_said_stays_text(text, what, marked, who):
    line = Line(seq=1, t=0.0, who=who, what=what, summary="".join(c for c in text if c.isprintable()), marked=marked)
    line = Line(seq=1, t=0.0, who=who, what="".join(c for c in what if c.isprintable()), summary=line.summary)
    ET.fromstring(svg([line]))
    rows = mermaid([line]).splitlines()
    assert len(rows) == 2 + len(LANES)
    assert not set(re.sub(r"#\d+;", "", rows[-1].partition(": ")[2])) & set('#;<>"%{}')


@pytest.fixture
def large(run):
    """The page of 1,000 scenarios."""
    document = run.report().document()
    rows = document["results"]
    document["results"] = [{**rows[n % len(rows)], "id": f"many.number-{n}", "evidence": None} for n in range(1000)]
    return page_of(seal(document), run.evidence_path)


def browse(page: str, folder: Path, *flags: str, script: str = "") -> str:
    """The page's document after it was opened, with `script` in it."""
    if script:
        page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        page = page.replace("</body>", f"<script>{script}</script></body>")
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
        f"--user-data-dir={folder / 'browser'}", "--virtual-time-budget=60000", *flags, "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=110).stdout


def answer(document: str) -> object:
    found = re.search(r'<pre id="answer">(.*?)</pre>', document, re.DOTALL)
    assert found, document[-2000:]
    return json.loads(html.unescape(found[1]))


TELL = (
    "const p = document.createElement('pre'); p.id = 'answer';"
    "p.textContent = JSON.stringify(%s); document.body.append(p)"
)
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true;"


@needs_chromium
@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)], ids=["light", "dark"])
def test_the_page_breaks_no_rule_of_accessibility(run, tmp_path, flags):
    tell = TELL % "r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)])"
    script = AXE.read_text().replace("</script", "<\\/script") + f";{OPEN} axe.run().then((r) => {{ {tell} }})"
    assert answer(browse(page_of(run.report(), run.evidence_path), tmp_path, *flags, script=script)) == []


@needs_chromium
@pytest.mark.parametrize("width", [400, 800, 1600])
def test_no_width_makes_the_page_scroll_sideways(run, tmp_path, width):
    page = page_of(run.report(), run.evidence_path).replace("<details", "<details open")
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    tell = TELL % "[d.scrollWidth, d.clientWidth]"
    script = f"f.onload = () => {{ const d = f.contentDocument.documentElement; {tell} }}"
    framed = f'<body><iframe id="f" width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe></body>'
    wide, seen = answer(browse(framed, tmp_path, script=script))
    assert wide <= seen


@needs_chromium
def test_a_page_of_a_thousand_scenarios_can_be_filtered(large, tmp_path):
    script = (
        "const box = document.getElementById('filter'); box.value = 'number-999';"
        "box.dispatchEvent(new Event('input'));"
        + TELL
        % "[...document.querySelectorAll('tr[data-text]')].filter((row) => !row.hidden).length"
    )
    assert answer(browse(large, tmp_path, script=script)) == 1
