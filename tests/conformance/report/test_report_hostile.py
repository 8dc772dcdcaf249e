"""Forged files are never a crash, and no character of theirs drives a terminal or breaks a form."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from conformance.cli.app import app
from conformance.errors import UsageError
from conformance.report.document.canonical import ReportError, digest
from conformance.report.document.model import Report, read_report
from conformance.report.render.badge import svg
from conformance.report.render.html import html
from conformance.report.render.junit import junit
from conformance.report.render.markdown import summary
from conformance.report.render.readme import readme
from conformance.report.render.text import summary_text, verification_text
from conformance.report.verify.verification import verify

pytestmark = pytest.mark.program

EVIL = "\x1b[31m\x07\x00\u202e\ud800|`<script>\n# heading\n"


def with_everywhere(value, evil):
    """A document in which every text that may be anything has something evil at its end."""
    free = {"id", "title", "section", "mode", "project", "name", "statement", "actual", "hint", "reason", "note"}
    free |= {"reproduce", "source", "organization", "why", "reading", "stopped", "text"}
    match value:
        case dict():
            return {
                name: item + evil if name in free and isinstance(item, str) else with_everywhere(item, evil)
                for name, item in value.items()
            }
        case list():
            return [with_everywhere(item, evil) for item in value]
        case _:
            return value


@pytest.fixture
def evil(reports) -> Report:
    document = read_report(reports("bad-epp") / "report.json").document()
    document = {**with_everywhere(document, EVIL), "mode": "default", "kind": document["kind"]}
    document["suite"]["name"] = "epp-conformance"
    return Report.of(document)


def controls(text: str) -> set[str]:
    return {one for one in text if not one.isprintable() and one != "\n"}


def test_no_face_has_a_control_character(evil):
    shown = [summary(evil), junit(evil), svg(evil), readme([("a.yaml", evil)]), summary_text(evil).plain]
    assert [controls(text) for text in shown] == [set()] * len(shown)
    assert "\x1b" not in html(evil)
    ET.fromstring(junit(evil))
    ET.fromstring(svg(evil))
    pages = (summary(evil), readme([("a.yaml", evil)]))
    assert not any(line.startswith("# heading") for text in pages for line in text.splitlines())


def test_the_command_line_shows_no_control_character(evil, reports, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(evil.document()))
    for words in (
        ["report", "show", str(tmp_path)],
        ["report", "verify", str(tmp_path)],
        ["report", "diff", str(tmp_path), str(reports("epp"))],
        ["report", "convert", str(tmp_path), "--to", "markdown"],
    ):
        found = CliRunner().invoke(app, words)
        assert found.exception is None or isinstance(found.exception, SystemExit | UsageError), found.exception
        assert controls(found.output) <= {"\ufffd"}


def test_an_unknown_version_is_shown_and_no_crash(reports):
    document = read_report(reports("bad-epp") / "report.json").document()
    text = json.dumps(document).replace('"version": "1.0.0"', '"version": "7.7.7"')
    report = Report.of(json.loads(text))
    assert "7.7.7" in summary(report) + junit(report) + readme([("a.yaml", report)])


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "1" + "0" * 5000])
def test_a_number_without_end_is_refused_in_words(reports, tmp_path, number):
    text = (reports("epp") / "report.json").read_text()
    document = json.loads(text)
    stated = json.dumps(document["duration"])
    path = tmp_path / "report.json"
    path.write_text(text.replace(f'"duration": {stated},\n "result"', f'"duration": {number},\n "result"'))
    with pytest.raises(ReportError):
        read_report(path)
    assert verify(path, None).step("schema").answer == "fail"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def _paths(value, place=()):
    yield place
    match value:
        case dict():
            for name, item in value.items():
                yield from _paths(item, (*place, name))
        case list():
            for number, item in enumerate(value[:2]):
                yield from _paths(item, (*place, number))


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(index=st.integers(0, 10**6), value=values)
def test_any_value_anywhere_in_a_report_is_an_answer(reports, instances, tmp_path, index, value):
    document = json.loads((reports("gateway") / "report.json").read_text())
    paths = [path for path in _paths(document) if path]
    *place, last = paths[index % len(paths)]
    inner = document
    for name in place:
        inner = inner[name]
    inner[last] = value
    document["digest"] = digest(document)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    verification = verify(path, reports("gateway") / "evidence.ndjson.gz", instances=instances)
    assert controls(verification_text(verification).plain) == set()


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(index=st.integers(0, 10**6), value=values)
def test_any_value_anywhere_in_an_episode_is_an_answer(reports, instances, tmp_path, index, value):
    folder = reports("gateway")
    lines = [json.loads(line) for line in gzip.decompress((folder / "evidence.ndjson.gz").read_bytes()).splitlines()]
    line = next(one for one in lines if "episode" in one)
    paths = [path for path in _paths(line) if path]
    *place, last = paths[index % len(paths)]
    inner = line
    for name in place:
        inner = inner[name]
    inner[last] = value
    path = tmp_path / "evidence.ndjson.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in lines)))
    assert verify(folder / "report.json", path, instances=instances).answer == "fail"
    judged = CliRunner().invoke(app, ["judge", str(path)])
    assert judged.exception is None or isinstance(judged.exception, SystemExit | UsageError), judged.exception
