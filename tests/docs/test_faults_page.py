"""The pages of faults: as declared by the reference EPP and by the gateway, and every one exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.selftest import deviations

PAGES = Path(__file__).parents[2] / "docs" / "reference"
ROLES = pytest.mark.parametrize(("role", "page"), [("epp", "faults.md"), ("data-plane", "gateway-faults.md")])


def rows(page: str) -> dict[str, list[str]]:
    found = [line.strip("|").split(" | ") for line in (PAGES / page).read_text().splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


@ROLES
def test_the_page_has_every_fault_with_what_it_declares(role, page) -> None:
    shown = rows(page)
    for fault in deviations("faults", role):
        assert shown[fault.name][1] == fault.breaks
        assert shown[fault.name][2] == (", ".join(sorted(fault.also_breaks)) or "-")


@ROLES
def test_the_page_has_nothing_else(role, page) -> None:
    assert set(rows(page)) <= {one.name for kind in ("faults", "variants") for one in deviations(kind, role)}


@ROLES
def test_everything_on_it_was_exact(role, page) -> None:
    assert {name: cells[-1] for name, cells in rows(page).items() if cells[-1] != "yes"} == {}
