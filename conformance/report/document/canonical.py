"""The one form of a report that is hashed, and how a report is read back: strictly, as it comes from strangers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.printable import printable
from conformance.reading.bodies import not_json

MAX_REPORT_BYTES = 64 * 1024 * 1024
"""A larger file is refused unread."""

MAX_DEPTH = 100
"""Collections inside of each other, in YAML: its parser takes longer with each than with the one before."""


class ReportError(UsageError):
    """A file is not a report that can be read; the message names the file and what is wrong with it."""

    code = "usage.report"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(printable(message)[:2000], hint=hint)


def canonical(document: Any) -> bytes:
    """`document` as UTF-8 JSON with sorted keys and no blanks. Whole floats are written as integers."""
    text = json.dumps(
        _whole_numbers(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "surrogatepass")


def digest(document: Mapping[str, Any]) -> str:
    """`sha256:…` over the canonical form of a report without its own `digest`."""
    without = {name: value for name, value in document.items() if name != "digest"}
    return "sha256:" + hashlib.sha256(canonical(without)).hexdigest()


def read_document(path: Path) -> dict[str, Any]:
    """The JSON (or, by its suffix, YAML) object in a file, not yet checked against the schema.

    Keys given twice, NaN, YAML aliases, deep nesting and files over `MAX_REPORT_BYTES` are refused (`ReportError`).
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # opening a pipe would wait for a writer
            raise ReportError(f"{path}: not a regular file", hint="write to a file first, and name that")
        size = path.stat().st_size
        if size > MAX_REPORT_BYTES:
            raise ReportError(f"{path}: {size} bytes are more than a report has", hint="is it the evidence file?")
        text = path.read_bytes().decode()
        document = _yaml(text) if path.suffix in (".yaml", ".yml") else _json(text)
    except OSError as problem:
        raise ReportError(f"{path}: {problem.strerror or problem}", hint="give the path of a report.json") from problem
    except UnicodeDecodeError as problem:
        hint = "give the path of a report.json; evidence is read by `report verify` and `judge`"
        raise ReportError(f"{path}: not a report: it is no text in UTF-8", hint=hint) from problem
    except (ValueError, RecursionError) as problem:
        raise ReportError(f"{path}: not a report: {problem}", hint="give the path of a report.json") from problem
    if not isinstance(document, dict):
        raise ReportError(f"{path}: not a report: the file holds no object")
    return document


def _whole_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole_numbers(item) for name, item in value.items()}
        case list() | tuple():
            return [_whole_numbers(item) for item in value]
        case _:
            return value


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=not_json, parse_float=_finite)


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"the number {text[:40]} is too large")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        """Refuses what would let two readers see two documents."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [self.construct_object(key) for key, _ in node.value]
            if len(set(names)) != len(names):
                raise ValueError(f"line {node.start_mark.line + 1}: a key is there twice")
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("a report has no YAML aliases")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
        document = yaml.load(text, Loader=Loader)
        json.dumps(document, allow_nan=False)
        return document
    except (yaml.YAMLError, TypeError) as problem:
        raise ValueError(f"YAML: {problem}") from problem
