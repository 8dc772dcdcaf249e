"""YAML files of the project, read strictly: every problem with its file, line, column, and the nearest valid name.

The types are those of YAML 1.2's core schema: `yes`, `no`, `on`, `off`, `10:30` and `2025-07-29` stay text. Refused,
with a position: duplicate keys, anchors and aliases, tags, several documents, numbers with leading zeros (`022` is 18
in YAML 1.1 and 22 in 1.2), deep nesting. Keys are always text.

A document is then JSON-shaped, and pydantic validates it in its strict JSON mode: text is never read as a number, nor 1
as true, while a list may become a tuple and text an enum. All problems of a file are reported at once.

    model = load(Path("waivers.yaml"), WaiverFile)                 # or FileError
    model, document = load_located(Path("waivers.yaml"), WaiverFile)
    raise FileError([document.problem(("waivers", 3, "id"), "no such requirement", hint)])
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any, ClassVar, TypeVar

import pydantic
import yaml
from pydantic.alias_generators import to_camel

from conformance.errors import UsageError
from conformance.validation import Loc, explain

MAX_DEPTH = 64

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is built in: ten times faster


class FileModel(pydantic.BaseModel):
    """Base of what a YAML file holds: frozen, unknown keys refused, keys in camelCase for names in snake_case."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
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
        path = f"{self.path}: " if self.path else ""
        return f"{where}{path}{self.message}" + (f" ({self.hint})" if self.hint else "")


class FileError(UsageError):
    """A file can't be used. `problems` are all that is wrong with it, in the order of the file."""

    code: ClassVar[str] = "usage.file"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed file: plain data, and the position (line, column from 1) of each value and key."""

    name: str
    data: Any
    values: Mapping[Loc, tuple[int, int]] = field(repr=False)
    keys: Mapping[Loc, tuple[int, int]] = field(repr=False)

    def position(self, loc: Sequence[str | int], *, key: bool = False) -> tuple[int, int]:
        """Where `loc` is: its value or, with `key`, its key. A place that does not exist gives its nearest ancestor."""
        exact = tuple(loc)
        if key and exact in self.keys:
            return self.keys[exact]
        while exact not in self.values and exact:
            exact = exact[:-1]
        return self.values.get(exact, (1, 1))

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


def dump(data: Any) -> str:
    """Plain data (mappings with text keys, lists, text, numbers, booleans, None) as YAML that `parse` reads back."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def path_text(loc: Sequence[str | int]) -> str:
    """`("steps", 0, "expect")` as `steps[0].expect`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def beyond(problems: Sequence[Problem], later: Iterable[Problem]) -> list[Problem]:
    """Those of the `later` problems that do not just follow from `problems` with the same or an outer place."""
    return [one for one in later if not any(_inside(one.path, known.path) for known in problems)]


def _inside(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith((f"{ancestor}.", f"{ancestor}["))


# -- text to document --------------------------------------------------------------------------------------------------

_SCALARS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"(?:null|Null|NULL|~|)\Z"), lambda _: None),
    (re.compile(r"(?:true|True|TRUE)\Z"), lambda _: True),
    (re.compile(r"(?:false|False|FALSE)\Z"), lambda _: False),
    (re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), int),
    (re.compile(r"0o[0-7]+\Z"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]+\Z"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"), float),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(?:nan|NaN|NAN)\Z"), lambda _: float("nan")),
)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?\Z")
_MAY_BE_TYPED = frozenset("-+.0123456789~nNtTfF")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and in quotes all text that would be a number or such, or has line ends of Unicode's."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    typed = _LEADING_ZERO.match(text) or any(pattern.match(text) for pattern, _ in _SCALARS)
    odd = any(character in text for character in "\x85\u2028\u2029\ufeff")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if typed or odd else None)


_Dumper.add_representer(str, _represent_text)


class _Refused(Exception):  # noqa: N818 - control flow, never seen outside
    """The document can't be read any further."""


class _Composer:
    """Turns the parser's events into plain data with positions, and collects what is refused."""

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self.name = name
        self.events = events
        self.values: dict[Loc, tuple[int, int]] = {}
        self.keys: dict[Loc, tuple[int, int]] = {}
        self.problems: list[Problem] = []

    def refuse(self, mark: Any, loc: Loc, message: str, hint: str = "") -> None:
        self.problems.append(
            Problem(
                file=self.name,
                line=mark.line + 1,
                column=mark.column + 1,
                path=path_text(loc),
                message=message,
                hint=hint,
            )
        )

    def document(self) -> Any:
        data: Any = None
        seen = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    self.refuse(event.start_mark, (), "a second document begins here", "keep one document in a file")
                    raise _Refused
                seen = True
            elif not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentEndEvent, yaml.StreamEndEvent)):
                data = self.node(event, ())
        return data

    def node(self, event: Any, loc: Loc) -> Any:
        mark = event.start_mark
        self.values[loc] = (mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.AliasEvent):
            self.refuse(mark, loc, f"alias *{event.anchor} is not allowed", "write the value out")
            return None
        if event.anchor is not None:
            self.refuse(mark, loc, f"anchor &{event.anchor} is not allowed", "write the value out where it is needed")
        if event.tag is not None:
            self.refuse(mark, loc, f"tag {event.tag} is not allowed", "types are given by the value itself")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, loc)
        if len(loc) >= MAX_DEPTH:
            self.refuse(mark, loc, f"nested deeper than {MAX_DEPTH} levels")
            raise _Refused
        return self.mapping(loc) if isinstance(event, yaml.MappingStartEvent) else self.sequence(loc)

    def sequence(self, loc: Loc) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, (*loc, len(items))))
        return items

    def mapping(self, loc: Loc) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            mark = event.start_mark
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(mark, loc, "a key must be text")
                _Composer(self.name, self.events).node(event, loc)
                _Composer(self.name, self.events).node(next(self.events), loc)
                continue
            key = event.value
            place = (*loc, key)
            if event.anchor is not None or event.tag is not None:
                self.refuse(mark, place, "anchors and tags are not allowed on keys")
            if key in pairs:
                first = self.keys[place]
                self.refuse(mark, place, f"key {key!r} is here twice", f"the first is at {first[0]}:{first[1]}")
                _Composer(self.name, self.events).node(next(self.events), place)
                continue
            self.keys[place] = (mark.line + 1, mark.column + 1)
            if _SURROGATE.search(key):
                self.refuse(mark, loc, "key is not valid Unicode text")
            pairs[key] = self.node(next(self.events), place)
        return pairs

    def scalar(self, event: Any, loc: Loc) -> Any:
        text: str = event.value
        if _SURROGATE.search(text):
            self.refuse(event.start_mark, loc, "text is not valid Unicode")
            return None
        if event.style or (text and text[0] not in _MAY_BE_TYPED):  # quoted or block text, or no literal begins so
            return text
        if _LEADING_ZERO.match(text):
            number = text.lstrip("+-").lstrip("0") or "0"
            self.refuse(
                event.start_mark, loc, f"{text} has a leading zero", f'write {number} as a number or "{text}" as text'
            )
            return None
        for pattern, convert in _SCALARS:
            if pattern.match(text):
                try:
                    return convert(text)
                except ValueError:  # Python refuses integers of more than 4300 digits
                    self.refuse(event.start_mark, loc, "the number is too long")
                    return None
        return text


def examine(source: Traversable | str, *, name: str | None = None) -> tuple[Document, list[Problem]]:
    """A file or text as far as it can be read, and what is refused in it. Raises FileError if it is not YAML at all."""
    name = name or ("<text>" if isinstance(source, str) else str(source))
    text = source if isinstance(source, str) else _read(source, name)
    composer = _Composer(name, iter(()))
    data: Any = None
    try:
        composer.events = iter(yaml.parse(text, Loader=_Loader))
        data = composer.document()
    except _Refused:
        raise FileError(composer.problems) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = " ".join(part for part in (error.context, error.problem) if part) or "not YAML"
        lines = text.splitlines()
        tabbed = line <= len(lines) and "\t" in lines[line - 1][: column + 1]
        hint = "indent with spaces, not with tabs" if tabbed else ""
        syntax = Problem(file=name, line=line, column=column, path="", message=what, hint=hint)
        raise FileError([*composer.problems, syntax]) from None
    except (yaml.YAMLError, UnicodeEncodeError):
        line, column = _first_unprintable(text)
        odd = Problem(file=name, line=line, column=column, path="", message="a character that YAML does not allow")
        raise FileError([*composer.problems, odd]) from None
    return Document(name=name, data=data, values=composer.values, keys=composer.keys), composer.problems


def _read(source: Traversable, name: str) -> str:
    try:
        raw = source.read_bytes()
    except OSError as error:
        message = f"can't be read: {error.strerror or error}"
        raise FileError([Problem(file=name, line=0, column=0, path="", message=message)]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        hint = "save the file as UTF-8"
        raise FileError([Problem(file=name, line=line, column=column, path="", message=message, hint=hint)]) from None


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _first_unprintable(text: str) -> tuple[int, int]:
    found = _UNPRINTABLE.search(text)
    before = text[: found.start()] if found else ""
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


__all__ = [
    "Document",
    "FileError",
    "FileModel",
    "Loc",
    "Problem",
    "beyond",
    "dump",
    "examine",
    "load",
    "load_located",
    "parse",
    "path_text",
]
