"""The pages of faults: as declared by the reference EPP and by the gateway, complete, and every one exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirements.catalogue import Catalogue
from conformance.selftest.deviation import deviations
from conformance.selftest.table import OBSERVED, without

pytestmark = pytest.mark.program

PAGES = Path(__file__).parents[2] / "docs" / "reference"
ROLES = pytest.mark.parametrize(
    ("role", "page"),
    [("epp", "faults.md"), ("data-plane", "gateway-faults.md"), ("model-server", "model-server-faults.md")],
)


def rows(page: str, part: int) -> dict[str, list[str]]:
    """The rows of the declared (0) or the observed (1) part of a page, by name."""
    text = (PAGES / page).read_text().split(OBSERVED)[part]
    found = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


@ROLES
def test_the_page_has_what_each_fault_and_variant_declares(role, page) -> None:
    shown = rows(page, 0)
    faults, variants = deviations("faults", role), deviations("variants", role)
    for fault in faults:
        assert shown[fault.name][1:] == [fault.breaks, ", ".join(sorted(fault.also_breaks)) or "-"]
    for variant in variants:
        assert shown[variant.name][1] == (", ".join(sorted(variant.noted)) or "-")
    assert set(shown) == {one.name for one in (*faults, *variants)}


@ROLES
def test_everything_that_was_observed_was_exact(role, page) -> None:
    known = {one.name: one for kind in ("faults", "variants") for one in deviations(kind, role)}
    seen = rows(page, 1)
    assert seen.keys() <= known.keys()
    for name, (accused, exact) in seen.items():
        assert exact == "yes", name
        assert {*accused.split(", ")} - {"nothing"} <= known[name].declared


@ROLES
def test_every_fault_and_variant_says_why(role, page) -> None:
    for kind in ("faults", "variants"):
        for one in deviations(kind, role):
            assert len(one.why.split()) > 3, one.name
            assert all(one.also_breaks.values()), one.name


def test_every_testable_requirement_of_an_epp_has_a_fault_or_only_informs_and_is_shown() -> None:
    known = (*deviations("faults"), *deviations("variants"))
    assert list(without(known, Catalogue.load())) == []
    assert "Without either: none." in (PAGES / "faults.md").read_text()
