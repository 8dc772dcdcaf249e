"""What a version of the catalogue means: its requirements and scenarios, and what changed since the one before.

`requirements/history.yaml` lists the versions, each with its digests, the release of the suite that has it, and its
changes by requirement. `requirements/cut.json` has a fingerprint of each requirement, with its scenarios, as they were
when the last version was cut. From both follows what must be said of the version that is being made.

    python -m conformance.scenario.history          # what changed since the last cut, and what is missing
    python -m conformance.scenario.history cut      # write history.yaml and cut.json for this version

`cut --unpublished` asks for no changes: for a version of which no report was published yet.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from conformance.requirements.catalogue import Catalogue, Requirement
from conformance.scenario.digest import scenarios_digest
from conformance.scenario.loader import Instance, load
from conformance.strict_yaml import FileModel, dump, load_located

HISTORY, CUT = "history.yaml", "cut.json"


class RequirementChange(FileModel):
    """What became of one requirement."""

    requirement: str = Field(description="its id")
    kind: Literal["new", "removed", "tightened", "loosened", "reworded"] = Field(
        description="tightened: a target that passed may fail now; loosened: the other way round; reworded: neither"
    )
    what: str = Field(min_length=1, description="what changed, in a sentence")


class CatalogueVersion(FileModel):
    """One version of the catalogue and its scenarios."""

    version: str = Field(description="the catalogue's semantic version")
    suite: str = Field(description="the release of the suite that has it, and verifies its reports")
    catalogue: str = Field("", description="SHA-256 of the catalogue's data; empty until the version is cut")
    scenarios: str = Field("", description="SHA-256 of its scenarios; empty until the version is cut")
    changes: tuple[RequirementChange, ...] = Field(
        (), description="what changed since the version before, by requirement"
    )


class HistoryFile(FileModel):
    """All versions, the oldest first."""

    versions: tuple[CatalogueVersion, ...] = Field(min_length=1, description="the versions")


def history() -> tuple[CatalogueVersion, ...]:
    """The versions of the catalogue, the oldest first."""
    found, _ = load_located(Path(str(_folder() / HISTORY)), HistoryFile)
    return found.versions


def fingerprints(catalogue: Iterable[Requirement], instances: Sequence[Instance]) -> dict[str, str]:
    """Of each requirement, a digest of its entry and of the scenarios that name it."""
    scenarios: dict[str, list[str]] = {}
    for one in instances:
        text = scenarios_digest([one])
        for name in one.scenario.requirements:
            scenarios.setdefault(name, []).append(text)
    return {
        entry.id: hashlib.sha256(json.dumps([repr(entry), sorted(scenarios.get(entry.id, []))]).encode()).hexdigest()[
            :16
        ]
        for entry in catalogue
    }


def problems(
    catalogue: Catalogue,
    instances: Sequence[Instance],
    versions: Sequence[CatalogueVersion],
    cut: Mapping[str, Any],
) -> Iterator[str]:
    """What is not said of the changes since the last cut; nothing if nothing changed."""
    now, before = fingerprints(catalogue, instances), cut["requirements"]
    changed = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
    whole = (catalogue.digest, scenarios_digest(instances))
    if not changed and whole == (cut["catalogue"], cut["scenarios"]):
        return
    if _number(catalogue.version) <= _number(cut["version"]):
        same = f"it is still {catalogue.version}"
        yield f"the catalogue or its scenarios changed since {cut['version']} was cut, and {same}"
    entry = next((one for one in versions if one.version == catalogue.version), None)
    if entry is None:
        yield f"{HISTORY} has no version {catalogue.version}"
        return
    told = {one.requirement: one.kind for one in entry.changes}
    for name in sorted(changed):
        kind = "new" if name not in before else "removed" if name not in now else ""
        if name not in told or (kind and told[name] != kind):
            yield f"{name} {'is ' + kind if kind else 'changed'}, and {HISTORY} does not say so of {catalogue.version}"
    yield from (f"{name} did not change since {cut['version']}" for name in sorted(told.keys() - changed))


def last_cut() -> dict[str, Any]:
    """What the last version had when it was cut."""
    found: dict[str, Any] = json.loads((_folder() / CUT).read_text("utf-8"))
    return found


def release_of(version: str, catalogue: str, scenarios: str) -> str | None:
    """The release of the suite that has a catalogue and scenarios with these digests; None if none is known."""
    return next(
        (
            one.suite
            for one in history()
            if (one.version, one.catalogue, one.scenarios) == (version, catalogue, scenarios)
        ),
        None,
    )


def _folder() -> Any:
    return files("conformance") / "requirements"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _cut() -> None:
    """Write down what this version has."""
    catalogue = Catalogue.load()
    instances = load(catalogue)
    digests = {"catalogue": catalogue.digest, "scenarios": scenarios_digest(instances)}
    versions = [
        one.model_copy(update={**digests, "suite": installed("epp-conformance")})
        if one.version == catalogue.version
        else one
        for one in history()
    ]
    folder = Path(str(_folder()))
    body = {"versions": [one.model_dump(mode="json", by_alias=True) for one in versions]}
    (folder / HISTORY).write_text(f"{_HEAD}{dump(body)}", encoding="utf-8")
    cut = {"version": catalogue.version, **digests, "requirements": fingerprints(catalogue, instances)}
    (folder / CUT).write_text(json.dumps(cut, indent=1) + "\n", encoding="utf-8")


_HEAD = "# The versions of the catalogue with its scenarios; see conformance/scenario/history.py.\n"


def main(arguments: Sequence[str]) -> int:
    """The command line: 1 if something is not said."""
    catalogue = Catalogue.load()
    found = list(problems(catalogue, load(catalogue), history(), last_cut()))
    print("\n".join(found) or f"nothing is missing of {catalogue.version}")  # noqa: T201 - a command
    if list(arguments[:1]) == ["cut"]:
        if arguments[1:] != ["--unpublished"] and any(
            "does not say" in one or "has no version" in one for one in found
        ):
            return 1
        _cut()
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
