"""YAML files of the project, read strictly: every problem with its file, line, column, and the nearest valid name.

Types are those of YAML 1.2's core schema: `yes`, `no`, `on`, `off`, `10:30` and `2025-07-29` stay text. Refused, with
a position: duplicate keys, anchors and aliases, tags, several documents, numbers with leading zeros (`022` is 18 in
YAML 1.1 and 22 in 1.2), deep nesting, and files that are larger than any that people write. Keys are always text.

A document is then JSON-shaped, and pydantic validates it in its strict JSON mode: text is never read as a number, nor 1
as true, while a list may become a tuple and text an enum. All problems of a file are reported at once.

    model = load(Path("waivers.yaml"), WaiverFile)                 # or FileError
    model, document = load_located(Path("waivers.yaml"), WaiverFile)
    raise FileError([document.problem(("waivers", 3, "id"), "no such requirement", hint)])
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pydantic
import yaml
from pydantic.alias_generators import to_camel

from conformance.errors import UsageError
from conformance.validation import Loc, explain

MAX_BYTES, MAX_VALUES, MAX_DEPTH = 1_048_576, 50_000, 64
"""Bounds of a file: its size, its keys and values, its levels. The largest file of the suite has 2 % of them."""


class FileModel(pydantic.BaseModel):
    """Base of what a YAML file holds: frozen, unknown keys refused, keys in camelCase for names in snake_case."""

    model_config = pydantic.ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )


Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong in a file. `line` and `column` count from 1, and are 0 if it is about the file as a whole; `path`
    is the place (`steps[0].expect`).
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: "
        return where + self.without_place

    @property
    def without_place(self) -> str:
        """The same where there is no file to look into."""
        path = f"{self.path}: " if self.path else ""
        return f"{path}{self.message}" + (f" ({self.hint})" if self.hint else "")


class FileError(UsageError):
    """A file can't be used. `problems` are all that is wrong with it, in the order of the file."""

    code: ClassVar[str] = "usage.file"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed file, or a part of one: plain data, and the nodes of the text, which know where they are."""

    name: str
    data: Any
    node: yaml.Node | None = field(repr=False)

    def position(self, loc: Sequence[str | int], *, key: bool = False) -> tuple[int, int]:
        """Line and column of `loc`: of its value or, with `key`, of its key. A place that does not exist gives its
        nearest ancestor."""
        node = at = self.node
        for number, part in enumerate(loc, start=1):
            if (pair := _child(node, part)) is None:
                break
            node = pair[1]
            at = pair[0] if key and number == len(loc) else node
        return (1, 1) if at is None else (at.start_mark.line + 1, at.start_mark.column + 1)

    def part(self, loc: Sequence[str | int], data: Any) -> Document:
        """What is at `loc`, with `data` for its value, as a document with the same positions."""
        node = self.node
        for place in loc:
            node = pair[1] if (pair := _child(node, place)) is not None else None
        return Document(name=self.name, data=data, node=node)

    def problem(self, loc: Sequence[str | int], message: str, hint: str = "", *, key: bool = False) -> Problem:
        """A problem at `loc`, for checks made after validation."""
        line, column = self.position(loc, key=key)
        return Problem(file=self.name, line=line, column=column, path=path_text(loc), message=message, hint=hint)

    def validate(self, model: type[Model]) -> Model:
        """The document as a `model`; raises FileError with every problem."""
        try:
            return model.model_validate_json(json.dumps(self.data), strict=True, by_alias=True, by_name=False)
        except pydantic.ValidationError as error:
            complaints = explain(self.data, model, error)
            raise FileError(self.problem(c.loc, c.message, c.hint, key=c.on_key) for c in complaints) from None


def load(source: Traversable | str, model: type[Model], *, name: str | None = None) -> Model:
    """Read a file (a path or a packaged resource) or text (`str`) as a `model`.

    `name` is how the file is called in messages; default: the path as given, or `<text>`. Raises FileError.
    """
    return load_located(source, model, name=name)[0]


def load_located(source: Traversable | str, model: type[Model], *, name: str | None = None) -> tuple[Model, Document]:
    """As `load`, with the document, so that later checks can point into it."""
    document, problems = examine(source, name=name)
    try:
        value = document.validate(model)
    except FileError as error:
        raise FileError([*problems, *beyond(problems, error.problems)]) from None
    if problems:
        raise FileError(problems)
    return value, document


def parse(source: Traversable | str, *, name: str | None = None) -> Document:
    """Read a file or text without a model. Raises FileError."""
    document, problems = examine(source, name=name)
    if problems:
        raise FileError(problems)
    return document


def examine(source: Traversable | str, *, name: str | None = None) -> tuple[Document, list[Problem]]:
    """A file or text, and what is refused of its keys and values. Raises FileError if it can't be read at all."""
    name = name or ("<text>" if isinstance(source, str) else str(source))
    text = source if isinstance(source, str) else read_text(source, name)
    reader = _Reader(name)
    try:
        reader.look_through(text)
        node: yaml.Node | None = None if reader.problems else yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part) or "not YAML"
        tabbed = mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])[: mark.column + 2]
        reader.refuse(mark, (), what, "indent with spaces, not with tabs" if tabbed else "")
    except (yaml.YAMLError, UnicodeEncodeError):
        found = _UNPRINTABLE.search(text)
        before = text[: found.start()] if found else ""
        reader.problems.append(_after(before, name, "a character that YAML does not allow"))
    if reader.problems:
        raise FileError(reader.problems)
    data = None if node is None else reader.data(node, ())
    return Document(name=name, data=data, node=node), reader.problems


def dump(data: Any) -> str:
    """Plain data (mappings with text keys, lists, text, numbers, booleans, None) as YAML that `parse` reads back."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def path_text(loc: Sequence[str | int]) -> str:
    """`("steps", 0, "expect")` as `steps[0].expect`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def beyond(problems: Sequence[Problem], later: Iterable[Problem]) -> list[Problem]:
    """Those of the `later` problems that do not just follow from `problems` with the same or an outer place."""
    known = {one.path for one in problems}
    return [one for one in later if not any(f"{one.path}.".startswith((f"{path}.", f"{path}[")) for path in known)]


# -- text to nodes, nodes to data --------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Gives plain scalars the types of the core schema. libyaml where it is built in: ten times faster."""


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and quotes all text that the loader, or a reader of YAML 1.1, would take for another type."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


_LEADING_ZERO = "leading zero"
_CORE: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "null": (r"null|Null|NULL|~|", "~nN", lambda _: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text[0] in "tT"),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789", lambda text: int(text, 0)),
    "float": (
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
        lambda text: float(re.sub(r"\.(?=[in])", "", text.lower())),
    ),
    _LEADING_ZERO: (r"[-+]?0[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", "-+0", str),
}
"""Types of plain scalars: how they look, what they begin with, and how they are read."""

for _tag, (_form, _first, _) in _CORE.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag, re.compile(f"(?:{_form})\\Z"), [*_first, *([""] if _tag == "null" else [])])


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    odd = any(character in text for character in "\x85\u2028\u2029\ufeff")  # line ends of Unicode's
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if odd else None)


_Dumper.add_representer(str, _represent_text)


class _Reader:
    """Turns text to nodes to plain data, and collects what is refused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def refuse(self, mark: Any, loc: Loc, message: str, hint: str = "") -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        place = path_text(loc)
        self.problems.append(Problem(file=self.name, line=line, column=column, path=place, message=message, hint=hint))

    def look_through(self, text: str) -> None:
        """Refuse what the nodes would not show any more, and what is too much, before anything is made of it."""
        depth = documents = 0
        for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
            mark, anchor, tag = event.start_mark, getattr(event, "anchor", None), getattr(event, "tag", None)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if isinstance(event, yaml.AliasEvent):
                self.refuse(mark, (), f"alias *{anchor} is not allowed", "write the value out")
            elif anchor is not None:
                self.refuse(mark, (), f"anchor &{anchor} is not allowed", "write the value out where it is needed")
            if tag is not None:
                self.refuse(mark, (), f"tag {tag} is not allowed", "types are given by the value itself")
            if documents > 1:
                self.refuse(mark, (), "a second document begins here", "keep one document in a file")
            elif depth > MAX_DEPTH:
                self.refuse(mark, (), f"nested deeper than {MAX_DEPTH} levels")
            elif number > MAX_VALUES:
                self.refuse(mark, (), f"the file has more than {MAX_VALUES} keys and values", "split it")
            else:
                continue
            return

    def data(self, node: yaml.Node, loc: Loc) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.data(item, (*loc, at)) for at, item in enumerate(node.value)]
        first: dict[str, Any] = {}
        pairs: dict[str, Any] = {}
        for key, value in node.value:
            name, mark = key.value, key.start_mark
            if not isinstance(key, yaml.ScalarNode):
                self.refuse(mark, loc, "a key must be text")
            elif name in first:
                where = f"the first is at {first[name].line + 1}:{first[name].column + 1}"
                self.refuse(mark, (*loc, name), f"key {name!r} is here twice", where)
            else:
                first[name] = mark
                pairs[name] = self.data(value, (*loc, name))
        return pairs

    def scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        text: str = node.value
        if node.tag not in _CORE:
            return text
        if node.tag == _LEADING_ZERO:
            number = text.lstrip("+-").lstrip("0") or "0"
            hint = f'write {number} as a number or "{text}" as text'
            self.refuse(node.start_mark, loc, f"{text} has a leading zero", hint)
            return None
        try:
            return _CORE[node.tag][2](text)
        except ValueError:  # Python refuses integers of more than 4300 digits
            self.refuse(node.start_mark, loc, "the number is too long")
            return None


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value at one part of a place; an item of a list is its own key."""
    if isinstance(node, yaml.MappingNode):
        return next((pair for pair in node.value if pair[0].value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_text(source: Traversable, name: str) -> str:
    """The text of a regular file of bounded size, called `name` in messages. Raises FileError."""
    raw, message, hint = b"", "", ""
    try:
        if isinstance(source, Path) and not stat.S_ISREG(source.stat().st_mode):
            message = "can't be read: it is a folder" if source.is_dir() else "can't be read: it is no regular file"
        else:
            with source.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"can't be read: {error.strerror or error}"
        hint = "" if Path(name).is_absolute() else f"the working folder is {Path.cwd()}"
    if len(raw) > MAX_BYTES:
        message, hint = f"the file is larger than {MAX_BYTES // 1024} KiB", "no file that people write is"
    if message:
        raise FileError([Problem(file=name, line=0, column=0, path="", message=message, hint=hint)])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise FileError([_after(before, name, what, "save the file as UTF-8")]) from None


def _after(text: str, name: str, message: str, hint: str = "") -> Problem:
    """A problem with what follows `text` in a file."""
    line, column = text.count("\n") + 1, len(text.rpartition("\n")[2]) + 1
    return Problem(file=name, line=line, column=column, path="", message=message, hint=hint)
