"""The faces of a report: page, terminal, JUnit, Markdown, badge, diff, submission."""

from __future__ import annotations

import html.parser
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from programs import CHROMIUM, needs_chromium

from conformance.errors import UnknownNameError
from conformance.evidence.episode import ProcessExited
from conformance.evidence.store import episodes
from conformance.report.document.blocks import Waiver
from conformance.report.document.build import build
from conformance.report.document.failures import concerns
from conformance.report.document.model import read_report, seal
from conformance.report.render.badge import endpoint, svg
from conformance.report.render.diff import diff
from conformance.report.render.html import html as page_of
from conformance.report.render.junit import junit
from conformance.report.render.markdown import summary
from conformance.report.render.submission import SubmissionRefusedError, problems, write_submission
from conformance.report.render.text import failure_text, summary_text
from conformance.report.render.transcript import transcript
from conformance.verdict import Result, Verdict
from ext_proc.record import Author, Malformed, Message


def episode_of(run, row):
    return next(episode for _, episode in episodes(run.evidence_path, {row.evidence}))


# -- terminal ----------------------------------------------------------------------------------------------------------


def test_a_failure_shows_everything_in_order_on_one_screen(run):
    report = run.report()
    (one,) = [one for one in concerns(report) if one.requirement.id == "EPP-SUB-01"]
    first = one.occurrences[0]
    text = failure_text(
        one.requirement, first, episode_of(run, first.result), reproduce=report.reproduce(first.result)
    ).plain
    order = [
        "✗ EPP-SUB-01 fail  subset.escapes",
        "requires     MUST: If the request's metadata names a subset",
        "expected     one of 127.1.0.1:8000, 127.1.0.2:8000",
        "or           503 as an ImmediateResponse",
        "actual       127.1.0.3:8000",
        "conversation ",
        "▶ epp          request_headers",
        "overwrites x-gateway-destination-endpoint: 127.1.0.3:8000",
        "\nhint ",
        "reproduce    epp-conformance run --protocol-version 1.0.0 --seed 42 --scenario",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("▶") == 1


def test_output_of_the_target_is_escaped_on_the_terminal(run):
    report = run.report()
    (one,) = [one for one in concerns(report) if one.requirement.id == "ENV-22"]
    first = one.occurrences[0]
    text = failure_text(one.requirement, first, episode_of(run, first.result)).plain
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text
    assert "▶ target       process ends: signal 11, by itself" in text


def test_the_summary_has_at_most_twelve_lines(run, catalogue, profile):
    report = run.report()
    lines = summary_text(report, ["r/report.html", "r/report.json"]).plain.splitlines()
    assert lines[0] == "Endpoint Picker Protocol 1.0.0: Sample Picker v0.7.1"
    assert lines[1].split() == ["result", "✗", "non-conformant"]
    assert "protocol ✗ non-conformant  ext_proc ✗ non-conformant  4 blockers" in lines[2]
    assert lines[3].split() == ["blockers", "EPP-DEST-05", "EPP-SUB-01", "EPP-ERR-03", "ENV-22"]
    assert lines[-1].split(maxsplit=1) == ["report", "r/report.html · report.json"]
    document = report.document()
    document["versions"] = [{**document["versions"][0], "version": str(n), "claimed": n == 1} for n in range(9)]
    document["complete"] = False
    many = summary_text(seal(document), ["report.html"], width=80).plain.splitlines()
    assert len(many) <= 12
    assert "selection only" in many[1]


def row_of(document: dict, kind: str, **values: object) -> dict:
    return next(row for row in document[kind] if values.items() <= row.items())


def incomplete(document: dict, *, complete: bool, blockers: tuple[str, ...] = ("ENV-01",)) -> None:
    document.update(result="incomplete", complete=complete)
    document["versions"][0].update(result="incomplete", blockers=list(blockers))


def selected(document: dict, verdict: str) -> None:
    incomplete(document, complete=False)
    for one in document["results"]:
        one["verdict"] = "pass"
    document["results"][0]["verdict"] = verdict


def blamed(document: dict) -> None:
    broken = next(one for row in document["results"] for one in row["findings"] if one["requirement"] == "ENV-22")
    row_of(document, "results", verdict="pass")["findings"].append(broken)
    document["figures"] = {"generatedConversations": 50}


def many(document: dict) -> None:
    document["environment"]["seed"] = 4294967295
    document["versions"][0]["blockers"] = [f"EPP-DEST-{number:02}" for number in range(1, 12)]


def all_provisional(document: dict) -> None:
    for row in document["results"]:
        row["provisional"] = row["verdict"] == "fail"


RESTARTED = {"code": "restarted", "text": "it was started again", "scenario": None}


@pytest.mark.parametrize(
    ("change", "width", "there", "missing"),
    [
        (lambda _: None, 120, (), ("--unsettled", "of those that fail")),
        (lambda d: incomplete(d, complete=True), 120, ("blockers     ENV-01", "report show r --unsettled"), ()),
        (lambda d: selected(d, "pass"), 120, (), ("--unsettled",)),
        (lambda d: selected(d, "inconclusive"), 120, ("report show r --unsettled",), ()),
        (many, 40, ("seed 4294967295", "EPP-DEST-11"), ()),
        (blamed, 120, ("2 of those that pass break rules that they are not about: EPP-DEST-05 ENV-22", "50 gen"), ()),
        (
            lambda d: row_of(d, "requirements", id="ENV-22").update(effect="warn"),
            120,
            ("of those that fail, ENV-22 counts as a warning\n",),
            (),
        ),
        (all_provisional, 120, ("2 provisional of which 2 fail",), ("✗ 2 fail",)),
        (lambda d: d.update(anomalies=[RESTARTED] * 3), 120, ("anomalies    3 times: it was started again",), ()),
    ],
)
def test_the_summary_says_more_than_counts(run, change, width, there, missing):
    document = run.report().document()
    change(document)
    text = summary_text(seal(document), ["r/report.html"], width=width).plain
    assert [one for one in there if one not in text] == []
    assert [one for one in missing if one in text] == []


@pytest.mark.parametrize(
    ("program", "flags", "short"),
    [
        ("./bin/my-epp", ("--port={port}",), "my-epp"),
        ("/usr/bin/python3.12", ("-u", "-m", "my_epp", "--port={port}"), "my_epp"),
        ("{python}", ("tools/epp.py", "--port={port}"), "epp.py"),
        ("java", ("-jar", "epp.jar"), "epp.jar"),
        ("java", ("-Xmx64m", "-cp", "classes:lib/*", "com.example.Epp", "{port}"), "com.example.Epp"),
        ("node", ("--import", "tsx", "src/epp.ts"), "epp.ts"),
        ("deno", ("run", "--allow-net", "epp.ts"), "epp.ts"),
        ("bash", ("-m",), "bash"),
    ],
)
def test_a_target_without_a_name_is_called_by_its_program(run, program, flags, short):
    document = run.report().document()
    document["implementation"]["project"] = ""
    document["subject"] |= {"kind": "command", "name": program, "flags": list(flags)}
    assert seal(document).name == short


def test_a_conversation_is_cut_and_says_where_the_rest_is(run):
    report = run.report()
    (one,) = [one for one in concerns(report) if one.requirement.id == "EPP-SUB-01"]
    first = one.occurrences[0]
    episode = episode_of(run, first.result)
    cut = failure_text(one.requirement, first, episode, width=60, see_all="the command").plain
    assert "all of it: the command" in cut
    whole = failure_text(one.requirement, first, episode, width=60, whole=True, see_all="the command").plain
    assert "the command" not in whole
    assert "…" not in whole
    assert len(whole.splitlines()) > len(cut.splitlines())
    assert max(map(len, whole.splitlines())) <= 100


# -- conversation ------------------------------------------------------------------------------------------------------


def test_a_conversation_names_authors_and_marks_the_offender(run):
    report = run.report()
    row = next(row for row in report.results if row.id == "subset.escapes")
    assert row.decisive is not None
    lines = transcript(episode_of(run, row), row.decisive.exchange, row.decisive.seq)
    assert [(line.who, line.what) for line in lines] == [
        ("suite", "pool"),
        ("client", "HTTP request"),
        ("data-plane", "opens a stream"),
        ("data-plane", "request_headers"),
        ("data-plane", "request_body"),
        ("epp", "request_headers"),
        ("epp", "request_body"),
        ("data-plane", "upstream request"),
        ("model server", "answers (127.1.0.3:8000)"),
        ("client", "HTTP response"),
        ("data-plane", "half-closes"),
        ("epp", "ends the stream"),
    ]
    (marked,) = [line for line in lines if line.marked]
    assert "metadata envoy.lb / x-gateway-destination-endpoint: 127.1.0.3:8000" in marked.details
    assert lines[4].count == 3


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("SyntaxError: no JSON\n{stack}\nNode.js v20.20.2", "SyntaxError: no JSON"),
        ("Error: no model\n{stack}\nNode.js v20.20.2", "Error: no model"),
        ("TypeError [ERR_X]: no text\n{stack}\nNode.js v20.20.2", "TypeError [ERR_X]: no text"),
        ('Exception in thread "main" java.lang.Error: no\n{stack}', 'Exception in thread "main" java.lang.Error: no'),
        ("panic: no\n\ngoroutine 1 [running]:\n{stack}", "panic: no"),
    ],
)
def test_the_cause_of_a_crash_is_shown_with_its_stack(made, said, cause):
    output = said.format(stack="\n".join(f"    at frame {number}" for number in range(9)))
    episode = made.episode("e", [ProcessExited(pid=7, code=1, asked=False, output=output)])
    (line,) = (one for one in transcript(episode) if one.what == "process ends")
    assert line.details[0] == cause
    assert "    at frame 0" in line.details
    assert line.details[-1] == "…"
    assert len(line.details) <= 8


def test_a_panic_is_shown_with_its_own_stack_and_not_with_that_of_an_earlier_one(made):
    stack = "\n".join(f"main.f{number}()\n\t/src/f.go:{number}" for number in range(9))
    output = f"panic: no\nit goes on\npanic: no\n\ngoroutine 7 [running]:\n{stack}"
    episode = made.episode("e", [ProcessExited(pid=7, code=2, asked=False, output=output)])
    (line,) = (one for one in transcript(episode) if one.what == "process ends")
    assert line.details[:4] == ("panic: no", "goroutine 7 [running]:", "main.f0()", "    /src/f.go:0")


def test_a_long_conversation_is_shortened_around_the_mark(made):
    odd = [
        event
        for n in range(200)
        for event in (
            Message(exchange="x", stream="s", author=Author.EPP, raw=b"\xff\xff"),
            Malformed(exchange="x", stream="s", author=Author.EPP, raw=bytes([n]), reason="truncated"),
        )
    ]
    episode = made.episode("e", odd)
    lines = transcript(episode, "x", 300, limit=20)
    assert len(lines) <= 22
    assert [line.seq for line in lines if line.marked] == [300]
    assert sum(int(line.summary.split()[0]) for line in lines if line.what == "…") + 20 == 401
    assert transcript(episode, None, None)
    assert any(line.what == "no valid message" for line in lines)


# -- page --------------------------------------------------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    """Collects ids, fragments, addresses and the structure of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        self.links += [found[name] for name in ("href", "src", "action", "srcset", "data") if name in found]
        if tag == "script":
            self.scripts.append(found.get("type", ""))
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]


@pytest.fixture
def page(run) -> str:
    report = run.report()
    return page_of(report, run.evidence_path)


def test_the_page_is_one_file_without_network(page):
    reader = Reader()
    reader.feed(page)
    assert reader.links
    assert all(link.startswith("#") for link in reader.links)
    assert reader.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in reader.policy
    assert "@import" not in page
    assert "url(" not in page
    assert reader.scripts == [""]


def test_every_requirement_has_a_place(page, catalogue):
    reader = Reader()
    reader.feed(page)
    assert {one.id for one in catalogue.for_version("1.0.0")} <= set(reader.ids)


def test_output_of_the_target_is_escaped_on_the_page(made):
    made.skipped(
        "a.b", ("EPP-SUB-01",), "</script><script>alert(1)</script><img src=x onerror=alert(2)>", Verdict.ERROR
    )
    page = page_of(made.report(stopped="<b>bold</b>"))
    assert "<img" not in page
    assert "<script>alert" not in page
    assert "<b>bold</b>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page


def test_failures_come_first_and_show_their_parts_in_order(page):
    failures, table = page.index('id="failures"'), page.index('id="requirements"')
    assert failures < table
    card = page[page.index('id="EPP-SUB-01"') :]
    parts = [
        "If the request&#39;s metadata names a subset",
        "Expected",
        "Actual",
        "Conversation",
        "here",
        "Hint",
        "Reproduce",
    ]
    places = [card.index(part) for part in parts]
    assert places == sorted(places)


def test_several_versions_stand_beside_each_other(run, catalogue, profile):
    from conformance.outcome import RunOutcome, version_outcome

    outcome = run.finish()
    other = version_outcome(catalogue, "0.4.0", run.results)
    both = RunOutcome(versions=(other, *outcome.versions), seed=1, started_at="a", finished_at="b", duration=1.0)
    text = page_of(build(both, catalogue=catalogue, profile=profile, evidence=run.evidence), run.evidence_path)
    reader = Reader()
    reader.feed(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.ids.count("EPP-SUB-01") == 1
    assert text.count("in 0.4.0, 1.0.0</span></h3>") == text.count('<article class="card')
    assert '<th scope="col">0.4.0</th><th scope="col">1.0.0</th>' in text
    assert {link.removeprefix("#") for link in reader.links} <= set(reader.ids)


@pytest.mark.smoke
@pytest.mark.program
@needs_chromium
def test_a_browser_shows_it_and_asks_no_network(page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", f"{path.as_uri()}#EPP-SUB-01",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    listed = page.partition('id="requirements"')[2].partition("</table>")[0].count(" data-verdict=")
    assert listed
    assert f"{listed} shown" in done.stdout, "the script ran, under its policy"
    assert "Content Security Policy" not in done.stderr
    assert "3 failed requirements" in done.stdout
    reader = Reader()
    reader.feed(done.stdout)
    assert all(link.startswith("#") for link in reader.links)


# -- machines ----------------------------------------------------------------------------------------------------------


def test_junit_counts_and_explains(run):
    root = ET.fromstring(junit(run.report()))
    scenarios, invariants = root
    assert scenarios.attrib.items() >= {"tests": "8", "failures": "2", "errors": "0", "skipped": "1"}.items()
    assert int(root.get("tests", "0")) == len(list(root.iter("testcase")))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(root.get(name, "0")) == len(list(root.iter(tag)))
    case = next(one for one in scenarios.iter("testcase") if one.get("name") == "subset.escapes")
    properties = {(one.get("name"), one.get("value")) for one in case.iter("property")}
    assert {("requirement", "EPP-SUB-01"), ("level", "MUST"), ("verdict", "fail")} <= properties
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "EPP-SUB-01: 127.1.0.3:8000"
    assert "reproduce: epp-conformance run" in (failure.text or "")
    broken = next(one for one in invariants.iter("testcase") if one.get("name") == "invariant::EPP-DEST-05")
    assert broken.find("failure") is not None


def test_junit_tells_failures_from_errors_and_survives_control_characters(made):
    made.skipped("a.inconclusive", ("EPP-SUB-01",), "pool not \x00 ready\x1b", Verdict.INCONCLUSIVE)
    made.skipped("a.error", ("EPP-SUB-02",), "our own trouble", Verdict.ERROR)
    made.skipped("a.skipped", ("EPP-SUB-03",), "can't be reached")
    (scenarios, _) = ET.fromstring(junit(made.report()))
    kinds = {one.get("name"): one[-1].tag for one in scenarios.iter("testcase")}
    assert kinds == {"a.inconclusive": "error", "a.error": "error", "a.skipped": "skipped"}


def test_markdown_lists_failures_and_escapes_markup(run):
    run.skipped("a.b", ("EPP-SUB-03",), "<img src=x> | `tick` [link](http://x)", Verdict.ERROR)
    text = summary(run.report())
    assert "## Endpoint Picker Protocol conformance of Sample Picker v0.7.1: ✗ non-conformant" in text
    assert "#### ✗ fail: EPP-SUB-01 (1.0.0)" in text
    assert "- actual: 127.1.0.3:8000" in text
    assert "<img" not in text


def test_badges(run):
    report = run.report()
    assert endpoint(report) == {
        "schemaVersion": 1, "label": "EPP 1.0.0", "message": "non-conformant", "color": "c62828",
    }  # fmt: skip
    assert ET.fromstring(svg(report)).get("aria-label") == "EPP 1.0.0: non-conformant"
    with pytest.raises(UnknownNameError, match=r"0\.9\.9"):
        svg(report, "0.9.9")


# -- two reports -------------------------------------------------------------------------------------------------------


def changed(report, rows):
    document = report.document()
    for kind, name, fields in rows:
        next(row for row in document[kind] if row["id"] == name).update(fields)
    return seal(document)


def test_regressions_fixes_and_catalogue_changes_are_kept_apart(run):
    before = run.report()
    after = changed(
        before,
        [
            ("requirements", "EPP-SUB-02", {"verdict": "fail"}),
            ("requirements", "EPP-SUB-01", {"verdict": "pass"}),
            ("requirements", "EPP-DEST-01", {"verdict": "fail", "statement": "Something stricter."}),
            ("requirements", "EPP-ERR-03", {"verdict": "inconclusive"}),
            ("results", "subset.escapes", {"verdict": "pass"}),
            ("results", "subset.empty", {"verdict": "fail", "reason": "endpoint 127.1.0.1:8000"}),
        ],
    )
    found = diff(before, after)
    assert [one.id for one in found.regressions] == ["EPP-SUB-02"]
    assert [one.id for one in found.fixes] == ["EPP-SUB-01"]
    assert [one.id for one in found.others] == ["EPP-ERR-03"]
    assert [(one.id, one.fields) for one in found.catalogue] == [("EPP-DEST-01", ("statement",))]
    assert [one.id for one in found.scenario_regressions] == ["subset.empty"]
    assert [one.id for one in found.scenario_fixes] == ["subset.escapes"]
    assert found.regressed
    assert "  1.0.0 subset.empty: ✓ pass → ✗ fail: endpoint 127.1.0.1:8000" in found.lines()
    assert not diff(before, changed(before, [("requirements", "EPP-SUB-01", {"verdict": "pass"})])).regressed


# -- submission --------------------------------------------------------------------------------------------------------


def test_the_folder_has_upstreams_form(made, tmp_path, catalogue, judge, say):
    from conformance.evidence.episode import Expectation

    made.scenario("s.a", ("EPP-SUB-01",), say("x1", "127.1.0.3:8000"), {"x1": Expectation(within=("127.1.0.1:8000",))})
    report = made.report()
    (written,) = write_submission(report, tmp_path / "reports")
    folder = tmp_path / "reports" / "1.0.0" / "epp" / "sample-picker"
    assert written.report == folder / "v0.7.1-default-epp-report.yaml"
    assert written.readme == folder / "README.md"
    assert read_report(written.report).results == report.results
    text = written.readme.read_text()
    assert "](v0.7.1-default-epp-report.yaml)" in text
    assert "EPP-SUB-01" in text
    assert "[Sample Picker](https://example.com/sample-picker)" in text


def test_a_run_that_is_not_whole_is_refused(run, tmp_path):
    report = run.report(complete=False)
    assert report.result is Result.NON_CONFORMANT
    with pytest.raises(SubmissionRefusedError, match="scenarios were left out"):
        write_submission(report, tmp_path)
    assert not list(tmp_path.glob("1.0.0"))


def test_everything_in_the_way_is_said_at_once(made):
    made.skipped("a", ("EPP-SUB-01",), "not reached")
    document = made.report(stopped="Ctrl-C").document()
    document["implementation"] = {
        "organization": "", "project": "../..", "url": "javascript:x", "version": "main", "contact": [], "role": "epp",
    }  # fmt: skip
    found = problems(seal(document), mode="De fault")
    for part in (
        "organization is missing", "contact is missing", "is a branch", "no web address", "gives no file name",
        "mode 'De fault'", "stopped early (Ctrl-C)", "no full verdict; open are EPP-SUB-01",
    ):  # fmt: skip
        assert any(part in problem for problem in found), part


def test_a_waived_failure_says_until_when_and_why(run):
    waiver = Waiver(
        pattern="EPP-SUB-01", reason="the new scheduler", issue="#7", owner="x", expires="2099-12-31",
        matched=("subset.escapes", "EPP-SUB-01"),
    )  # fmt: skip
    report = run.report().model_copy(update={"waivers": (waiver,)})
    words = "waived until 2099-12-31: the new scheduler"
    failing = next(one for one in concerns(report) if one.requirement.id == "EPP-SUB-01")
    shown = failure_text(failing.requirement, failing.occurrences[0], waiver=waiver).plain
    assert "until 2099-12-31: the new scheduler" in shown
    assert "waived" in shown
    assert "1 waives 2 failures" in summary_text(report).plain
    assert words in summary(report)
    assert words in junit(report)
    assert words in page_of(report)


def test_warnings_are_listed_with_scenario_and_words(run):
    report = run.report()
    row = next(row for row in report.results if row.id == "subset.escapes")
    warning = replace(row.findings[0], verdict=Verdict.WARN, actual="a second header")
    rows = tuple(replace(one, findings=(*one.findings, warning)) if one is row else one for one in report.results)
    changed = report.model_copy(update={"results": rows})
    text = summary(changed)
    assert "1 warning" in text
    assert f"| {warning.requirement} (1.0.0) | `subset.escapes` | a second header |" in text
    assert "a second header" in summary_text(changed).plain


def test_not_selected_is_something_else_than_untested(run):
    report = run.report(complete=False)
    text = summary(report)
    assert "not selected" in text
    assert "untested" not in text, "every requirement of the sample has a scenario"
    page = page_of(report).partition('type="application/json"')[0]
    assert "not selected" in page
    assert not re.search(r"untested</span>|\d untested|: untested", page)
