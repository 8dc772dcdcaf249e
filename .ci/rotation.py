"""Prints the part of the nightly run that one CI run covers, as shell variables.

By turns it is another version, another body mode and another third of the deviations. Besides, it is each deviation
whose code, judge or scenario differs from the main branch or, on the main branch, from the parent commit.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import yaml

import conformance.judges  # noqa: F401 - registers the judges
from conformance.judges.places import places as judged_at
from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.scenario.schema import Role
from conformance.selftest.deviation import PREFERRED, PROGRAM, Deviation, deviations, places
from conformance.targets.resolve import REFERENCE, load_profile

PARTS = 3
MAIN = ("origin/main", "main")


def git(*arguments: str) -> str:
    """The output of a git command; empty if it fails."""
    try:
        ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def base() -> str:
    """The commit to compare with; empty in a shallow clone and without history."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return ""
    head = git("rev-parse", "HEAD")
    forks = (git("merge-base", "HEAD", branch) for branch in MAIN)
    return next((fork for fork in forks if fork and fork != head), "") or git("rev-parse", "--verify", "-q", "HEAD^")


def turn(*, whole: bool) -> int:
    """The number of commits; in a shallow clone, where that is always the same, the commit's id as a number."""
    return int(git("rev-list", "--count", "HEAD") or 0) if whole else int(git("rev-parse", "HEAD") or "0", 16)


def changed_requirements(files: Iterable[str], before: str) -> Iterator[str]:
    """The requirements that a changed judge rules on, or that a new or changed scenario names."""
    paths = set(files)
    for requirement in Catalogue.load():
        if any(place.rpartition(":")[0] in paths for place in judged_at(requirement.id)):
            yield requirement.id
    for path in sorted(path for path in paths if path.startswith("scenarios/") and Path(path).is_file()):
        old = yaml.safe_load(git("show", f"{before}:{path}")) or {"scenarios": []}
        for scenario in yaml.safe_load(Path(path).read_text("utf-8"))["scenarios"]:
            if scenario not in old["scenarios"]:
                yield from scenario["requirements"]


def changed(known: Sequence[Deviation], files: Sequence[str], requirements: set[str]) -> list[str]:
    """The deviations that are declared in a changed file, or concern one of the requirements.

    Names that are made by code have no place. Any change of the program that has them is taken to concern them.
    """
    declared_at = places(known)

    def concerned(one: Deviation) -> bool:
        place = declared_at.get(one.name, f"{PROGRAM[one.role]}/:").rpartition(":")[0]
        return any(file.startswith(place) for file in files) or bool(requirements & {*one.declared, *one.noted})

    return [one.name for one in known if concerned(one)]


def main() -> None:
    """Print the choice."""
    before = base()
    number = turn(whole=bool(before))
    if not before:
        print("No history to compare with (a shallow clone?): changed deviations are not known", file=sys.stderr)
    files = git("diff", "--name-only", before).splitlines() if before else []
    requirements = set(changed_requirements(files, before))
    others = [version for version in VERSIONS if version != PREFERRED]
    modes = load_profile(REFERENCE).body_modes[1:]
    print(f"version={others[number % len(others)]}")
    print(f"mode={modes[number % len(modes)]}")
    print(f"share={number % PARTS + 1}/{PARTS}")
    for role in get_args(Role):
        names = changed((*deviations("faults", role), *deviations("variants", role)), files, requirements)
        print(f"{role.replace('-', '_')}={shlex.quote(' '.join(names))}")


if __name__ == "__main__":
    main()
