"""Files of judge cases: conversations, each with the findings that the judges must give.

    let: {A: "10.0.0.1:8000"}           # variables of all cases: $A
    pool: {a: $A}                       # of all cases, also the context: version, role, claims, gateway, …
    cases:
    - case: No destination in the header
      answers: [headers: {header: null, metadata: $A}, echo]
      finds: {EPP-DEST-01: fail}

`answers` alone stands for one exchange with the whole request, these answers, and the end of the stream; `steps` has
any conversation (see `scripted.notation`). `finds` has every finding that is neither `pass` nor `notApplicable`; of
those two it has the ones that matter, `absent` if there must be none. A finding is a verdict, a list of verdicts, or
`{verdict: …, actual: …, hint: …, exchange: …, at: …}` with texts that it must hold; after `!`, texts that it must not.

`rows` makes several cases of one: the first row names the columns, which are variables or keys of the case. `each` has
a list of values for a variable or key; each value is combined with each row.

`macros` of a file are steps with defaults for their variables: `{relayed: {with: {server: $A}, steps: […]}}` is used as
the step `relayed`, or `relayed: {server: $B}`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from conformance.evidence.episode import Context, Episode
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding, Verdict, worst
from scripted.notation import play, pods
from scripted.script import BODY, Script

_CONTEXT = {field.name for field in fields(Context)}
_CASE = _CONTEXT | {"case", "why", "let", "rows", "each", "pool", "exchange", "answers", "steps", "finds"}
_USED = {"pool", "exchange", "answers", "steps", "finds"}
_NEUTRAL = (Verdict.PASS, Verdict.NOT_APPLICABLE)
_VARIABLE = re.compile(r"\$(\w+)")


class CaseError(Exception):
    """A case that can't be read; it begins with file and line."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One conversation in one context. `fields` has no variables left."""

    title: str
    place: str
    fields: Mapping[str, Any]

    @property
    def script(self) -> Script:
        """The conversation."""
        given = self.fields
        script = Script()
        if given["pool"] is not None:
            script.pool(*pods(given["pool"]))
        opening = [{"exchange": given["exchange"]}] if "exchange" in given else []
        if "answers" in given:
            return play(script, [*(opening or ["exchange"]), "request", {"answers": given["answers"]}, "drained"])
        return play(script, [*opening, *given["steps"]])

    @property
    def context(self) -> Context:
        """What the judges know beside the conversation."""
        given = {key: value for key, value in self.fields.items() if key in _CONTEXT}
        return _context().validate_python({"version": "1.0.0", "scenario": "t"} | given)

    def check(self) -> None:
        """Raises `AssertionError`, with the place of the case, if the judges find anything else."""
        try:
            episode, context = Episode(id="scripted", entries=self.script.entries), self.context
            if unknown := [name for name in self.fields["finds"] if name not in _catalogue()]:
                raise ValueError(f"no requirement is called {', '.join(unknown)}")
        except Exception as problem:
            raise CaseError(f"{self.place}: {problem}") from problem
        found = judge(episode, context, _catalogue())
        problems = list(_differences(self.fields["finds"], found))
        problems += [
            f"{one}: of another role" for one in found if _catalogue().get(one.requirement).role != context.role
        ]
        assert not problems, "\n".join([f"{self.place}: {self.title}", *problems, "Findings:", *map(str, _told(found))])


def load(path: Path) -> list[Case]:
    """The cases of a file. Raises `CaseError`."""
    loader = _Loader(path.read_bytes())
    root = loader.get_single_node()
    file = {key.value: value for key, value in root.value}
    common = {key: loader.construct_object(value, deep=True) for key, value in file.items() if key != "cases"}
    found: list[Case] = []
    for node in file["cases"].value:
        place = f"{path.name}:{node.start_mark.line + 1}"
        given = loader.construct_object(node, deep=True)
        try:
            found += _cases(given, common, place)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise CaseError(f"{place}: {problem!r}") from problem
    return found


def _cases(given: Mapping[str, Any], common: Mapping[str, Any], place: str) -> Iterator[Case]:
    if unknown := given.keys() - _CASE:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    for number, cells in enumerate(_rows(given), 1):
        scope = {"BODY": BODY.decode()} | common.get("let", {}) | given.get("let", {}) | cells
        whole = _merged(common, given | {name: cell for name, cell in cells.items() if name in _CASE})
        used = {key: value for key, value in whole.items() if key in _CONTEXT | _USED}
        if ("answers" in whole) == ("steps" in whole):
            raise ValueError("either `answers` or `steps`")
        suffix = f" [{number}]" if cells else ""
        fields = {"finds": {}, "pool": None} | _Expansion(common.get("macros", {})).expand(used, scope)
        yield Case(title=given["case"] + suffix, place=place, fields=fields)


def _rows(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The variables of each case that is made of this one."""
    names, *rows = given.get("rows") or [[], []]
    each = given.get("each", {})
    for row in rows:
        for values in itertools.product(*each.values()):
            yield dict(zip([*names, *each], [*row, *values], strict=True))


def _merged(common: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a case over those of the file; of `gateway` and `claims` single ones."""
    both = {key: common[key] | given[key] for key in ("gateway", "claims") if key in common and given.get(key)}
    return {**common, **given, **both}


@dataclass(frozen=True)
class _Expansion:
    """Replaces variables by their values, and macros by their steps."""

    macros: Mapping[str, Mapping[str, Any]]

    def expand(self, value: Any, scope: Mapping[str, Any]) -> Any:
        match value:
            case str():
                if whole := _VARIABLE.fullmatch(value):
                    return self.expand(scope[whole[1]], scope)
                return _VARIABLE.sub(lambda found: str(self.expand(scope[found[1]], scope)), value)
            case Mapping():
                return {self.expand(key, scope): self.expand(item, scope) for key, item in value.items()}
            case list():
                return [self.item(item, scope) for item in value]
        return value

    def item(self, item: Any, scope: Mapping[str, Any]) -> Any:
        while isinstance(item, str) and (whole := _VARIABLE.fullmatch(item)):
            item = scope[whole[1]]
        name = next(iter(item)) if isinstance(item, Mapping) and len(item) == 1 else item
        if not isinstance(name, str) or name not in self.macros:
            return self.expand(item, scope)
        macro = self.macros[name]
        given = {} if item == name else self.expand(item[name], scope)
        return self.expand(macro["steps"], {**scope, **macro["with"], **given})


# -- findings ----------------------------------------------------------------------------------------------------------


def _differences(expected: Mapping[str, Any], found: tuple[Finding, ...]) -> Iterator[str]:
    by_name: dict[str, list[Finding]] = {}
    for finding in found:
        by_name.setdefault(finding.requirement, []).append(finding)
    for name in sorted(expected.keys() | by_name):
        all_given = [one.verdict.value for one in by_name.get(name, ())]
        given = [one for one in all_given if one not in _NEUTRAL]
        if (given and given != all_given) or all_given.count("pass") > 1:
            yield f"{name}: {all_given} found: a pass is given once, and not beside a violation"
        wanted = expected.get(name, [])
        details = wanted if isinstance(wanted, Mapping) else {}
        wanted = details.get("verdict", "pass" if details else wanted)
        if isinstance(wanted, str) and (wanted == "absent" or wanted in _NEUTRAL):
            given = [worst(map(Verdict, all_given)).value] if all_given else ["absent"]
        if given != (wanted if isinstance(wanted, list) else [wanted]):
            yield f"{name}: {wanted} expected, {given} found"
        elif details:
            yield from _text_differences(name, details, by_name[name])


def _text_differences(name: str, details: Mapping[str, Any], found: list[Finding]) -> Iterator[str]:
    for key, wanted in details.items():
        match key:
            case "verdict":
                continue
            case "actual" | "hint" | "expected":
                texts = [" · ".join(one.expected) if key == "expected" else getattr(one, key) for one in found]
                text = " · ".join(texts)
                for one in wanted if isinstance(wanted, list) else [wanted]:
                    if (one.removeprefix("!") in text) is one.startswith("!"):
                        yield f"{name}: {key} is {text!r}, expected {one!r}"
            case _:
                value = found[0].seq if key == "at" else getattr(found[0], key)
                if value != wanted:
                    yield f"{name}: {key} is {value!r}, expected {wanted!r}"


def _told(found: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in found if one.verdict not in _NEUTRAL]


# -- YAML --------------------------------------------------------------------------------------------------------------


class _Loader(yaml.CSafeLoader):
    """YAML with `!bytes "\\xff"` (Latin-1), and `!long [text, [text, times], …]` for text that repeats itself."""


def _bytes(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> bytes:
    return str(node.value).encode("latin-1")


def _long(loader: yaml.CSafeLoader, node: yaml.SequenceNode) -> str:
    parts = loader.construct_sequence(node, deep=True)
    return "".join(one if isinstance(one, str) else str(one[0]) * one[1] for one in parts)


_Loader.add_constructor("!bytes", _bytes)
_Loader.add_constructor("!long", _long)


@cache
def _context() -> TypeAdapter[Context]:
    return TypeAdapter(Context)


@cache
def _catalogue() -> Catalogue:
    return Catalogue.load()
