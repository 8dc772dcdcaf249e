"""The page of faults: as declared by the reference EPP, and every one exact."""

from __future__ import annotations

from pathlib import Path

from conformance.selftest import deviations

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


def rows() -> dict[str, list[str]]:
    found = [line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


def test_the_page_has_every_fault_with_what_it_declares() -> None:
    shown = rows()
    for fault in deviations("faults"):
        assert shown[fault.name][1] == fault.breaks
        assert shown[fault.name][2] == (", ".join(sorted(fault.also_breaks)) or "-")


def test_the_page_has_nothing_else() -> None:
    assert set(rows()) <= {one.name for kind in ("faults", "variants") for one in deviations(kind)}


def test_everything_on_it_was_exact() -> None:
    assert {name: cells[-1] for name, cells in rows().items() if cells[-1] != "yes"} == {}
