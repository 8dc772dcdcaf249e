"""`epp-conformance selftest --role data-plane`: one fault for each requirement, and right gateways; exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirements.catalogue import Catalogue
from conformance.selftest.deviation import deviations
from conformance.selftest.table import OBSERVED

FAULTS = {one.breaks: one.name for one in deviations("faults", "data-plane") if one.envoy is None}
"""One for each requirement, of the small gateway: none needs a real Envoy."""


def test_there_is_one_for_each_requirement() -> None:
    assert {one.id for one in Catalogue.load() if one.role == "data-plane" and one.testable} <= FAULTS.keys()


def test_some_are_caught_for_what_they_break(cli, tmp_path: Path) -> None:
    names = tuple(FAULTS.values())[::4]  # CI tries them all, in another step
    page = tmp_path / "faults.md"
    ran = cli("selftest", "--role", "data-plane", *names, "--jobs", 2, "--table", page)
    assert ran.code == 0, ran.out + ran.err
    assert f"{len(names)} faults: {len(names)} caught, 0 missed · 0 of {len(names)} wrongly accused" in ran.out
    assert page.read_text().startswith("# Faults of gateways")
    observed = page.read_text().split(OBSERVED)[1]
    assert {line.split("`")[1] for line in observed.splitlines() if line.startswith("| `")} == set(names)


@pytest.mark.parametrize("name", ["two-pools", "backs-off"])
def test_a_right_gateway_is_not_accused(cli, name) -> None:
    ran = cli("selftest", "--role", "data-plane", name, "--jobs", 1)
    assert ran.code == 0, ran.out + ran.err


def test_a_real_envoy_is_caught_for_its_configuration(cli) -> None:
    pytest.importorskip("envoy", reason="the extra `envoy` is not installed")
    ran = cli("selftest", "--role", "data-plane", "envoy-unasked-for-get", "envoy-notes-no-endpoint", "--jobs", 1)
    assert ran.code == 0, ran.out + ran.err


def test_without_an_envoy_those_of_envoy_are_left_out(cli, monkeypatch) -> None:
    import real_envoy

    def missing() -> None:
        raise real_envoy.EnvoyMissingError("there is no Envoy", "pip install epp-conformance[envoy]")

    monkeypatch.setattr(real_envoy, "find_envoy", missing)
    ran = cli("selftest", "--role", "data-plane", "envoy-retries-off", "fallback-ignored", "--jobs", 1)
    assert ran.code == 0, ran.out + ran.err
    assert "1 of a real Envoy are left out" in ran.err
    assert "1 fault: 1 caught" in ran.out


def test_an_unknown_name_says_the_nearest(cli) -> None:
    ran = cli("selftest", "--role", "data-plane", "hint-as-texts")
    assert ran.code == 2
    assert "hint-as-text" in ran.err
