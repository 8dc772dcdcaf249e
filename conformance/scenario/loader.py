"""Loads scenario files and expands each scenario's matrix into the instances that are run.

The text of a file is checked three times, always with file, line and column: its YAML, each instance against the
schema, and what the schema can't see (requirements that do not exist, ids used twice, references to no pod). All that
is wrong is said at once.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from conformance.errors import did_you_mean
from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.scenario import references
from conformance.scenario.covering import covering, left_of
from conformance.scenario.pool import STANDARD_PODS
from conformance.scenario.schema import ACTIONS, ACTIONS_OF, Role, Scenario, ScenarioFile
from conformance.scenario.unread import unread
from conformance.source_cache import kept
from conformance.strict_yaml import Document, FileError, FileModel, Problem, beyond, examine

YAML = (".yaml", ".yml")

MOST_INSTANCES = 500
"""Instances of one scenario, at most."""
MOST_COMBINATIONS = 20_000
"""Combinations of a matrix of which `combine: pairs` or `each` takes some, at most."""
STRENGTH = {"pairs": 2, "each": 1}
"""How many variables are crossed, by what `combine` says; otherwise all."""

FEW = 3
"""Ids of the suite's own scenarios that files take by a slip; files with more are these scenarios."""

_UNIQUE = "ids are unique over all scenario files"

_REFERRING = (
    *("subset", "subsets", "hint", "metadata", "headers", "within", "absent"),
    *("pick", "picks", "fallback", "servedBy"),
)
"""Keys whose strings refer to endpoints. Elsewhere braces are just text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One scenario with its variables bound: what is run, judged and reported. `id` is stable across runs."""

    id: str
    scenario: Scenario
    section: str
    file: str
    line: int
    role: Role = "epp"

    @property
    def group(self) -> str:
        """The scenario's id without its variables."""
        return self.scenario.id


def built_in() -> Traversable:
    """The folder of the scenarios that come with the suite: inside the wheel, or at the root of a checkout."""
    inside = files("conformance") / "scenarios"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "scenarios"


def load(catalogue: Catalogue, extra: Sequence[Path] = ()) -> tuple[Instance, ...]:
    """Every instance of the built-in scenarios and of the files or folders in `extra`, in order.
    Raises `FileError` with every problem found in all of the files, and for a folder that has none.
    """
    ours, seen = _shipped() if catalogue is Catalogue.load() else _load_built_in(catalogue)
    if not extra:
        return ours
    named = [(one, str(one)) for path in extra for one in given_files(path)]
    try:
        return (*ours, *_load(named, catalogue, dict(seen)))
    except FileError as error:
        raise FileError(_folded(error.problems, set(seen.values()))) from None


def built_in_files() -> Mapping[Path, str]:
    """Where the files of the built-in scenarios are on this machine, and what each is called in a report."""
    return {Path(str(source)).resolve(): f"scenarios/{source.name}" for source in _yaml_files(built_in())}


def _folded(problems: Sequence[Problem], built_in_places: Container[str]) -> Iterable[Problem]:
    """The problems, but of the suite's own files and of copies one that names the first id, and not one for each."""
    taken = [one for one in problems if one.hint == _UNIQUE and one.message.rpartition(" ")[2] in built_in_places]
    if len(taken) <= FEW:
        return problems
    message = f"{taken[0].message}, and so are {len(taken) - 1} more: these are the suite's own scenarios"
    hint = "they are always there: leave the files out, or give copies other ids"
    return [dataclasses.replace(taken[0], message=message, hint=hint), *(one for one in problems if one not in taken)]


@functools.cache
def _shipped() -> tuple[tuple[Instance, ...], Mapping[str, str]]:
    catalogue = Catalogue.load()
    sources = (*_yaml_files(built_in()), *_yaml_files(files("conformance.requirements")))
    return kept("scenarios", sources, lambda: _load_built_in(catalogue))


def _load_built_in(catalogue: Catalogue) -> tuple[tuple[Instance, ...], Mapping[str, str]]:
    """The built-in instances, and the place of each scenario's id."""
    seen: dict[str, str] = {}
    named = [(source, f"scenarios/{source.name}") for source in _yaml_files(built_in())]  # the same on every machine
    return _load(named, catalogue, seen), seen


def _load(named: Iterable[tuple[Traversable, str]], catalogue: Catalogue, seen: dict[str, str]) -> tuple[Instance, ...]:
    instances: list[Instance] = []
    problems: list[Problem] = []
    for source, name in named:
        try:
            document, refused = examine(source, name=name)
        except FileError as error:
            problems += error.problems
            continue
        found, wrong = _read(document, catalogue, seen)
        instances += found
        problems += [*refused, *beyond(refused, wrong)]
    if problems:
        raise FileError(problems)
    return tuple(instances)


def _yaml_files(folder: Traversable) -> Iterable[Traversable]:
    return sorted((item for item in folder.iterdir() if item.name.endswith(YAML)), key=lambda item: item.name)


def given_files(path: Path) -> Iterable[Path]:
    """A file, or all of a folder and of those in it, but for hidden ones. A folder without any is a mistake: what was
    to be tested would not be."""
    if not path.is_dir():
        return [path]
    inside = [item for item in path.rglob("*") if item.name.endswith(YAML) and not item.is_dir()]
    inside = [item for item in inside if not any(part.startswith(".") for part in item.relative_to(path).parts)]
    if not inside:
        message = "there is no scenario file in this folder"
        raise FileError([Problem(file=str(path), line=0, column=0, path="", message=message, hint="they end in .yaml")])
    return sorted(inside)


def _read(document: Document, catalogue: Catalogue, seen: dict[str, str]) -> tuple[list[Instance], list[Problem]]:
    """The instances of one file, and all that is wrong with it. `seen` maps every id to its place, and is added to."""
    raw = document.data.get("scenarios") if isinstance(document.data, Mapping) else None
    if not isinstance(raw, list):
        return [], _refused(document, ScenarioFile)
    instances: list[Instance] = []
    problems = _refused(dataclasses.replace(document, data={**document.data, "scenarios": []}), ScenarioFile)
    for index, data in enumerate(raw):
        loc = ("scenarios", index)
        if not isinstance(data, Mapping):
            message = "a scenario is a mapping with `id`, `title`, `requirements`, `steps`"
            problems.append(document.problem(loc, message))
            continue
        part = document.part(loc, data)
        found, wrong = _expand(document, part, index)
        instances += found
        problems += [*wrong, *beyond(wrong, _semantic(part, _role(document), catalogue, seen))]
    return instances, problems


def _refused(document: Document, model: type[FileModel]) -> list[Problem]:
    """What a model has against a document."""
    try:
        document.validate(model)
    except FileError as error:
        return list(error.problems)
    return []


def _role(document: Document) -> Role:
    role = document.data.get("role")
    return role if isinstance(role, str) and role in ACTIONS_OF else "epp"  # type: ignore[return-value]


def _expand(document: Document, part: Document, index: int) -> tuple[list[Instance], list[Problem]]:
    """The instances of one scenario, or what the schema has against it."""
    found: list[Instance] = []
    for variables in _combinations(part.data):
        bound = dataclasses.replace(part, data=_bind(part.data, variables))
        try:
            scenario = bound.validate(Scenario)
        except FileError as error:
            return [], list(error.problems)
        if ignored := list(unread(bound)):
            return [], ignored
        suffix = ",".join(f"{name}={_label(value)}" for name, value in variables.items())
        found.append(
            Instance(
                id=f"{scenario.id}[{suffix}]" if suffix else scenario.id,
                scenario=scenario,
                section=str(document.data.get("section", "")),
                role=_role(document),
                file=document.name,
                line=document.position(("scenarios", index))[0],
            )
        )
    return found, []


def _combinations(raw: Mapping[str, Any], combine: object = None) -> list[dict[str, Any]]:
    """The combinations that a scenario asks for, or those that `combine` would take."""
    matrix = raw.get("matrix")
    if not isinstance(matrix, Mapping) or not all(isinstance(values, list) and values for values in matrix.values()):
        return [{}]  # no matrix, or a malformed one, which the schema will refuse
    if _too_many(raw):
        return []
    without = raw.get("without", [])
    if not isinstance(without, list) or not all(_is_combination(one) for one in without):
        return [{}]
    return rows(matrix, without, combine or raw.get("combine"))


def rows(
    matrix: Mapping[str, Sequence[Any]], without: Sequence[Mapping[str, Sequence[Any]]], combine: object = "all"
) -> list[dict[str, Any]]:
    """The combinations of `matrix` that are not in `without`: all, or those that `combine` takes (`pairs`, `each`)."""
    found = left_of(matrix, without)
    if combine in STRENGTH:
        found = covering(found, STRENGTH[combine])
    return [{name: matrix[name][index] for name, index in zip(matrix, row, strict=True)} for row in found]


def _is_combination(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(one, list) for one in value.values())


def _too_many(raw: Mapping[str, Any]) -> str:
    """Why the matrix is too large; empty if it is not."""
    count = math.prod(len(values) for values in raw["matrix"].values() if isinstance(values, list))
    most = MOST_COMBINATIONS if raw.get("combine") in STRENGTH else MOST_INSTANCES
    return f"the matrix has {count} combinations, and at most {most} are taken" if count > most else ""


def _bind(raw: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with its variables replaced. A variable that names a pod becomes a reference to that pod."""
    pods = _pod_names(raw)

    def value_of(match: re.Match[str]) -> Any:
        if match["name"] not in variables:
            return match[0]
        value = variables[match["name"]]
        return match[0].replace(match["name"], value, 1) if isinstance(value, str) and value in pods else value

    kept = ("matrix", "without")
    return {key: item if key in kept else references.substitute(item, value_of) for key, item in raw.items()}


def _label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _pod_names(raw: Mapping[str, Any]) -> set[str]:
    """The pods that a scenario has at any time, and `nobody`."""
    pool = raw.get("pool")
    listed = list(pool["pods"]) if isinstance(pool, Mapping) and isinstance(pool.get("pods"), list) else []
    steps = raw.get("steps")
    for step in steps if isinstance(steps, list) else ():
        change = step.get("pool") if isinstance(step, Mapping) else None
        if isinstance(change, Mapping) and isinstance(change.get("add"), list):
            listed += change["add"]
    found = {str(pod["name"]) for pod in listed if isinstance(pod, Mapping) and "name" in pod}
    if not (isinstance(pool, Mapping) and "pods" in pool):
        found |= {pod.name for pod in STANDARD_PODS}
    return found | {references.NOBODY}


def _semantic(part: Document, role: Role, catalogue: Catalogue, seen: dict[str, str]) -> Iterator[Problem]:
    """What the schema can't see, read off the text: it is found in a scenario that the schema refuses too."""
    raw = part.data
    yield from _requirements(part, role, catalogue)
    for number, version in _texts(raw.get("versions")):
        if version not in VERSIONS:
            hint = did_you_mean(version, VERSIONS)
            yield part.problem(("versions", number), f"there is no version {version!r}", hint)
    for _, name in _texts([raw.get("id"), *(raw.get("aliases") if isinstance(raw.get("aliases"), list) else ())]):
        if name in seen:
            yield part.problem(("id",), f"the id {name!r} is taken by {seen[name]}", _UNIQUE)
        seen[name] = f"{part.name}:{part.position(())[0]}"
    yield from _matrix(part)
    yield from _steps(part, role)
    pods = _pod_names(raw)
    variables = set(raw["matrix"]) if isinstance(raw.get("matrix"), Mapping) else set()
    for place, name in references.names({"steps": raw.get("steps")}):
        refers = any(key in _REFERRING for key in place)
        if refers and name not in pods and name not in variables:
            hint = did_you_mean(name, pods | variables)
            yield part.problem(place, f"{{{name}}} is neither a pod of this scenario nor a variable", hint)


def _requirements(part: Document, role: Role, catalogue: Catalogue) -> Iterator[Problem]:
    for number, requirement in _texts(part.data.get("requirements")):
        if requirement not in catalogue:
            hint = did_you_mean(requirement, catalogue.requirements)
            yield part.problem(("requirements", number), f"there is no requirement {requirement!r}", hint)
        elif (own := catalogue.get(requirement).role) != role:
            yield part.problem(
                ("requirements", number),
                f"{requirement} is a requirement of role {own}, and this file's scenarios test role {role}",
                f"say `role: {own}` at the head of the file" if own in ACTIONS_OF else "",
            )


def _matrix(part: Document) -> Iterator[Problem]:
    """What is wrong with the variables: each needs a unique name, different values and a use."""
    matrix = part.data.get("matrix")
    if not isinstance(matrix, Mapping):
        return
    if not matrix:
        yield part.problem(("matrix",), "a matrix has at least one variable", "leave it out", key=True)
    if message := _too_many(part.data):
        yield part.problem(("matrix",), message, "split the scenario, or leave values out", key=True)
    rest = {key: one for key, one in part.data.items() if key not in ("matrix", "without")}
    used, pods = {name for _, name in references.names(rest)}, _pod_names(rest)
    for name, values in matrix.items():
        wrong, hint = "", ""
        if not references.REFERENCE.fullmatch(f"{{{name}}}"):
            wrong, hint = f"{name!r} is no name of a variable", "it has small letters, digits and -, a letter first"
        elif name in pods:
            wrong, hint = f"the variable {name} has the name of a pod", f"{{{name}}} could mean either: rename one"
        elif name not in used:
            wrong, hint = f"nothing uses the variable {name}", did_you_mean(name, used - pods)
        elif values == []:
            wrong, hint = f"the variable {name} has no values", "then there is nothing to run"
        elif isinstance(values, list) and len({_label(one) for one in values}) < len(values):
            wrong, hint = f"a value of {name} is there twice", "the ids of both instances would be the same"
        if wrong:
            yield part.problem(("matrix", name), wrong, hint, key=True)
    yield from _without(part, matrix)


def _without(part: Document, matrix: Mapping[str, Any]) -> Iterator[Problem]:
    """Combinations left out that the matrix does not have: they would leave nothing out, unnoticed."""
    left_out = part.data.get("without")
    for number, one in enumerate(left_out if isinstance(left_out, list) else ()):
        for name, values in one.items() if isinstance(one, Mapping) else ():
            if name not in matrix:
                message, hint = f"the matrix has no variable {name}", did_you_mean(name, set(matrix))
                yield part.problem(("without", number, name), message, hint, key=True)
            for place, value in enumerate(values if isinstance(values, list) else ()):
                if isinstance(matrix.get(name), list) and value not in matrix[name]:
                    message = f"the variable {name} has no value {_label(value)}"
                    yield part.problem(("without", number, name, place), message, "it would leave nothing out")
    if left_out and not _too_many(part.data) and not _combinations(part.data, "all"):
        yield part.problem(("without",), "it leaves no combination of the matrix", "", key=True)


def _steps(part: Document, role: Role) -> Iterator[Problem]:
    steps, pods = part.data.get("steps"), _pod_names(part.data)
    for number, step in enumerate(steps if isinstance(steps, list) else ()):
        for action, asked in step.items() if isinstance(step, Mapping) else ():
            for place, name in references.bare(asked, pods) if isinstance(asked, Mapping) else ():
                hint = f"`{{{name}}}` is that of the pod; `hint` takes any text"
                yield part.problem(("steps", number, action, *place), f"{name} is no endpoint", hint)
            if action in ACTIONS and action not in ACTIONS_OF[role]:
                message = f"the step `{action}` has no place in a scenario of role {role}"
                hint = f"there are {', '.join(ACTIONS_OF[role])}"
                yield part.problem(("steps", number, action), message, hint, key=True)
        named = step.get("pods") if isinstance(step, Mapping) else None
        for name in named if isinstance(named, Mapping) else ():
            if name not in pods:
                hint = did_you_mean(name, pods)
                yield part.problem(("steps", number, "pods", name), f"this scenario has no pod {name}", hint, key=True)


def _texts(value: Any) -> Iterator[tuple[int, str]]:
    """The texts of a list, with their places; none of what is no list."""
    return (
        (number, one) for number, one in enumerate(value if isinstance(value, list) else ()) if isinstance(one, str)
    )
