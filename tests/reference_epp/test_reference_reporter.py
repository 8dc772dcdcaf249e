"""The request attribute reporter: its configuration, where usage is found, what is reported, and on which message."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.messages import ProcessingResponse
from reference_epp.reporter.attributes import Attribute, Reporter, compile_expression
from reference_epp.reporter.config import ConfigError, ConfigReader, read_config
from reference_epp.reporter.usage import BODY_LIMIT, UsageReader

pytestmark = pytest.mark.program

SUM = "usage.prompt_tokens + usage.completion_tokens"
USAGE = {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42}
HEAD = "apiVersion: config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"
MODES = {"buffered": 2, "streamed": 1, "full-duplex": 4}


def plugin(attributes: str, name: str = "cost") -> str:
    return f"  - name: {name}\n    type: request-attribute-reporter\n    parameters:\n      attributes:\n" + "".join(
        f"        {line}\n" for line in attributes.splitlines()
    )


def config(*plugins: str) -> str:
    return HEAD + "plugins:\n" + "".join(plugins)


ONE = "- key: {name: x-cost}\n  expression: usage.total_tokens"


def reporter(expression: str = SUM, condition: str | None = None, **more: Any) -> Reporter:
    compiled = None if condition is None else compile_expression(condition)
    return Reporter((Attribute(name="x-cost", expression=compile_expression(expression), condition=compiled, **more),))


def test_a_library_that_is_not_there_is_no_wrong_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cel.cel", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="cel"):
        compile_expression(SUM)


def found(body: bytes, *cuts: int, kind: str = "application/json", encoding: str = "", status: str = "200") -> Any:
    """The usage in `body`, which comes cut at these places."""
    reader = UsageReader(status, kind, encoding)
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in itertools.pairwise(places):
        reader.feed(body[start:end])
    return reader.usage()


def completion(usage: Any = USAGE, **more: Any) -> bytes:
    return json.dumps({"id": "1", "choices": [{"text": "usage"}], "usage": usage, **more}).encode()


def events(*datas: Any, end: str = "\n") -> bytes:
    texts = [data if isinstance(data, str) else json.dumps(data) for data in datas]
    return "".join(f"data: {text}{end}{end}" for text in texts).encode()


# -- configuration


def test_the_documents_own_example_is_read() -> None:
    text = config(
        plugin(
            "- key:\n    namespace: envoy.lb\n    name: x-gateway-inference-request-cost\n  expression: |\n"
            "    usage.prompt_tokens + usage.completion_tokens\n"
            '  condition: "has(usage.prompt_tokens) && has(usage.completion_tokens)"'
        )
    )
    (attribute,) = read_config(None, text)
    assert (attribute.namespace, attribute.name) == ("envoy.lb", "x-gateway-inference-request-cost")
    usage = {"prompt_tokens": 1.0, "completion_tokens": 2.0}
    assert list(Reporter((attribute,)).report(usage)) == [("envoy.lb", "x-gateway-inference-request-cost", 3)]
    assert list(Reporter((attribute,)).report({"prompt_tokens": 1.0})) == []


def test_namespace_and_plugin_name_are_optional() -> None:
    text = HEAD + (
        "plugins: [{type: request-attribute-reporter, parameters: "
        "{attributes: [{key: {name: a}, expression: usage.total_tokens}]}}]"
    )
    (attribute,) = read_config(None, text)
    assert (attribute.namespace, attribute.condition) == ("envoy.lb", None)
    assert read_config(None, None) == ()
    assert read_config(None, HEAD) == ()


WRONG = {
    "empty": ("", "1:1: is empty"),
    "a list": ("[]", "1:1: the configuration must be a mapping"),
    "broken YAML": ("apiVersion: [", "1:14: not YAML"),
    "a tab": ("kind: a\n\tx: y", "2:1: not YAML"),
    "a control character": ("kind: \x00", "1:1: not YAML"),
    "nested too deeply": ("[" * 5000, "1:1: not YAML"),
    "no apiVersion": ("kind: EndpointPickerConfig", "1:1: apiVersion is missing"),
    "another apiVersion": (HEAD.replace("v1alpha1", "v9"), "1:13: apiVersion must be"),
    "another kind": (HEAD.replace("EndpointPickerConfig", "Pod"), "2:7: kind must be EndpointPickerConfig"),
    "an unknown field": (HEAD + "plugin: []", "3:1: the configuration has no field 'plugin'"),
    "a field twice": (HEAD + "kind: EndpointPickerConfig", "3:1: the configuration has kind twice"),
    "another plugin": (HEAD + "plugins: [{type: queue-scorer}]", "3:18: there is no plugin type 'queue-scorer'"),
    "no plugin type": (HEAD + "plugins: [{name: a}]", "3:11: a plugin needs the field 'type'"),
    "plugins no list": (HEAD + "plugins: {}", "3:10: plugins must be a list"),
    "no parameters": (HEAD + "plugins: [{type: request-attribute-reporter}]", "3:11: parameters are missing"),
    "no attribute": (config(plugin("[]")), "exactly one entry, not 0"),
    "two attributes": (config(plugin(ONE + "\n" + ONE.replace("x-cost", "b"))), "exactly one entry, not 2"),
    "no name": (config(plugin("- key: {}\n  expression: usage.a")), "8:16: key needs the field 'name'"),
    "no key": (config(plugin("- expression: usage.a")), "8:11: an attribute needs the field 'key'"),
    "no expression": (config(plugin("- key: {name: a}")), "8:11: an attribute needs the field 'expression'"),
    "a number for a name": (config(plugin("- key: {name: 7}\n  expression: usage.a")), "8:23: name must be text"),
    "an empty expression": (config(plugin("- key: {name: a}\n  expression: ''")), "9:23: expression must not be"),
    "a number for CEL": (config(plugin("- key: {name: a}\n  expression: 7")), "9:23: expression must be text"),
    "an unknown key field": (config(plugin("- key: {nam: a}\n  expression: usage.a")), "8:17: key has no field 'nam'"),
    "CEL syntax": (config(plugin("- key: {name: a}\n  expression: usage.a +")), "9:32: expression is not valid CEL"),
    "CEL in quotes": (config(plugin("- key: {name: a}\n  expression: 'b + 1'")), "9:24: expression is not valid CEL"),
    "CEL in a block": (
        config(plugin("- key: {name: a}\n  expression: |\n    usage.a +\n      tokens.b")),
        "11:15: expression is not valid CEL: there is no variable 'tokens'",
    ),
    "CEL condition": (
        config(plugin("- key: {name: a}\n  expression: usage.a\n  condition: a.b")),
        "10:22: condition is not valid CEL: there is no variable 'a'",
    ),
    "a CEL function": (config(plugin("- key: {name: a}\n  expression: max(usage.a)")), "CEL has no function 'max'"),
    "endless CEL": (config(plugin("- key: {name: a}\n  expression: " + "1+" * 9000 + "1")), "the limit is 4096"),
    "one key twice": (config(plugin(ONE), plugin(ONE, "b")), "14:16: another plugin reports 'x-cost'"),
    "one plugin name twice": (config(plugin(ONE), plugin(ONE)), "10:5: a second plugin is named 'cost'"),
    "the destination's key": (
        config(plugin("- key: {name: x-gateway-destination-endpoint}\n  expression: usage.a")),
        "8:23: 'x-gateway-destination-endpoint' has a meaning",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_says_where_and_what(name: str) -> None:
    text, problem = WRONG[name]
    with pytest.raises(ConfigError) as error:
        ConfigReader("c.yaml").read(text)
    assert str(error.value).startswith("c.yaml:")
    assert problem in str(error.value)


@given(st.text(alphabet="ab:-[]{}'\"|> \n\t&*!#%@7\x00é", max_size=60))
def test_no_text_breaks_the_reader_of_the_configuration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^c:\d+:\d+: "):
        ConfigReader("c").read(text)


WORDS = (
    *("usage", ".", "a", "1", "1.0", "1u", "'b'", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}", "?", ":", ","),
    *("&&", "||", "!", "==", "<", "has(", "in", "map(x,x)", "é"),
)


@given(st.lists(st.sampled_from(WORDS)))
def test_no_expression_breaks_the_compiler(parts: list[str]) -> None:
    try:
        made = reporter(" ".join(parts))
    except ValueError:
        return
    assert len(list(made.report({"a": 1.0}))) in (0, 1)


def test_a_macro_may_bind_names() -> None:
    made = reporter("usage.list.all(x, x > 1.0) ? size(usage.list) : 0")
    assert list(made.report({"list": [2.0, 3.0]})) == [("envoy.lb", "x-cost", 2)]


@pytest.mark.parametrize("option", ["--config-file", "--config-text"])
def test_the_command_refuses_to_start(option: str, tmp_path: Path) -> None:
    text = config(plugin("- key: {name: a}\n  expression: usage.a +"))
    (tmp_path / "c.yaml").write_text(text)
    value = text if option == "--config-text" else str(tmp_path / "c.yaml")
    command = [sys.executable, "-m", "reference_epp", "--listen=127.0.0.1:0", "--endpoints-file=x", option, value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "9:32: expression is not valid CEL" in done.stderr
    assert (f"{tmp_path}/c.yaml:" if option == "--config-file" else "--config-text:") in done.stderr


def test_a_configuration_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        read_config(tmp_path / "none.yaml", None)


# -- evaluation


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (SUM, 42),
        ("usage.total_tokens", 42),
        ("int(usage.total_tokens)", 42),
        ("usage.total_tokens * 1.5 + 0.9", 63),
        ("0.0 - usage.prompt_tokens / 5.0", -2),
        ("usage.total_tokens - 43.0", -1),
        ("usage.total_tokens - 42.0", 0),
        ("has(usage.nothing) ? usage.nothing : 7", 7),
        ("usage.missing", None),
        ("usage.total_tokens + 1", None),  # CEL does not mix double and int
        ("usage.total_tokens / 0.0", None),
        ("'text'", None),
        ("true", None),
        ("[1]", None),
        ("usage", None),
        ("null", None),
        ("1.0e300", None),
        ("9007199254740993", None),  # a double does not hold it
    ],
)
def test_a_number_is_reported_whole_and_nothing_else_is(expression: str, value: int | None) -> None:
    usage = {name: float(number) for name, number in USAGE.items()}
    assert [item[2] for item in reporter(expression).report(usage)] == ([] if value is None else [value])


@pytest.mark.parametrize(
    ("condition", "reported"),
    [(None, True), ("true", True), ("usage.prompt_tokens > 3.0", True), ("false", False), ("usage.x > 1.0", False)]
    + [(text, False) for text in ("1", "'true'", "usage", "usage.prompt_tokens", "null")],
)
def test_the_condition_decides(condition: str | None, reported: bool) -> None:
    usage = {"prompt_tokens": 9.0, "completion_tokens": 1.0}
    assert bool(list(reporter(condition=condition).report(usage))) is reported


def test_without_usage_nothing_is_reported() -> None:
    assert list(reporter("1").report(None)) == []
    assert list(reporter("1").report({})) == [("envoy.lb", "x-cost", 1)]


# -- usage

NUMBERS = {name: float(value) for name, value in USAGE.items()}


@given(st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from(["", "gzip", "GZIP", "deflate", "identity"]))
def test_usage_is_found_in_json_however_it_is_cut(cuts: list[int], encoding: str) -> None:
    body = completion()
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding.lower(), bytes)(body)
    assert found(packed, *cuts, encoding=encoding) == NUMBERS


@given(
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "gzip"]),
    st.booleans(),
)
def test_usage_is_found_in_events_however_they_are_cut(cuts: list[int], end: str, encoding: str, done: bool) -> None:
    chunk = {"choices": [{"delta": {"content": "usäge"}}], "usage": None}
    body = events(chunk, chunk, {"choices": [], "usage": USAGE}, *(["[DONE]"] if done else []), end=end)
    packed = gzip.compress(body) if encoding else body
    assert found(packed, *cuts, kind="text/event-stream; charset=utf-8", encoding=encoding) == NUMBERS


def test_the_last_usage_of_a_stream_counts() -> None:
    body = events({"usage": {"total_tokens": 1}}, {"usage": USAGE}, {"usage": None}, {"choices": []})
    assert found(body, kind="text/event-stream") == NUMBERS
    assert found(body[:-2], kind="text/event-stream") == NUMBERS  # the end of the last event is missing
    assert found(body + events({"usage": "broken"}), kind="text/event-stream") is None
    assert found(body + b'data: {"usage": {"total_to\n\n', kind="text/event-stream") is None
    lines = b'data: {"usage":\ndata: {"total_tokens": 5}}\n: comment\nid: 1\n\n'
    assert found(b"\xef\xbb\xbf" + lines, kind="text/event-stream") == {"total_tokens": 5.0}


def test_the_names_of_the_responses_api_are_known() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 1}}
    for got in (
        found(completion(usage)),
        found(
            events({"type": "response.created", "response": {"usage": None}})
            + b"event: response.completed\n"
            + events({"type": "response.completed", "response": {"id": "r", "usage": usage}}),
            kind="text/event-stream",
        ),
    ):
        assert got["prompt_tokens"] == 3.0
        assert got["completion_tokens"] == 4.0
        assert got["input_tokens_details"] == {"cached_tokens": 1.0}


@pytest.mark.parametrize(
    "usage", [None, "42", 42, [USAGE], True, {}, {"prompt_tokens": "42", "completion_tokens": 1}]
    + [{"prompt_tokens": value, "completion_tokens": 1} for value in (10**17, 2**53 + 1, 10**400, 1e308, None, True)]
    + [{"prompt_tokens": value, "completion_tokens": 1} for value in ({"prompt_tokens": 3}, [3], "x")],
    ids=repr,
)  # fmt: skip
def test_usage_that_makes_no_sense_reports_nothing(usage: Any) -> None:
    assert list(reporter().report(found(completion(usage)))) == []
    assert list(reporter().report(found(events({"usage": usage}), kind="text/event-stream"))) == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"[]", b"null", b'{"usage": {"total_tokens": 4', b'{"usage": {"total_tokens": NaN}}',
        b'{"usage": {"total_tokens": 4}} x', b'{"usage": {"total_tokens": 4}, "usage": {"total_tokens": 5}}',
        b'{"usage": {"total_tokens": 4, "total_tokens": 5}}', b'{"choices": [{"usage": {"total_tokens": 4}}]}',
        b'{"usage": ' + b"[" * 100_000, b'{"usage": ' + b'{"a":' * 900 + b"1" + b"}" * 901, b"\xff\xfe",
        b'{"usage": {"total_tokens": -' + b"9" * 5000 + b"}}",
    ],
    ids=lambda body: repr(body[:40]),
)  # fmt: skip
def test_bodies_without_a_usage_that_can_be_relied_on(body: bytes) -> None:
    for kind in ("application/json", "text/event-stream"):
        prefix = b"data: " if kind == "text/event-stream" else b""
        assert list(reporter("usage.total_tokens").report(found(prefix + body, kind=kind))) == []


@pytest.mark.parametrize("status", ["100", "304", "400", "404", "429", "500", "503", "", "2", "2000", "²00", "20x"])
def test_only_successes_have_usage(status: str) -> None:
    assert found(completion(), status=status) is None


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "text/html", "application/jsonl"])
def test_other_bodies_have_no_usage(kind: str) -> None:
    assert found(completion(), kind=kind) is None


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json", ""])
def test_json_is_known_by_its_type(kind: str) -> None:
    assert found(completion(), kind=kind) == NUMBERS


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "x"])
def test_unknown_encodings_report_nothing(encoding: str) -> None:
    assert found(completion(), encoding=encoding) is None


@given(st.binary(max_size=60), st.integers(0, 200))
def test_broken_compression_reports_nothing(rest: bytes, cut: int) -> None:
    packed = gzip.compress(completion())
    assert found(packed[: -(cut % len(packed) + 1)], encoding="gzip") is None
    if rest:
        assert found(packed + rest, encoding="gzip") is None
        assert found(rest, encoding="gzip") is None


def test_memory_is_bounded() -> None:
    for kind in ("application/json", "text/event-stream"):
        assert found(gzip.compress(b" " * (BODY_LIMIT + 2)), encoding="gzip", kind=kind) is None
        reader = UsageReader("200", kind, "")
        for _ in range(BODY_LIMIT // 1_000_000 + 2):
            reader.feed(b"data: " + b"x" * 1_000_000 + b"\n")
        reader.feed(b"\n" + events({"usage": USAGE}))
        assert reader.usage() is None
    reader = UsageReader("200", "text/event-stream", "")
    for _ in range(40):
        reader.feed(events("x" * 1_000_000))
    reader.feed(events({"usage": USAGE}))
    assert reader.usage() == NUMBERS


# -- output


def reported(said: list[Any]) -> list[Any]:
    """The value of each answer, None for those without."""
    fields = [item.dynamic_metadata.fields["envoy.lb"].struct_value.fields for item in said]
    return [one["x-cost"].number_value if "x-cost" in one else None for one in fields]


def talk(made: Any, data_plane: Any, mode: str, *response: Any) -> list[ProcessingResponse]:
    """The answers to the response's messages."""
    made.endpoints("10.0.0.1:8000")
    conversation = made.open()
    conversation.receive(data_plane.request_headers(end=True, mode=MODES[mode]))
    said = [answer for message in response for answer in conversation.receive(message)]
    conversation.finished()
    return said


@pytest.mark.parametrize("mode", MODES)
def test_the_value_is_on_the_message_that_ends_the_response(mode: str, world: Any, data_plane: Any) -> None:
    made = world(reporter=reporter())
    body = completion()
    said = talk(made, data_plane, mode, data_plane.response_headers(), data_plane.response_body(body))
    assert reported(said) == [None, 42.0]
    if mode == "buffered":
        return
    pieces = [data_plane.response_body(body[:9], end=False), data_plane.response_body(body[9:], end=False)]
    ends = data_plane.response_body(b"")
    assert reported(talk(made, data_plane, mode, data_plane.response_headers(), *pieces, ends)) == [None] * 3 + [42.0]
    trailers = data_plane.response_trailers()
    said = talk(made, data_plane, mode, data_plane.response_headers(), *pieces, trailers)
    assert reported(said) == [None] * 3 + [42.0]
    assert said[-1].HasField("response_trailers")


def test_the_last_chunk_of_a_long_answer_has_it(world: Any, data_plane: Any) -> None:
    body = completion(padding="x" * 200_000)
    made = world(reporter=reporter())
    said = talk(made, data_plane, "full-duplex", data_plane.response_headers(), data_plane.response_body(body))
    assert reported(said) == [None] * (len(said) - 1) + [42.0]
    pieces = [item.response_body.response.body_mutation.streamed_response for item in said[1:]]
    assert b"".join(piece.body for piece in pieces) == body
    assert pieces[-1].end_of_stream


def test_the_destination_is_not_disturbed(world: Any, data_plane: Any) -> None:
    said = talk(
        world(reporter=reporter()),
        data_plane,
        "full-duplex",
        data_plane.response_headers(),
        data_plane.response_body(completion()),
    )
    assert set(said[-1].dynamic_metadata.fields["envoy.lb"].struct_value.fields) == {"x-cost"}
    assert not any(answer.HasField("dynamic_metadata") for answer in said[:-1])


def test_several_reporters_share_a_namespace(world: Any, data_plane: Any) -> None:
    second, elsewhere = ONE.replace("x-cost", "second"), ONE.replace("{", "{namespace: other, ")
    text = config(plugin(ONE), plugin(second, "b"), plugin(elsewhere, "c"))
    made = world(reporter=Reporter(read_config(None, text)))
    said = talk(made, data_plane, "streamed", data_plane.response_headers(), data_plane.response_body(completion()))
    fields = said[-1].dynamic_metadata.fields
    assert {name: set(value.struct_value.fields) for name, value in fields.items()} == {
        "envoy.lb": {"x-cost", "second"},
        "other": {"x-cost"},
    }
    assert fields["other"].struct_value.fields["x-cost"].WhichOneof("kind") == "number_value"


@given(st.lists(st.sampled_from(["headers", "end", "piece", "last", "trailers"]), max_size=8))
def test_any_order_of_messages_is_survived(order: list[str]) -> None:
    made, data_plane = MAKERS[0](reporter=reporter()), MAKERS[1]
    menu = {
        "headers": data_plane.response_headers(),
        "end": data_plane.response_headers(end=True),
        "piece": data_plane.response_body(completion(), end=False),
        "last": data_plane.response_body(b""),
        "trailers": data_plane.response_trailers(),
    }
    values = reported(talk(made, data_plane, "full-duplex", *(menu[name] for name in order)))
    assert {value for value in values if value is not None} <= {42.0}


MAKERS: list[Any] = []


@pytest.fixture(autouse=True)
def _makers(world: Any, data_plane: Any) -> None:
    MAKERS[:] = [world, data_plane]
