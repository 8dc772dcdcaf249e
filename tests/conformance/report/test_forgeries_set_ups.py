"""Forgeries of reports that need another set-up: a later version of the protocol, a real Envoy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forging import real_reports
from forging.excuses import a_wait_ran_out_instead, failing, numbered, the_epp_said_nothing
from forging.forger import Forger, Json
from forging.remembered import verified

from conformance.planning.data_plane import DataPlaneChoice
from conformance.report.document.model import Report
from conformance.report.verify.expected import Expected
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance, load
from real_envoy import EnvoyError, find_envoy

NO_ENVOY = "no Envoy is there"
with contextlib.suppress(EnvoyError):
    find_envoy()
    NO_ENVOY = ""

SET_UPS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "health": ("service-always-healthy", ("health.before-the-pool",), {"versions": ("next",)}),
    "unread": ("metadata-differs", ("robustness.unread",), {}),
    "envoy": (
        "subset-ignored",
        ("destination.completion", "subset.pick-stays-inside"),
        {"data_plane": "envoy:override-host"},
    ),
    "ai-gateway": ("subset-ignored", ("destination.completion",), {"data_plane": "envoy:envoy-ai-gateway"}),
}
"""By name: the fault, the scenarios, and what else the run is made with."""


def instances(name: str, catalogue: Catalogue) -> tuple[Instance, ...]:
    return tuple(one for one in load(catalogue) if one.group in SET_UPS[name][1])


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def report(name: str) -> Path:
        fault, _, settings = SET_UPS[name]
        if "data_plane" in settings and NO_ENVOY:
            pytest.skip(NO_ENVOY)
        if name not in made:
            plane = DataPlaneChoice.named(settings.get("data_plane", "fake"))
            profile = plane.driven(real_reports.reference_epp(fault))  # type: ignore[arg-type]
            settings = {**settings, "data_plane": plane}
            folder = tmp_path_factory.mktemp(name)
            made[name] = real_reports.make(profile, folder, instances(name, catalogue), **settings)
        return made[name]

    return report


def of_kind(f: Forger, kind: str) -> list[Json]:
    return [one for row in f.rows if row["evidence"] for one in f.episode(row)["entries"] if one["kind"] == kind]


def another_service_was_asked_about(f: Forger) -> None:
    of_kind(f, "health")[2]["service"] = "liveness"


def nothing_was_known_of_the_pool(f: Forger) -> None:
    for one in of_kind(f, "health"):
        one["pool_synced"] = None


def the_target_was_started_between_two_checks(f: Forger) -> None:
    entries = f.episode(f.rows[0])["entries"]
    check = of_kind(f, "health")[2]
    entries.insert(entries.index(check), {"kind": "process-started", "pid": 7, "t": check["t"], "seq": 0})
    numbered(f, entries)


def the_target_was_not_restarted(f: Forger) -> None:
    entries = f.episode(f.rows[0])["entries"]
    entries.remove(next(one for one in entries if one["kind"] == "process-exited"))


def the_connection_was_left_unread_from_the_beginning(f: Forger) -> None:
    for row in f.rows:
        entries = f.episode(row)["entries"]
        unread = next(one for one in entries if one["kind"] == "unread-connection")
        begun = next(one for one in entries if one["kind"] == "exchange-opened")
        entries.remove(unread)
        entries.insert(entries.index(begun), {**unread, "t": begun["t"], "seq": 0})
        numbered(f, entries)


def a_wait_ran_out_in_one_exchange(f: Forger) -> None:
    row = failing(f)
    row["findings"] = [one for one in row["findings"] if one["verdict"] == "fail"][:1]
    a_wait_ran_out_instead(f)


def it_was_an_envoy_that_forwards_no_hints(f: Forger) -> None:
    f.report["environment"]["topology"]["dataPlane"] = "envoy:envoy-ai-gateway-full-duplex"
    catalogue = Catalogue.load()
    planned = Expected(Report.model_validate(f.report), catalogue, instances("envoy", catalogue)).planned
    for row in f.rows:
        if planned[row["version"], row["id"]].skip is not None:
            f.excuse(row, "notApplicable", "")


FORGERIES: dict[Callable[[Forger], None], str] = {
    another_service_was_asked_about: "health",
    nothing_was_known_of_the_pool: "health",
    the_target_was_started_between_two_checks: "health",
    the_target_was_not_restarted: "health",
    the_connection_was_left_unread_from_the_beginning: "unread",
    the_epp_said_nothing: "envoy",
    a_wait_ran_out_in_one_exchange: "envoy",
    it_was_an_envoy_that_forwards_no_hints: "envoy",
}


@pytest.mark.parametrize("name", SET_UPS)
def test_an_honest_report_is_verified(reports, catalogue, name):
    verification = verified(reports(name), instances(name, catalogue))
    assert [(step.name, step.details) for step in verification.steps if step.answer != "pass"] == []


@pytest.mark.parametrize(("change", "of"), FORGERIES.items(), ids=lambda one: getattr(one, "__name__", one))
def test_a_forgery_is_caught(reports, catalogue, tmp_path, change, of):
    forger, folder, known = Forger(reports(of)), tmp_path / "forged", instances(of, catalogue)
    change(forger)
    forger.drop_unused_blocks()
    forger.write(folder, catalogue)
    forger.judge_again(folder, catalogue, known)
    forger.write(folder, catalogue)
    verification = verified(folder, known)
    assert [step.name for step in verification.steps if step.answer != "pass"] == ["judgement"]
