"""A vendor of a gateway really runs a suite whose scripted EPP does less than the scenarios say: each report of it
follows from its evidence, and `verify` must see that the EPP did not play its script."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from forging import real_reports

from conformance.planning.epp_scripts import played
from conformance.report.verify.verification import verify
from conformance.scenario.epp_script import EppScript, LocalReply
from conformance.scenario.loader import load
from fake_epp import Script

pytestmark = pytest.mark.program

Endpoints = Mapping[str, tuple[str, ...]]

ALIVE: Mapping[str, Any] = {"fails": None, "fails_at": None}

EASIER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "picks the same endpoint always": ("gateway.follows-the-pick[pod=b,method=POST", {"pick": ("{a}",)}),
    "picks nothing": ("gateway.follows-the-pick[pod=b,method=POST", {"pick": ()}),
    "picks the strangers of the pool no more": ("gateway.walks-past-a-stranger", {"pick": ("{a}", "{b}")}),
    "picks one of a list": ("gateway.uses-a-list-up", {"pick": ("{c}",)}),
    "says the pick twice": ("gateway.follows-the-metadata[pod=a,method=POST", {"said_in": "both"}),
    "is never late": ("gateway.follows-a-late-pick[method=POST", {"delay": 0.0}),
    "does not wait for the end": ("gateway.follows-a-pick-at-the-end[http=1", {"decides": "headers"}),
    "sets nothing": ("gateway.takes-over-changes-of-headers", {"sets": ()}),
    "removes nothing": ("gateway.takes-over-changes-of-headers", {"removes": ()}),
    "says that it overwrites": (
        "gateway.takes-over-changes-of-headers[http=1,method=POST,action=unsaid",
        {"action": "overwrite"},
    ),
    "sets nothing again": ("gateway.takes-headers-that-are-set-again[http=1,method=POST", {"echoes": False}),
    "edits nothing": ("gateway.sends-on-what-the-epp-changed", {"edits": None}),
    "tells no length": ("gateway.sends-on-a-body-that-grew[http=1,length=true,decides=end", {"tells_length": False}),
    "edits no response": ("gateway.passes-on-what-the-epp-changed", {"edits_response": None}),
    "refuses nothing": ("gateway.relays-refusals[code=429,method=POST", {"immediate": None}),
    "refuses no end": ("gateway.relays-refusals-after-a-pick[http=1", {"refuses_end": None}),
    "refuses no response": ("gateway.relays-refusals-of-responses[http=1", {"refuses_response": None}),
    "refuses with another code": ("gateway.relays-refusals[code=429,method=POST", {"immediate": LocalReply(code=503)}),
    "never fails": ("gateway.fails-closed-on-a-broken-epp[how=error,method=POST", {"fails": None}),
    "fails in another way": ("gateway.fails-closed-on-a-broken-epp[how=error,method=POST", {"fails": "reset"}),
    "is silent": ("gateway.fails-closed-on-a-broken-epp[how=error,method=POST", {"fails": "silent"}),
    "never fails in its midst": ("gateway.shows-nothing-broken-off-as-whole[how=reset,at=request-body", ALIVE),
    "never fails in a response": ("gateway.shows-nothing-broken-off-as-whole[how=error,at=response-body", ALIVE),
    "stays when it is done": ("gateway.goes-on-without-an-epp-that-is-done[method=POST,http=1", ALIVE),
    "has no fallback": ("gateway.uses-the-fallback[fallback=b", {"fallback": None}),
}

VERSION = {"has no fallback": "0.3.0"}


def failed(catalogue, output: Path, scenarios: Iterable[str], change: Mapping[str, Any], version: str) -> list[str]:
    """The steps of `verify` that do not pass, of a run in which the EPP plays scripts with a change."""
    instances = [one for one in load(catalogue) if one.id.startswith(tuple(scenarios))]

    def play(said: EppScript, endpoints: Endpoints, namespace: str) -> Script:
        scripted = "a" in endpoints and said != EppScript()  # not so in the gate
        return played(said.model_copy(update=change) if scripted else said, endpoints, namespace)

    profile = real_reports.reference_gateway()
    claims = dataclasses.replace(profile.claims, retries=3, follows="either")
    profile = profile.model_copy(update={"claims": claims, "protocol_versions": (version,)})
    with patch("conformance.run.gateway.pickers.played", play):
        real_reports.make(profile, output, instances, versions=(version,))
    verification = verify(output / "report.json", instances=instances)
    return [step.name for step in verification.steps if step.answer != "pass"]


@pytest.mark.parametrize("what", EASIER)
def test_epps_must_play_the_scripts_of_their_scenarios(catalogue, tmp_path, what: str) -> None:
    scenario, change = EASIER[what]
    assert failed(catalogue, tmp_path, [scenario], change, VERSION.get(what, "1.0.0")) == ["judgement"]


@pytest.mark.parametrize("version", ["1.0.0", "0.3.0"])
def test_epps_that_play_their_scripts_are_verified(catalogue, tmp_path, version: str) -> None:
    assert failed(catalogue, tmp_path, [scenario for scenario, _ in EASIER.values()], {}, version) == []
