"""The pictures of a report: sequence diagrams, the grid at a glance; in the page, as SVG and as Mermaid."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from browser import SCHEMES, TELL, answer, barriers, browse, widths
from hypothesis import given
from hypothesis import strategies as st
from programs import needs_chromium

from conformance.cli.diagram import diagram
from conformance.errors import UsageError
from conformance.evidence.store import episodes
from conformance.report.document.failures import concerns
from conformance.report.document.model import seal
from conformance.report.render.html import html as page_of
from conformance.report.render.messages import fitting, width_of
from conformance.report.render.sequence import LANES, mermaid, steps, svg
from conformance.report.render.transcript import Line, transcript

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def lines(run) -> tuple[Line, ...]:
    """The conversation of the first failure."""
    report = run.report()
    (one,) = [one for one in concerns(report) if one.requirement.id == "EPP-SUB-01"]
    first = one.occurrences[0]
    episode = next(episode for _, episode in episodes(run.evidence_path, {first.result.evidence}))
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
def test_messages_are_escaped(text, what, marked, who):
    what, text = ("".join(c for c in one if c.isprintable()) for one in (what, text))
    line = Line(seq=1, t=0.0, who=who, what=what, summary=text, marked=marked)
    ET.fromstring(svg([line]))
    rows = mermaid([line]).splitlines()
    said = rows[1 + len(LANES) :]
    if marked:
        assert (said.pop(0), said.pop()) == ("  rect rgba(200, 40, 30, 0.25)", "  end")
    assert len(said) == 1
    assert not set(re.sub(r"#\d+;", "", said[0].partition(": ")[2])) & set('#;<>"%{}$')


@pytest.fixture
def large(run):
    """The page of 1,000 scenarios."""
    document = run.report().document()
    rows = document["results"]
    document["results"] = [{**rows[n % len(rows)], "id": f"many.number-{n}", "evidence": None} for n in range(1000)]
    return page_of(seal(document), run.evidence_path)


@pytest.mark.program
@needs_chromium
@pytest.mark.parametrize("flags", SCHEMES.values(), ids=SCHEMES)
def test_the_page_breaks_no_rule_of_accessibility(run, tmp_path, flags):
    assert barriers(page_of(run.report(), run.evidence_path), tmp_path, *flags) == []


@pytest.mark.program
@needs_chromium
@pytest.mark.parametrize("width", [400, 800, 1600])
def test_no_width_makes_the_page_scroll_sideways(run, tmp_path, width):
    wide, seen = widths(page_of(run.report(), run.evidence_path), tmp_path, width)
    assert wide <= seen


@pytest.mark.program
@needs_chromium
def test_captions_are_read_whole_where_their_tables_are_wider_than_the_page(run, tmp_path):
    right = (
        "((one) => { const text = document.createRange(); text.selectNodeContents(one);"
        " return text.getBoundingClientRect().right; })"
    )
    tell = TELL % f"[innerWidth, ...[...document.querySelectorAll('caption')].map({right})]"
    page = page_of(run.report(), run.evidence_path)
    seen, *ends = answer(browse(page, tmp_path, "--window-size=400,800", script=tell))
    assert ends
    assert max(ends) <= seen


@pytest.mark.program
@needs_chromium
def test_all_of_the_page_fits_on_paper(run, tmp_path):
    wide, seen = widths(page_of(run.report(), run.evidence_path), tmp_path, 700, printed=True)
    assert wide <= seen


@pytest.mark.program
@needs_chromium
def test_a_page_of_a_thousand_scenarios_can_be_filtered(large, tmp_path):
    script = (
        "const box = document.getElementById('filter'); box.value = 'number-999';"
        "box.dispatchEvent(new Event('input'));"
        + TELL
        % "[...document.querySelectorAll('tr[data-text]')].filter((row) => !row.hidden).length"
    )
    assert answer(browse(large, tmp_path, script=script)) == 1


@given(st.text(st.sampled_from("a漢 ｗé")), st.integers(1, 30))
def test_a_label_has_the_room_that_it_takes(text: str, letters: int) -> None:
    """Letters of Chinese are as wide as two: cut by their number, a label would end outside the drawing."""
    shown = fitting(text, letters)
    assert width_of(shown) <= letters
    assert shown == text if width_of(text) <= letters else text.startswith(shown.removesuffix("…"))
