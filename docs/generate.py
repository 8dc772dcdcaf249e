"""Writes the pages of docs/reference from the code: `python docs/generate.py`, or `make docs`.

The repository's address is written into the files of `docs/address.py`.
With `--check` nothing is written, and the exit code is 1 if a page is not up to date.

    command-line.md   the commands of `conformance.cli`          requirements.md  the catalogue and its coverage
    profile.md        `conformance.targets.profile`              scenario.md      `conformance.scenario.schema`
    gateway-profile.md, model-server-profile.md  `conformance.targets.gateway`, `conformance.targets.model_server`
    coverage.md       `docs/coverage_page.py`
    upstream-profile.md  `docs/upstream_page.py`
    report.md         `conformance.report.document.model`
    waivers.md        `conformance.report.document.waivers`
    load.md           `conformance.load.mix`
    pytest.md         `conformance.pytest_plugin`
    misbehaving-targets.md  `tests/support/hostile`
    faults.md, gateway-faults.md, model-server-faults.md  what the deviations declare; what was observed is the
                      selftest's part of the page
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import address
import pydantic
import typer
from coverage_page import coverage as coverage_page
from page import page, table
from pydantic.alias_generators import to_camel
from upstream_page import proposal

from conformance.cli.app import app
from conformance.cli.list import tested
from conformance.described import field_texts
from conformance.load.mix import LoadFile
from conformance.pytest_plugin import pytest_addoption
from conformance.report.document.model import Report
from conformance.report.document.waivers import WaiverFile
from conformance.requirements.catalogue import Catalogue, Requirement
from conformance.requirements.drift import coverage
from conformance.requirements.schema import VERSIONS
from conformance.scenario.loader import Instance, load
from conformance.scenario.schema import ScenarioFile
from conformance.selftest.table import page as faults
from conformance.targets.gateway import GatewayProfile
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.profile import Profile

REFERENCE = Path(__file__).parent / "reference"


def pages() -> Mapping[str, str]:
    """The text of every generated page, by file name."""
    catalogue = Catalogue.load()
    return {
        "command-line.md": command_line(),
        "profile.md": described(
            "Profile",
            "A YAML file that says what a target is, how to start, reach and feed it, and what it claims. "
            "Needed are `discovery`, and `start` or `address`. [How to write one](../how-to/profile.md).",
            Profile,
        ),
        "gateway-profile.md": described(
            "Profile of a gateway",
            "A YAML file that says what a gateway under test is, how to start and reach it, where it expects its EPPs, "
            "and how it was configured. Needed are `role`, and `start` or `url` with `backends`. "
            "[How to write one](../how-to/gateway.md).",
            GatewayProfile,
        ),
        "model-server-profile.md": described(
            "Profile of a model server",
            "A YAML file that says what a model server under test is, how to start and reach it, and what its metrics "
            "are called. Needed are `role`, and `start` or `url`. [How to write one](../how-to/model-server.md).",
            ModelServerProfile,
        ),
        "scenario.md": described(
            "Scenario files",
            "What is sent, and what must come back. [How to write one](../how-to/scenario.md). "
            "`epp-conformance list --schema` prints the JSON Schema for editors.",
            ScenarioFile,
        ),
        "load.md": described(
            "Load files",
            "What `epp-conformance load` asks, how fast, and what becomes of the pool meanwhile. [How to write "
            "one](../how-to/load.md#the-file).",
            LoadFile,
        ),
        "waivers.md": described(
            "Waiver files",
            "Failures that are known until a date. They change the exit code, never a verdict or a result.",
            WaiverFile,
        ),
        "report.md": described(
            "Report",
            "`report.json`, from which all other forms are made. [How to read it](../how-to/report.md). "
            "`epp-conformance report schema` prints its JSON Schema.",
            Report,
        ),
        "requirements.md": requirements(catalogue, load(catalogue)),
        "upstream-profile.md": proposal(catalogue, load(catalogue)),
        "coverage.md": coverage_page(catalogue, load(catalogue)),
        "pytest.md": pytest_options(),
        "misbehaving-targets.md": misbehaving_targets(),
        "faults.md": faults(catalogue, "epp", REFERENCE / "faults.md"),
        "gateway-faults.md": faults(catalogue, "data-plane", REFERENCE / "gateway-faults.md"),
        "model-server-faults.md": faults(catalogue, "model-server", REFERENCE / "model-server-faults.md"),
    }


def misbehaving_targets() -> str:
    """The targets of the tests that misbehave."""
    sys.path.insert(0, str(REFERENCE.parents[1] / "tests" / "support"))
    from hostile import TARGETS

    parties = dict.fromkeys(one.party for one in TARGETS)
    return page(
        "Targets that misbehave",
        f"The {len(TARGETS)} targets of `tests/support/hostile`, each of which a test runs: with a selection of "
        "scenarios, in bounded time and memory. The run ends with this exit code and a report that `report verify` "
        "accepts, and leaves no process and no folder. A selection gives no full verdict: a target that does nothing "
        "wrong on the wire has exit code 4, too. [What the suite promises](../explanation/misbehaving-targets.md).",
        *(
            f"## {party.capitalize()}s\n\n"
            + table(
                ("target", "what it does", "exit code"),
                ((f"`{one.name}`", one.does, str(one.code)) for one in TARGETS if one.party == party),
            )
            for party in parties
        ),
    )


# -- the command line --------------------------------------------------------------------------------------------------


def command_line() -> str:
    """The page of every command with its arguments and flags."""
    root = typer.main.get_command(app)
    exits = table(
        ("exit code", "meaning"),
        [
            ("0", "conformant"),
            ("1", "not conformant"),
            ("2", "wrong use: a flag, a name or a file"),
            ("3", "harness error: the suite or the machine could not do its part"),
            ("4", "incomplete: something that must be known could not be, or the target was not reached"),
        ],
    )
    everywhere = (
        "`--version`, `--install-completion` and `--show-completion` stand before any command; `--debug`, anywhere, "
        "shows the traceback of an error."
    )
    return page("Command line", _help(root), exits, everywhere, *_commands(root, "epp-conformance"))


def _commands(command: Any, name: str) -> Iterator[str]:
    for child in getattr(command, "commands", {}).values():
        path = f"{name} {child.name}"
        yield f"## `{path}`\n\n{_help(child)}"
        rows = [_parameter(one) for one in child.params if one.name != "help" and not getattr(one, "hidden", False)]
        if rows:
            yield table(("", "meaning", "default"), rows)
        yield from _commands(child, path)


def _help(command: Any) -> str:
    """A command's help. Paragraphs that are command lines become code."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        f"```sh\n{text}\n```" if text.startswith("epp-conformance ") else " ".join(text.split()) for text in paragraphs
    )


def _parameter(parameter: Any) -> tuple[str, str, str]:
    metavar = parameter.metavar or ("" if getattr(parameter, "is_flag", False) else parameter.name.upper())
    if isinstance(parameter.default, enum.Enum):
        metavar = "|".join(choice.value for choice in type(parameter.default))
    if parameter.param_type_name == "argument":
        names = metavar
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts]) + (f" {metavar}" if metavar else "")
    default = "" if parameter.default in (None, False, ()) or callable(parameter.default) else _shown(parameter.default)
    return f"`{names}`", parameter.help or "", default


def pytest_options() -> str:
    """The page of the pytest plugin's options."""
    options: list[tuple[str, str]] = []

    class Group:
        def addoption(self, name: str, metavar: str = "", help: str = "", **_: Any) -> None:  # noqa: A002
            options.append((f"`{name} {metavar}`".replace(" `", "`"), help))

    class Parser:
        def getgroup(self, *_: str) -> Group:
            return Group()

    pytest_addoption(typing.cast("Any", Parser()))
    introduction = (
        "What pytest has when the suite is installed. Nothing happens, and nothing is imported, until `--epp` or "
        "`--epp-profile` names a target. [How to use it](../how-to/pytest.md)."
    )
    return page("pytest options", introduction, table(("option", "meaning"), options))


# -- files -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Key:
    """A key of an object: `default` is empty if there is none to show."""

    name: str
    annotation: Any
    default: str
    meaning: str


def described(title: str, introduction: str, model: type) -> str:
    """The page of a file: one table for the file itself and for each kind of object in it."""
    parts = []
    for one in reachable(model):
        name = "The file" if one is model else one.__name__
        rows = [(f"`{key.name}`", _type(key.annotation), key.default, key.meaning) for key in keys(one)]
        text = " ".join(inspect.cleandoc(one.__doc__ or "").split())
        parts.append(f"## {name}\n\n{text}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}")
    return page(title, introduction, *parts)


def reachable(model: type) -> list[type]:
    """The model and every object that its keys hold, in the order in which a reader meets them."""
    found: list[type] = []
    waiting = [model]
    while waiting:
        one = waiting.pop(0)
        if one not in found:
            found.append(one)
            waiting += [inner for key in keys(one) for inner in _objects(key.annotation)]
    return found


def _objects(annotation: Any) -> Iterator[type]:
    if _is_object(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _objects(argument)


def _is_object(annotation: Any) -> bool:
    model = inspect.isclass(annotation) and issubclass(annotation, pydantic.BaseModel)
    return model or (inspect.isclass(annotation) and dataclasses.is_dataclass(annotation))


def keys(model: Any) -> list[Key]:
    """The keys of a pydantic model, or of a dataclass that stands in one."""
    types_of = typing.get_type_hints(model, include_extras=True)
    comments = field_texts(model)
    if dataclasses.is_dataclass(model):
        return [
            Key(
                name=to_camel(one.name),
                annotation=types_of[one.name],
                default="needed" if one.default is one.default_factory else _default(one.default),
                meaning=comments.get(one.name, ""),
            )
            for one in dataclasses.fields(model)
        ]
    return [
        Key(
            name=field.alias or name,
            annotation=types_of[name],
            default="needed" if field.is_required() else _default(field.default),
            meaning="; ".join(filter(None, (field.description or comments.get(name), _bounds(field.metadata)))),
        )
        for name, field in model.model_fields.items()
    ]


def _type(annotation: Any) -> str:
    """A type in words: `list of text`, `[Pod](#pod)`, `full-duplex` or `buffered`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        written = next((one.func for one in arguments[1:] if isinstance(one, pydantic.PlainSerializer)), None)
        return _type(typing.get_type_hints(written)["return"] if written else arguments[0])
    if origin is typing.Literal:
        return " \\| ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments if one is not types.NoneType)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {_type(arguments[0])}"
        return f"list of {len(arguments)}: {', '.join(map(_type, arguments))}"
    if origin is not None and issubclass(origin, Mapping):
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    if inspect.isclass(annotation):
        if issubclass(annotation, enum.Enum):
            return " \\| ".join(f"`{one.value}`" for one in annotation)
        if _is_object(annotation):
            return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}
    return words.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _bounds(metadata: Iterable[Any]) -> str:
    words = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [f"{sign} {getattr(one, name)}" for one in metadata for name, sign in words.items() if hasattr(one, name)]
    return " and ".join(found)


def _default(value: Any) -> str:
    return _shown(value) if isinstance(value, str | int | float | tuple | dict) else ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(_shown(one) for one in value)
    if value in ("", {}):
        return ""
    return f"`{getattr(value, 'value', value)}`".replace("\n", "\\n")


# -- the catalogue -----------------------------------------------------------------------------------------------------


def requirements(catalogue: Catalogue, instances: Sequence[Instance]) -> str:
    """The page of the catalogue: how much of each document is tested, and every requirement."""
    done = tested(tuple(instances), catalogue)
    documents = []
    for name in catalogue.documents:
        one = coverage(name, done, catalogue)
        numbers = (one.normative, len(one.tested), len(one.pending), len(one.untestable), len(one.no_requirement))
        documents.append((name, one.specification.date, *map(str, numbers)))
    head = ("document", "date", "normative sentences", "tested", "not yet", "can't be", "no requirement")
    parts = [f"## Coverage of the documents\n\n{table(head, documents)}"]
    for area, title in catalogue.areas.items():
        entries = [one for one in catalogue if one.area == area]
        rows = [(f"`{one.id}`", one.level, _versions(one), _requirement(one), _how(one, done)) for one in entries]
        columns = ("id", "level", "versions", "statement", "tested")
        parts.append(f"## {title}\n\nRole {entries[0].role}, kind {entries[0].kind}.\n\n{table(columns, rows)}")
    return page(
        "Requirements",
        f"Catalogue {catalogue.version}: {len(catalogue)} requirements, in our own words. "
        "`epp-conformance explain ID` says more of each: how it is observed, and what usually breaks it.",
        *parts,
    )


def _requirement(one: Requirement) -> str:
    return f"**{one.title}.** {one.statement}" + (f" *Read as:* {one.reading}" if one.reading else "")


def _versions(one: Requirement) -> str:
    """`0.3.0 to next`, and what a violation counts for where that is not `fail`."""
    names = list(one.effects)
    at = [VERSIONS.index(name) for name in VERSIONS if name in names]
    whole = len(at) > 1 and len(at) == at[-1] - at[0] + 1
    text = f"{VERSIONS[at[0]]} to {VERSIONS[at[-1]]}" if whole else ", ".join(names)
    weaker = {effect for effect in one.effects.values() if effect != "fail"}
    return f"{text} ({', '.join(sorted(weaker))})" if weaker else text


def _how(one: Requirement, done: set[str]) -> str:
    if one.untestable:
        return f"can't be: {one.untestable}"
    if one.pending:
        return f"not yet: {one.pending}"
    if one.universal:
        return "every exchange"
    return "scenarios" if one.id in done else "no scenario"


# -- pages -------------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` compare them. Returns the exit code."""
    check = "--check" in arguments
    for path, text in (outdated := outdated_pages()).items():
        print(path, "is not up to date: make docs" if check else "is written")
        _ = check or path.write_text(text, encoding="utf-8")
    return int(check and bool(outdated))


def outdated_pages() -> dict[Path, str]:
    """The new text of each page, and of each file with the repository's address, that is not up to date."""
    wanted = {REFERENCE / name: text for name, text in pages().items()} | dict(address.pages())
    return {path: text for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
