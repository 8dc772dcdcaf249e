"""Strict YAML: types, refusals, positions, and hints."""

from __future__ import annotations

import datetime as dt
import enum
import io
import json
import math
import os
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance import errors
from conformance.strict_yaml import FileError, FileModel, Problem, dump, load, load_located, parse

steady = settings(suppress_health_check=[HealthCheck.too_slow])


class Color(enum.StrEnum):
    RED = "red"
    GREEN = "green"


class Circle(FileModel):
    kind: Literal["circle"]
    radius: float


class Square(FileModel):
    kind: Literal["square"]
    side_length: int


Shape = Annotated[Circle | Square, pydantic.Field(discriminator="kind")]


class Item(FileModel):
    name: str
    color: Color = Color.RED
    also_breaks: tuple[str, ...] = ()
    size: int | str = 1
    shape: Shape | None = None


class File(FileModel):
    title: str
    until: dt.date | None = None
    on: bool = False
    effects: dict[Color, Literal["fail", "warn"]] = pydantic.Field(default_factory=dict)
    items: tuple[Item, ...] = ()


def problems(text: str, model: type[FileModel] = File) -> list[str]:
    with pytest.raises(FileError) as caught:
        load(text, model, name="f.yaml")
    return [str(p) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("Y", "Y"), ("10:30", "10:30"), ("1_000", "1_000"),
        ("2025-07-29", "2025-07-29"), ("0.3.0", "0.3.0"), ("<<", "<<"), ("=", "="), ("0b11", "0b11"), ("-", [None]),
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("tRue", "tRue"),
        ("0", 0), ("-7", -7), ("+7", 7), ("0o17", 15), ("0xfF", 255), ("1.5", 1.5), ("-.5", -0.5), ("1e3", 1000.0),
        ("1.", 1.0), (".inf", math.inf), ("-.Inf", -math.inf), ("inf", "inf"), ("nan", "nan"), ('"1"', "1"),
        ("'true'", "true"), ("|\n 12\n", "12\n"), ("127.0.0.1:8000", "127.0.0.1:8000"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_scalars_have_the_types_of_yaml_1_2(text: str, value: object) -> None:
    data = parse(text).data
    assert data == value
    assert type(data) is type(value)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "key 'a' is here twice (the first is at 1:1)"),
        ("a: {b: 1, b: {c: [1]}}", "1:11", "a.b: key 'b' is here twice"),
        ("a: &x 1\nb: *x\n", "1:4", "anchor &x is not allowed"),
        ("a: &x 1\nb: *x\n", "2:4", "alias *x is not allowed"),
        ("a: !!str 1", "1:4", "tag"),
        ("a: !!python/object/apply:os.system [ls]", "1:4", "tag"),
        ("a: 022", "1:4", '022 has a leading zero (write 22 as a number or "022" as text)'),
        ("a: -007.5", "1:4", "leading zero"),
        ("? [1, 2]\n: 3\n", "1:3", "a key must be text"),
        ("!x a: 1", "1:1", "tag !x is not allowed"),
        ("--- 1\n--- 2\n", "2:1", "a second document begins here"),
        ("a: [1\nb: 2\n", "2:", "expected ',' or ']'"),
        ("a:\n\tb: 1\n", "2:", "spaces, not with tabs"),
        ("a: \x07", "1:4", "a character that YAML does not allow"),
        ("a: " + "9" * 5000, "1:4", "the number is too long"),
        ("[" * 80 + "]" * 80, "1:65", "nested deeper than 64 levels"),
    ],
)
def test_refused(text: str, where: str, what: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(text, name="f.yaml")
    assert any(f"f.yaml:{where}" in line and what in line for line in map(str, caught.value.problems)), caught.value


def test_all_problems_are_reported_at_once_and_in_the_order_of_the_file() -> None:
    text = """\
titel: x
on: yes
effects: {red: fial, gren: warn}
items:
  - name: 5
    colour: red
    size: [1]
  - {color: grene, name: a, name: b}
"""
    assert problems(text) == [
        "f.yaml:1:1: title: required key 'title' is missing",
        "f.yaml:1:1: titel: unknown key 'titel' (did you mean 'title'?)",
        "f.yaml:2:5: on: expected true or false, got 'yes'",
        "f.yaml:3:16: effects.red: 'fial' is not one of the values allowed here "
        "(did you mean 'fail'? one of: fail, warn)",
        "f.yaml:3:22: effects.gren: 'gren' is not one of the values allowed here "
        "(did you mean 'green'? one of: red, green)",
        'f.yaml:5:11: items[0].name: expected text, got 5 (in quotes it is text: "5")',
        "f.yaml:6:5: items[0].colour: unknown key 'colour' (did you mean 'color'?)",
        "f.yaml:7:11: items[0].size: expected a whole number, got a list; or expected text, got a list",
        "f.yaml:8:13: items[1].color: 'grene' is not one of the values allowed here "
        "(did you mean 'green'? one of: red, green)",
        "f.yaml:8:29: items[1].name: key 'name' is here twice (the first is at 8:20)",
    ]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("{kind: circel, radius: 1}", "2:42: items[0].shape.kind: 'circel' is not one of the values allowed here "
         "(did you mean 'circle'? one of: circle, square)"),
        ("{radius: 1}", "2:35: items[0].shape: required key 'kind' is missing"),
        ("{kind: square, sideLenght: 1, sideLength: 2}",
         "2:50: items[0].shape.sideLenght: unknown key 'sideLenght' (did you mean 'sideLength'?)"),
        ("{kind: square, side_length: 2}", "items[0].shape.sideLength: required key 'sideLength' is missing"),
        ("5", "2:35: items[0].shape: expected a mapping, got 5"),
    ],
)  # fmt: skip
def test_problems_inside_a_tagged_union(shape: str, expected: str) -> None:
    assert any(expected in line for line in problems(f"title: x\nitems: [{{name: a, size: 1, shape: {shape}}}]\n"))


def test_a_file_becomes_its_model() -> None:
    text = """\
title: x
until: 2026-01-31
on: true
items: [{name: 'yes', alsoBreaks: [A-1], shape: {kind: circle, radius: 1}}]
"""
    value = load(text, File)
    assert value.until == dt.date(2026, 1, 31)
    assert value.items[0].also_breaks == ("A-1",)
    assert value.items[0].shape == Circle(kind="circle", radius=1.0)


@pytest.mark.parametrize(("text", "what"), [("", "the file is empty"), ("# only a comment\n", "the file is empty"),
                                            ("- 1\n", "expected a mapping, got a list")])  # fmt: skip
def test_not_a_mapping(text: str, what: str) -> None:
    assert what in problems(text)[0]


class Checked(FileModel):
    low: int
    high: int

    @pydantic.model_validator(mode="after")
    def ordered(self) -> Checked:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def test_a_models_own_checks_have_a_position() -> None:
    assert problems("\n\nlow: 2\nhigh: 1\n", Checked) == ["f.yaml:3:1: low is above high"]


def test_later_checks_point_into_the_document() -> None:
    _, document = load_located("title: x\nitems:\n  - name: a\n", File, name="f.yaml")
    assert str(document.problem(("items", 0, "name"), "no such", "try b")) == (
        "f.yaml:3:11: items[0].name: no such (try b)"
    )
    assert document.position(("items", 0, "name"), key=True) == (3, 5)
    assert document.position(("items", 0, "color")) == (3, 5)
    assert document.position(("nowhere",)) == (1, 1)


def test_files_are_read_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbftitle: \xc3\xa9\n")
    assert load(path, File).title == "é"
    path.write_bytes(b"title: x\nitems: [\xff]\n")
    with pytest.raises(FileError, match=r"a\.yaml:2:9: byte 0xff is not UTF-8"):
        load(path, File)
    with pytest.raises(FileError, match=r"gone\.yaml: can't be read: No such file"):
        load(tmp_path / "gone.yaml", File)
    with pytest.raises(FileError, match="can't be read"):
        load(tmp_path, File)


def test_a_relative_path_that_leads_nowhere_is_told_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError) as caught:
        load(Path("no/such.yaml"), File)
    message = f"no/such.yaml: can't be read: No such file or directory (the working folder is {tmp_path})"
    assert str(caught.value) == message


def test_special_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileError, match="no regular file"):
            load(path, File)


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    with pytest.raises(FileError, match="larger than 1024 KiB"):
        load(path, File)


def test_a_file_with_too_many_values_is_refused_where_they_begin_to_be_too_many() -> None:
    with pytest.raises(FileError, match=r"<text>:1:\d+: the file has more than 50000 keys and values"):
        load("items: [" + "1," * 200_000 + "]", File)


def test_the_error_is_a_usage_error_with_a_code() -> None:
    with pytest.raises(errors.UsageError) as caught:
        load("title: [", File)
    assert (caught.value.exit_code, caught.value.code) == (2, "usage.file")


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=100)
"""Not beyond the BMP, which JSON escapes as surrogate pairs; nor long: a YAML key on one line has at most 1024."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
LOOKS_TYPED = st.from_regex(r"\A[-+]?[0-9oxeE._:]{1,6}\Z") | st.sampled_from(
    ["yes", "on", "null", "~", "", "022", "0o7", "1e3", ".inf", "True", "=", "<<", " a", "a: b", "- a", "#", "\n"]
)


@steady
@given(JSON)
def test_json_is_read_as_it_is(value: object) -> None:
    assert parse(json.dumps(value)).data == value


@steady
@given(JSON | LOOKS_TYPED | st.lists(LOOKS_TYPED | st.text(st.characters(exclude_categories=["Cs"]))))
def test_dumped_values_are_read_back(value: object) -> None:
    data = parse(dump({"it": value})).data["it"]
    assert data == value
    assert json.dumps(data) == json.dumps(value)


def problems_or_data(source: object, model: type[FileModel] | None = None) -> tuple[Problem, ...]:
    try:
        data = load(source, model) if model else parse(source).data  # type: ignore[arg-type]
    except FileError as error:
        return error.problems or pytest.fail("a FileError without a problem")
    json.dumps(data, default=repr)
    return ()


@steady
@given(st.text(alphabet=st.sampled_from("abx:-#&*!|>'\"%@`{}[], \n\t?~0123456789.eE+\x00\ud800é"), max_size=60))
def test_any_text_gives_data_or_a_file_error(text: str) -> None:
    assert all(p.line >= 1 and p.column >= 1 for p in problems_or_data(text))


@steady
@given(st.binary(max_size=60))
def test_any_bytes_give_a_model_or_a_file_error(raw: bytes) -> None:
    class Raw:
        def open(self, mode: str) -> io.BytesIO:
            assert mode == "rb"
            return io.BytesIO(raw)

    assert all(p.line >= 1 and p.column >= 1 for p in problems_or_data(Raw(), File))


@steady
@given(JSON)
def test_any_data_against_a_model_gives_problems_with_places_in_the_file(value: object) -> None:
    text = json.dumps({"title": "x", "items": value})
    assert all(p.line == 1 and 1 <= p.column <= len(text) for p in problems_or_data(text, File))


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("EPP-SUB-2", ["EPP-SUB-02", "EPP-ERR-02"], "did you mean 'EPP-SUB-02'?"),
        ("epp-sub-02", ["EPP-SUB-02"], "did you mean 'EPP-SUB-02'?"),
        ("zzz", ["b", "a"], "known: a, b"),
        ("gren", list(Color), "did you mean 'green'?"),
        ("zzz", [], ""),
    ],
)
def test_did_you_mean(name: str, known: list[str], hint: str) -> None:
    error = errors.UnknownNameError("requirement", name, known)
    assert error.hint == hint
    assert str(error).startswith(f"there is no requirement '{name}'")


def test_the_tree_drawn_in_the_docstring_is_the_tree() -> None:
    def names(root: type[errors.ConformanceError]) -> set[str]:
        return {root.__name__, *(n for sub in root.__subclasses__() for n in names(sub))}

    drawn = {n for n in names(errors.ConformanceError) if n in (errors.__doc__ or "")}
    own = {n for n in names(errors.ConformanceError) if hasattr(errors, n)}
    assert own | {"FileError"} == drawn
