"""Pages of metrics and answers of model servers, as they are read: whatever comes is read, or said to be unreadable."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.evidence.model_server import MetricNames, ModelServerFacts
from conformance.reading.metrics_page import excerpt, look_up, read_page
from conformance.reading.server_answer import error_message, json_of, read_events
from conformance.reading.server_metrics import ServerMetrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

names = st.sampled_from(["a", "ab", "a_b", "vllm:a", "a:b", "_c", "a1"])
labels = st.dictionaries(st.sampled_from(["x", "engine", "model_name"]), st.text(max_size=6), max_size=3)
series = st.lists(st.tuples(labels, st.floats(allow_nan=False)), min_size=1, max_size=4)
families = st.dictionaries(names, series, min_size=1, max_size=5)


def written(found: dict) -> bytes:
    """A page with these families, all of them gauges."""
    lines = []
    for name, samples in found.items():
        lines.append(f"# TYPE {name} gauge")
        for pairs, value in samples:
            inside = ",".join(f'{label}="{escaped(text)}"' for label, text in pairs.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return ("\n".join(lines) + "\n").encode()


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@given(st.binary(max_size=300), st.sampled_from(["", "text/plain", OPENMETRICS]))
def test_any_page_is_read_or_has_a_problem(body: bytes, content_type: str) -> None:
    page = read_page(body, content_type)
    assert all(isinstance(one, str) and one for one in page.problems)
    excerpt(body, {"a"})


@given(families)
def test_written_families_are_read(found: dict) -> None:
    page = read_page(written(found))
    assert page.problems == ()
    for name, samples in found.items():
        reading = look_up(page, (name,), match={}, combine="first")
        assert reading is not None
        assert (reading.type, reading.value) == ("gauge", samples[0][1])
        assert [(dict(one.labels), one.value) for one in reading.samples] == samples


@given(families, st.data())
def test_an_excerpt_keeps_the_wanted_families(found: dict, data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.sampled_from(sorted(found))))
    whole, part = read_page(written(found)), read_page(excerpt(written(found), wanted))
    for name in found:
        of_part = look_up(part, (name,), match={}, combine="first")
        assert of_part == (look_up(whole, (name,), match={}, combine="first") if name in wanted else None)


@given(families, st.sampled_from(["  ", "\t", " \t "]))
def test_blanks_before_and_between_words_say_nothing(found: dict, blanks: str) -> None:
    lines = written(found).decode().split("\n")[:-1]
    spread = [
        blanks + (line.replace(" ", blanks) if line.startswith("#") else blanks.join(line.rsplit(" ", 1)))
        for line in lines
    ]
    body = ("\n".join(spread) + "\n").encode()
    for name in found:
        for page in (body, excerpt(body, {name})):
            readings = [look_up(read_page(one), (name,), match={}, combine="first") for one in (page, written(found))]
            assert readings[0] == readings[1]


@given(families, st.integers(1, 200))
def test_a_page_that_is_cut_has_a_problem_or_ends_with_a_line(found: dict, cut: int) -> None:
    body = written(found)[:-cut]
    assert read_page(body).problems or body == b"" or body.endswith(b"\n")


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (b"a 1", "the last line has no end"),
        (b"a 1\r\nb 2\r\n", "lines end with a carriage return"),
        (b"# TYPE a gauge\na 1\n# TYPE a gauge\n", "a second TYPE of a"),
        (b"# HELP a x\n# HELP a x\na 1\n", "a second HELP of a"),
        (b"a 1\n# TYPE a gauge\n", "the TYPE of a comes after its samples"),
        (b"# TYPE a info\na 1\n", "'info', the TYPE of a, is none of the text format"),
        (b'a{b="\xff"} 1\n', "it is not UTF-8"),
        (b"a 1 1700000000.5\n", "'1700000000.5', the timestamp of a, is no whole number"),
        (b'a{b="c"} 1 # {d="e"} 1\n', "'#', the timestamp of a, is no whole number"),
        (b'a{b="} 1"} 1 1700 5\n', "'5' follows the timestamp of a"),
        (b"a 1 \n", "a blank ends the line of a"),
        (b"a 1\t\n", "a blank ends the line of a"),
        (b'a{b="c"} 1 1700 \n', "a blank ends the line of a"),
        (b"# HELP a in C:\\dir\na 1\n", "\\d, in the HELP of a, is no escape"),
        (b'a{b="C:\\dir"} 1\n', "\\d, in the label b of a, is no escape"),
        (b'# TYPE h histogram\nh_bucket{le="x"} 1\n', "'x', the label le of h_bucket, is no number"),
        (b'# TYPE s summary\ns{quantile=""} 1\n', "'', the label quantile of s, is no number"),
        (b"[]\n", "it can't be parsed"),
        (b"<html>\n", "it can't be parsed"),
    ],
)
def test_pages_that_epps_refuse_have_a_problem(page: bytes, problem: str) -> None:
    assert any(one.startswith(problem) for one in read_page(page).problems)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"# TYPE a gauge\n",
        b"a 1 1700000000000\n",
        b'a{b="C:\\\\dir \\n \\"} 1 2.5\\" ,"} 1\t-5\n',
        b'# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_bucket{le="1e-3"} 0\n# TYPE g gauge\ng{le="x"} 1\nk{le="x"} 1\n',
        b"a NaN\nb +Inf\n",
        b"# TYPE a_total counter\na_total 1\n# EOF\n",
    ],
)
def test_pages_that_epps_accept_have_no_problem(page: bytes) -> None:
    assert read_page(page).problems == ()


def test_openmetrics_is_read_as_it_is() -> None:
    assert read_page(b"# TYPE a gauge\na 1 1700000000.5\n# EOF\n", OPENMETRICS).problems == ()
    page = read_page(b'# TYPE a gauge\na{b="c"} 1.0\n# TYPE n counter\nn_total 2.0\n# EOF\n', OPENMETRICS)
    assert page.problems == ()
    assert (page.type_of("a"), page.type_of("n_total")) == ("gauge", "counter")


def test_a_counter_has_the_name_that_it_is_written_with() -> None:
    page = read_page(b"# TYPE n counter\nn 5\n# TYPE n_total counter\nn_total 3\n# TYPE m counter\nm 1\n")
    found = {name: look_up(page, (name,), match={}) for name in ("n", "n_total", "m", "m_total")}
    assert {name: one and (one.type, one.value) for name, one in found.items()} == {
        "n": ("counter", 5), "n_total": ("counter", 3), "m": ("counter", 1), "m_total": None,
    }  # fmt: skip


RANKS = b'# TYPE q gauge\nq{engine="0"} 1\nq{engine="1"} 5\n# TYPE k gauge\nk{engine="0"} 0.2\nk{engine="1"} 0.7\n'


@pytest.mark.parametrize(
    ("combine", "match", "queued", "used"),
    [
        ("sum", {}, 6, 0.7),
        ("max", {}, 5, 0.7),
        ("first", {}, 1, 0.2),
        ("sum", {"engine": "1"}, 5, 0.7),
    ],
)
def test_series_are_combined_as_in_the_profile(combine: str, match: dict, queued: float, used: float) -> None:
    facts = ModelServerFacts(names=MetricNames(queued=("q",), kv_cache=("k",)), match=match, combine=combine)
    metrics, page = ServerMetrics(facts), read_page(RANKS)
    assert (metrics.value(page, "queued"), metrics.value(page, "kv_cache")) == (queued, used)
    assert metrics.value(page, "running") is None


def test_ranks_add_up_to_a_cache_of_all_their_blocks() -> None:
    page = read_page(b'i{engine="0",size="16",blocks="100"} 1\ni{engine="1",size="16",blocks="150"} 1\n')
    metrics = ServerMetrics(ModelServerFacts(names=MetricNames(block_size=("i@size",), blocks=("i@blocks",))))
    assert metrics.capacity(page) == 16 * 250


def test_a_total_beside_its_parts_is_not_added_to_them() -> None:
    page = read_page(b'# TYPE q gauge\nq{priority=""} 3\nq{priority="1"} 1\nq{priority="2"} 2\n')
    found = look_up(page, ("q",), match={})
    assert found is not None
    assert found.value == 3


@pytest.mark.parametrize(
    ("series", "value"),
    [(b'a{b="c"} 5\n', 5), (b'a{b="all"} 7\na{b="c"} 5\n', 7), (b"", None)],
)
def test_an_alternative_with_series_comes_before_one_without(series: bytes, value: float | None) -> None:
    reading = look_up(read_page(b"# TYPE a gauge\n" + series), ('a{b="all"}', "a"), match={})
    assert reading is not None
    assert reading.value == value


@pytest.mark.parametrize(("text", "value"), [("16", 16), ("None", None), ("", None)])
def test_a_label_can_have_the_value(text: str, value: float | None) -> None:
    found = look_up(read_page(f'# TYPE i gauge\ni{{size="{text}"}} 1\n'.encode()), ("i@size",), match={})
    assert found is not None
    assert (found.value, found.texts) == (value, (text,))


# -- answers -----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_event_stream_is_read(body: bytes) -> None:
    events = read_events(body)
    assert isinstance(events.done, bool)
    assert len(events.chunks) <= len(events.data)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=4), st.data())
def test_events_are_read_however_their_lines_end(chunks: list, data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    comment = data.draw(st.sampled_from(["", f": keep-alive{end}{end}"]))
    body = "".join(f"{comment}data: {json.dumps(chunk)}{end}{end}" for chunk in chunks) + f"data: [DONE]{end}{end}"
    events = read_events(body.encode())
    assert (events.chunks, events.done, events.problem) == (chunks, True, "")


@pytest.mark.parametrize(
    ("body", "chunks", "done"),
    [
        (b'data:{"a": 1}\n\ndata:[DONE]\n\n', [{"a": 1}], True),
        (b'\xef\xbb\xbfdata: {"a": 1}\n\ndata: [DONE]\n\n', [{"a": 1}], True),
        (b'data: {"a":\ndata: 1}\ndata\n\ndata: [DONE]\n\n', [{"a": 1}], True),
        (
            b'id: 1\nevent: message\nretry: 5\ndata: {"a": 1}\n: x\n\nevent: x\n\n:\n\ndata: [DONE]\n\n',
            [{"a": 1}],
            True,
        ),
        (b'data: {"a": 1}\ndata: {"a": 2}\n\ndata: [DONE]\n\n', [None], True),
        (b'data: {"a":\n1}\n\ndata: [DONE]\n\n', [None], True),
        (b"data:\n\ndata: [DONE]\n\n", [None], True),
        (b' data: {"a": 1}\n\nData: {"a": 1}\n\ndata : [DONE]\n\n', [], False),
        (b'{"a": 1}\n\n[DONE]\n\n', [], False),
        (b"data:  [DONE]\n\n", [None], False),
        (b"data: [DONE]\n", [], False),
    ],
)
def test_events_are_those_of_the_standard(body: bytes, chunks: list, done: bool) -> None:
    events = read_events(body)
    assert (events.chunks, events.done) == (chunks, done)


def test_another_field_that_begins_so_is_none_of_an_event() -> None:
    assert read_events(b"data: 1\n\ndatabase: x").problem == ""


@pytest.mark.parametrize("rest", [b"data: [DONE]\n", b"data: [DONE]", b"data: x\r\n: comment\r\n"])
def test_an_event_without_an_empty_line_after_it_is_lost(rest: bytes) -> None:
    events = read_events(b"data: 1\n\n" + rest)
    assert (events.data, events.problem) == (("1",), "it ends inside an event")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"object": "error", "message": "no"}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"detail": [{"msg": "no"}]}, "no"),
        ({"detail": {}}, None),
        ({"error": {}}, None),
        ([], None),
        (math.nan, None),
    ],
)
def test_errors_have_the_shapes_of_the_field(body: object, message: str | None) -> None:
    assert error_message(body) == message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_has_not_makes_it_none(number: str) -> None:
    assert json_of(f'{{"a": {number}}}') is None
