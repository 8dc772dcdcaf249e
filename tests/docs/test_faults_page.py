"""The pages of faults: as declared by the reference EPP and by the gateway, complete, and every one exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirements.catalogue import Catalogue
from conformance.selftest import deviations
from conformance.selftest.table import without

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
def test_the_page_has_every_variant_with_what_is_recorded_of_it(role, page) -> None:
    shown = rows(page)
    for variant in deviations("variants", role):
        assert shown[variant.name][1] == (", ".join(sorted(variant.noted)) or "-")


@ROLES
def test_the_page_has_nothing_else(role, page) -> None:
    assert set(rows(page)) == {one.name for kind in ("faults", "variants") for one in deviations(kind, role)}


@ROLES
def test_everything_on_it_was_exact(role, page) -> None:
    assert {name: cells[-1] for name, cells in rows(page).items() if cells[-1] != "yes"} == {}


def test_every_testable_requirement_of_an_epp_has_a_fault_or_only_informs_and_is_shown() -> None:
    known = (*deviations("faults"), *deviations("variants"))
    assert list(without(known, Catalogue.load())) == []
    assert "Without either: none." in (PAGES / "faults.md").read_text()
