"""Loads scenario files and expands each scenario's matrix into the instances that are run.

The text of a file is checked three times, always with file, line and column: its YAML, each instance against the
schema, and what the schema can't see (requirements that do not exist, ids used twice, references to no pod).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from conformance.errors import did_you_mean
from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.scenario import references
from conformance.scenario.schema import ACTIONS_OF, STANDARD_PODS, Role, Scenario, ScenarioFile
from conformance.strict_yaml import Document, FileError, Loc, Problem, parse

_REFERRING = (
    *("subset", "subsets", "hint", "metadata", "headers", "within", "absent"),
    *("pick", "fallback", "servedBy"),
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

    Raises `FileError` with every problem found in all of the files.
    """
    return _load(catalogue, extra) if extra or catalogue is not Catalogue.load() else _built_in_instances()


@functools.cache
def _built_in_instances() -> tuple[Instance, ...]:
    return _load(Catalogue.load(), ())


def _load(catalogue: Catalogue, extra: Sequence[Path]) -> tuple[Instance, ...]:
    instances: list[Instance] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    ours = [(source, f"scenarios/{source.name}") for source in _yaml_files(built_in())]  # the same on every machine
    theirs = [(source, str(source)) for path in extra for source in _yaml_files(path)]
    for source, name in (*ours, *theirs):
        try:
            document = parse(source, name=name)
            for index, part in enumerate(_parts(document)):
                try:
                    instances += _expand(document, part, index, catalogue, seen)
                except FileError as error:
                    problems += error.problems
        except FileError as error:
            problems += error.problems
    if problems:
        raise FileError(problems)
    return tuple(instances)


def _yaml_files(path: Traversable) -> Iterable[Traversable]:
    if path.is_dir():
        inside = (item for item in path.iterdir() if item.name.endswith((".yaml", ".yml")))
        return sorted(inside, key=lambda item: item.name)
    return [path]


def _parts(document: Document) -> list[Document]:
    """Each scenario of a file as a document of its own that still knows its lines."""
    raw = document.data.get("scenarios") if isinstance(document.data, Mapping) else None
    if not isinstance(raw, list):
        document.validate(ScenarioFile)
        return []
    dataclasses.replace(document, data={**document.data, "scenarios": []}).validate(ScenarioFile)
    return [_part(document, ("scenarios", index), item) for index, item in enumerate(raw)]


def _part(document: Document, loc: Loc, data: Any) -> Document:
    length = len(loc)
    if not isinstance(data, Mapping):
        raise FileError([document.problem(loc, "a scenario is a mapping with `id`, `title`, `requirements`, `steps`")])
    values = {place[length:]: at for place, at in document.values.items() if place[:length] == loc}
    keys = {place[length:]: at for place, at in document.keys.items() if place[:length] == loc}
    return dataclasses.replace(document, data=data, values=values, keys=keys)


def _expand(
    document: Document, part: Document, index: int, catalogue: Catalogue, seen: dict[str, str]
) -> list[Instance]:
    """The instances of one scenario. `seen` maps every id to its place, and is added to."""
    found: list[Instance] = []
    for variables in _combinations(part.data.get("matrix")):
        bound = dataclasses.replace(part, data=_bind(part.data, variables))
        scenario = bound.validate(Scenario)
        suffix = ",".join(f"{name}={_label(value)}" for name, value in variables.items())
        found.append(
            Instance(
                id=f"{scenario.id}[{suffix}]" if suffix else scenario.id,
                scenario=scenario,
                section=str(document.data.get("section", "")),
                role=document.data.get("role", "epp"),
                file=document.name,
                line=document.position(("scenarios", index))[0],
            )
        )
    problems = list(_semantic(part, found, catalogue, seen))
    if problems:
        raise FileError(problems)
    return found


def _combinations(matrix: Any) -> Iterable[dict[str, Any]]:
    if not isinstance(matrix, Mapping) or not all(isinstance(values, list) and values for values in matrix.values()):
        return [{}]  # no matrix, or a malformed one, which the schema will refuse
    return [dict(zip(matrix, chosen, strict=True)) for chosen in itertools.product(*matrix.values())]


def _bind(raw: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with its variables replaced. A variable that names a pod becomes a reference to that pod."""
    pods = _pod_names(raw)

    def value_of(match: re.Match[str]) -> Any:
        if match["name"] not in variables:
            return match[0]
        value = variables[match["name"]]
        return match[0].replace(match["name"], value, 1) if isinstance(value, str) and value in pods else value

    return {key: item if key == "matrix" else references.substitute(item, value_of) for key, item in raw.items()}


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


def _semantic(part: Document, found: list[Instance], catalogue: Catalogue, seen: dict[str, str]) -> Iterable[Problem]:
    scenario, role = found[0].scenario, found[0].role
    for number, requirement in enumerate(scenario.requirements):
        if requirement not in catalogue:
            hint = did_you_mean(requirement, catalogue.requirements)
            yield part.problem(("requirements", number), f"there is no requirement {requirement!r}", hint)
        elif (own := catalogue.get(requirement).role) != role:
            yield part.problem(
                ("requirements", number),
                f"{requirement} is a requirement of role {own}, and this file's scenarios test role {role}",
                f"say `role: {own}` at the head of the file" if own in ACTIONS_OF else "",
            )
    for number, step in enumerate(scenario.steps):
        if step.action not in ACTIONS_OF[role]:
            yield part.problem(
                ("steps", number, step.action),
                f"a {step.action} step has no place in a scenario of role {role}",
                f"there are {', '.join(ACTIONS_OF[role])}",
                key=True,
            )
    for number, version in enumerate(scenario.versions or ()):
        if version not in VERSIONS:
            yield part.problem(
                ("versions", number), f"there is no version {version!r}", did_you_mean(version, VERSIONS)
            )
    for name in (scenario.id, *scenario.aliases):
        if name in seen:
            yield part.problem(
                ("id",), f"the id {name!r} is taken by {seen[name]}", "ids are unique over all scenario files"
            )
        seen[name] = f"{found[0].file}:{found[0].line}"
    pods = _pod_names(part.data)
    variables = set(scenario.matrix)
    for number, step in enumerate(scenario.steps):
        for name in step.pods or ():
            if name not in pods:
                hint = did_you_mean(name, pods)
                yield part.problem(("steps", number, "pods", name), f"this scenario has no pod {name}", hint, key=True)
    for place, name in references.names({"steps": part.data.get("steps")}):
        refers = any(key in _REFERRING for key in place)
        if refers and name not in pods and name not in variables:
            yield part.problem(
                place,
                f"{{{name}}} is neither a pod of this scenario nor a variable",
                did_you_mean(name, pods | variables),
            )
