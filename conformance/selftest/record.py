"""The record of which scenario instances noticed each fault, so that a later trial can begin with them.

It only saves time: what it names is run and judged again. A fault that it lacks, an instance that is gone, one that no
longer notices the fault, and a line that can't be read lead to the complete trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from conformance.errors import UsageError
from conformance.selftest.deviation import Deviation
from conformance.selftest.trial import Trial

PATH = Path(__file__).with_name("noticed.txt")
_HEAD = "# role/fault and scenario instances that notice it, separated by tabs; `make selftest` updates this file\n"

KEPT = 3
"""Instances recorded of a fault: those that are tried, and one more in case that a scenario is renamed."""
TRIED = 2
"""Of these, the instances that a trial begins with."""

Record = Mapping[str, Sequence[str]]
"""Scenario instances by `role/fault`."""


def load_record(path: Path = PATH) -> Record:
    """The record in a file; empty if there is none."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {name: tuple(instances) for name, *instances in rows}


def save_record(record: Record, path: Path = PATH) -> None:
    """Write the record: a line per fault, sorted. Raises `UsageError` if it can't be written."""
    rows = ("\t".join((name, *instances)) + "\n" for name, instances in sorted(record.items()) if instances)
    try:
        path.write_text(_HEAD + "".join(rows), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} can't be written: {problem.strerror}", hint="use --record in a checkout") from None


def beginnings(record: Record, chosen: Iterable[Deviation]) -> Mapping[str, tuple[str, ...]]:
    """By name of the deviation, the instances that its trial begins with."""
    return {one.name: tuple(record.get(_key(one), ())[:TRIED]) for one in chosen}


def updated(record: Record, trial: Trial) -> Record:
    """The record with a complete trial. Instances that noticed the fault again stay, so that few lines change."""
    if trial.deviation.breaks is None:
        return record
    key = _key(trial.deviation)
    old = [one for one in record.get(key, ()) if one in trial.noticed_by]
    new = tuple(dict.fromkeys((*old, *trial.noticed_by)))[:KEPT] if trial.exact else ()
    return {**record, key: new}


def _key(one: Deviation) -> str:
    return f"{one.role}/{one.name}"
