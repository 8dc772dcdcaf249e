"""The page of a load: its verdicts, its findings and its charts, as a reader's browser shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import pytest
from browser import SCHEMES, barriers, widths
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import needs_chromium

from conformance.load.course import Course, Stretch
from conformance.load.page import html
from conformance.report.render.charts import Curve, chart

pytestmark = pytest.mark.program

FAULTY = (
    f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
    "--log-level error --fault stranger-in-list"
)
LOAD = """
pods: 4
mix: [{name: plain}]
arrivals: [{seconds: 2.2, rate: 40}]
churn: [{change: remove, every: 0.5, lasts: 0.2}]
trouble: [{kind: model-servers-reset, at: 0.5, lasts: 0.5}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The report of a load on an EPP that names an endpoint outside of its pool."""
    folder = tmp_path_factory.mktemp("load")
    (folder / "load.yaml").write_text(LOAD)
    command = [sys.executable, "-m", "conformance", "load", "load.yaml", "-o", "r", "--epp", FAULTY]
    ran = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return folder / "r"


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "load.html").read_text()


def test_the_page_has_each_verdict_and_each_finding(folder, page) -> None:
    made = json.loads((folder / "load.json").read_text())
    assert made["findings"]
    for one in made["requirements"]:
        assert f">{one['id']}<" in page
    for one in made["findings"]:
        assert one["episode"] in page
    assert re.search(r'<article class="card v-card-fail" id="EPP-DEST-06">', page)


def test_the_charts_show_the_measurements(folder, page) -> None:
    made = json.loads((folder / "load.json").read_text())
    course = made["figures"]["course"]
    assert sum(sum(one.get("poolChanges", {}).values()) for one in course) == sum(made["pool"]["changes"].values())
    charts = {ET.fromstring(one)[0].text: ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", page)}
    expected = {
        "Requests asked and done", "Time to pick", "Added time to first byte", "Exchanges under way",
        "How late the generator began requests", "Times by percentile",
    }  # fmt: skip
    if sys.platform == "linux":
        expected |= {"Memory of the target", "Descriptors of the target"}
    assert set(charts) == expected
    for title, drawing in charts.items():
        strokes = [one for one in drawing.iter("line") if one.get("class") == "change"]
        assert bool(strokes) == (title != "Times by percentile")
        assert all(one.get("d") for one in drawing.iter("path"))
        bands = [one[0].text for one in drawing.iter("rect") if one.get("class") == "band"]
        assert bands == ([] if title == "Times by percentile" else ["model-servers-reset"])


def test_trouble_has_its_row(folder, page) -> None:
    (trouble,) = json.loads((folder / "load.json").read_text())["troubles"]
    (row,) = re.findall(r'<tr><th scope="row">model-servers-reset</th>(.*?)</tr>', page, re.DOTALL)
    for when in ("during", "after"):
        assert f'{trouble["violations"][when]["EPP-DEST-06"]} <a href="#EPP-DEST-06">' in row


def undecided(made: dict) -> None:
    made |= {"complete": False, "cutShort": "it was interrupted after 1.0 of 2.2 s"}
    made["exchanges"]["undecided"] = 7


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (
            lambda made: made["troubles"][0].update(recoveredAfter=None, untried=True),
            ["<td>no exchange after it and before the next trouble tells</td>"],
        ),
        (
            lambda made: made["troubles"][0].update(seconds=None, recoveredAfter=None, untried=False),
            ["<td>it did not end</td>"],
        ),
        (undecided, ["ended before its time: it was interrupted after 1.0 of 2.2 s.", "7 exchanges are undecided"]),
        (
            lambda made: made.update(implementation={"project": "my-epp", "version": "0.1.0"}),
            ["<h1>my-epp 0.1.0 under load"],
        ),
    ],
)
def test_the_page_explains_special_loads(folder, change, shown) -> None:
    made = json.loads((folder / "load.json").read_text())
    change(made)
    page = html(made, "NOT conformant")
    assert [text for text in shown if text not in page] == []


def test_the_page_asks_for_nothing_and_runs_nothing(page) -> None:
    assert "default-src 'none'; style-src 'sha256-" in unescape(page)
    assert not re.search(r"<script|<link|\ssrc=|https?://", page)


def test_output_of_the_target_is_escaped(folder) -> None:
    made = json.loads((folder / "load.json").read_text())
    made["findings"][0]["actual"] = "<script>alert(1)</script>\x1b[31m"
    shown = html(made, "NOT conformant")
    assert "<script>" not in shown
    assert "\x1b" not in shown


@needs_chromium
@pytest.mark.parametrize("flags", SCHEMES.values(), ids=SCHEMES)
def test_the_page_breaks_no_rule_of_accessibility(page, tmp_path, flags) -> None:
    assert barriers(page, tmp_path, *flags) == []


@needs_chromium
@pytest.mark.parametrize("width", [400, 1200])
def test_no_width_makes_the_page_scroll_sideways(page, tmp_path, width) -> None:
    wide, seen = widths(page, tmp_path, width)
    assert wide <= seen


@needs_chromium
def test_all_of_the_page_fits_on_paper(page, tmp_path) -> None:
    wide, seen = widths(page, tmp_path, 700, printed=True)
    assert wide <= seen


numbers = st.floats(0, 1e9, allow_nan=False)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    points=st.lists(st.tuples(numbers, st.none() | numbers), max_size=20),
    name=st.text(),
    note=numbers,
    band=st.tuples(numbers, numbers, st.text()),
    log=st.booleans(),
)
def test_any_points_make_a_drawing_inside_its_frame(points, name, note, band, log) -> None:
    drawn = chart("t", [Curve(name=name, points=points)], unit="u", log=log, notes=[note], bands=[band])
    assert bool(drawn) == any(value is not None for _, value in points)
    if drawn:
        root = ET.fromstring(drawn)
        wide, high = map(float, root.get("viewBox").split()[2:])
        (shade,) = root.iter("rect")
        assert float(shade.get("x")) >= 0
        assert float(shade.get("x")) + float(shade.get("width")) <= wide
        for path in root.iter("path"):
            places = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d"))
            assert all(0 <= float(x) <= wide and 0 <= float(y) <= high for x, y in places)


@given(count=st.integers(1, 3000))
def test_the_course_of_hours_takes_no_more_room_and_loses_nothing(count) -> None:
    course = Course()
    for second in range(1, count + 1):
        stretch = Stretch(second=second, seconds=1, due=3, done=2, failed=1, open=second)
        stretch.changes["remove"] = 1
        course.add(stretch)
    found = course.stretches
    assert len(found) <= 600
    assert (found[-1].second, found[-1].open) == (count, count)
    assert sum(one.seconds for one in found) == count
    assert sum(one.done for one in found) == 2 * count
    assert sum(one.changes.total() for one in found) == count
    assert [one.second for one in found] == sorted({one.second for one in found})
