"""`epp-conformance selftest --role model-server`: one fault for each requirement, and right servers; exact."""

from __future__ import annotations

from pathlib import Path

from conformance.requirements.catalogue import Catalogue
from conformance.selftest.deviation import deviations
from conformance.selftest.table import OBSERVED

FAULTS = {one.breaks: one.name for one in reversed(deviations("faults", "model-server"))}
"""One for each requirement, the first of the list."""


def test_there_is_one_for_each_requirement() -> None:
    assert {one.id for one in Catalogue.load() if one.role == "model-server" and one.testable} <= FAULTS.keys()


def test_some_are_caught_for_what_they_break(cli, tmp_path: Path) -> None:
    names = tuple(FAULTS.values())[::8]  # CI tries them all, in another step
    page = tmp_path / "faults.md"
    ran = cli("selftest", "--role", "model-server", *names, "--jobs", 2, "--table", page)
    assert ran.code == 0, ran.out + ran.err
    assert f"{len(names)} faults: {len(names)} caught, 0 missed · 0 of {len(names)} wrongly accused" in ran.out
    assert page.read_text().startswith("# Faults of model servers")
    observed = page.read_text().split(OBSERVED)[1]
    assert {line.split("`")[1] for line in observed.splitlines() if line.startswith("| `")} == set(names)


def test_a_right_server_is_not_accused(cli) -> None:
    ran = cli("selftest", "--role", "model-server", "ranks", "stale-lora-series", "--jobs", 2)
    assert ran.code == 0, ran.out + ran.err
