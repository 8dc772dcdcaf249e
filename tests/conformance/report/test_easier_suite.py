"""A vendor really runs a suite that asks less than the certified one: each report of it follows from its evidence, and
`verify` must see that its exchanges are not those of the scenarios."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from forging import real_reports
from scripted import Script

from conformance.evidence.store import EvidenceReader
from conformance.report.verify.replies import problems
from conformance.report.verify.verification import verify
from conformance.run.barrier import Barrier
from conformance.run.data_plane.stimuli import prepare
from conformance.scenario.loader import load
from conformance.scenario.schema import BodySpec, Exchange, Reply, Request
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import Message

pytestmark = pytest.mark.program

SCENARIOS = ("ext-proc.end-of-stream[end=flag,chunks=7]", "ext-proc.content-length[size=400,http=1]",
             "ext-proc.response-trailers[kind=json]", "ext-proc.request-trailers[chunks=3,http=1]",
             "destination.client-sends-protocol-headers", "ext-proc.unknown-input[inject=attributes]",
             "ext-proc.unknown-input[inject=unknown-field]", "robustness.no-message")  # fmt: skip

Change = Callable[[Exchange, dict[str, Any]], Mapping[str, Any]]
"""What is other in an exchange, and in the arguments of `prepare`."""


def with_small_bodies(body: object) -> Change:
    return lambda one, _: {"body": body} if isinstance(one.body, BodySpec) and one.body.size is not None else {}


def in_an_easier_body_mode(_: Exchange, arguments: dict[str, Any]) -> Mapping[str, Any]:
    arguments["mode"] = "buffered"
    return {"mode": None, "response_mode": None}


def reply(**fields: object) -> Change:
    return lambda one, _: {"reply": one.reply.model_copy(update=fields)}


def always(**fields: object) -> Change:
    return lambda *_: fields


def in_one_line(one: Exchange, _: dict[str, Any]) -> Mapping[str, Any]:
    return {"body": one.body.model_copy(update={"written": "spaced"})} if isinstance(one.body, BodySpec) else {}


INDENTED = "destination.as-clients-write-it[path=/v1/completions,written=indented]"
EASIER: dict[str, tuple[Change, tuple[str, ...]]] = {
    "in one piece": (always(chunks=1), SCENARIOS),
    "in an easier body mode": (in_an_easier_body_mode, SCENARIOS),
    "with small bodies": (with_small_bodies("default"), SCENARIOS),
    "with a placeholder in small bodies": (
        with_small_bodies(BodySpec(fields={"note": "[redacted:header:authorization]"})), SCENARIOS,
    ),
    "without trailers": (always(trailers=(), end="default"), SCENARIOS),
    "with other headers": (always(headers=(("x-other", "1"),)), SCENARIOS),
    "never drained": (always(ending="envoy"), SCENARIOS),
    "without injections": (always(inject=()), SCENARIOS),
    "answered plainly": (always(reply=Reply.model_construct()), SCENARIOS),
    "without waiting": (always(lock_step=False), ("ext-proc.early-response-streamed",)),
    "without pauses": (always(gap_seconds=0), ("streaming.slow-request",)),
    "with the endpoint that served": (always(served="default"), ("served.variants[served=absent",)),
    "answered without waiting": (reply(lock_step=False), ("streaming.token-by-token",)),
    "answered without pauses": (reply(gap_seconds=0), ("streaming.pauses",)),
    "answered at once": (reply(delay_seconds=0), ("streaming.late-response",)),
    "written in one line": (in_one_line, (INDENTED,)),
}  # fmt: skip


def failed_steps(catalogue, folder, scenarios: tuple[str, ...], change: Change) -> list[str]:
    """The steps of `verify` that do not pass, of a run whose exchanges have a change."""
    instances = [one for one in load(catalogue) if one.id.startswith(scenarios)]
    instances = instances if scenarios is SCENARIOS else instances[:1]

    def easier(exchange: Exchange, **arguments: Any) -> Any:
        changed = exchange.model_copy(update=change(exchange, arguments))
        prepared = prepare(changed, **arguments)
        return dataclasses.replace(prepared, note=exchange.note) if scenarios is SCENARIOS else prepared

    with patch("conformance.run.epp.runner.prepare", easier):
        real_reports.make(real_reports.reference_epp(), folder, instances)
    verification = verify(folder / "report.json", instances=instances)
    return [step.name for step in verification.steps if step.answer != "pass"]


@pytest.mark.parametrize("what", EASIER)
def test_exchanges_must_be_those_of_their_scenarios(catalogue, tmp_path, what: str):
    change, scenarios = EASIER[what]
    assert failed_steps(catalogue, tmp_path, scenarios, change) == ["judgement"]


@pytest.mark.parametrize("scenarios", sorted({scenarios for _, scenarios in EASIER.values()}), ids=lambda one: one[0])
def test_the_exchanges_of_a_scenario_are_verified(catalogue, tmp_path, scenarios):
    assert failed_steps(catalogue, tmp_path, scenarios, always()) == []


@pytest.mark.parametrize("changed", [True, False])
def test_interleaved_exchanges_must_wait_for_each_other(catalogue, tmp_path, changed):
    instances = [one for one in load(catalogue) if one.id == "robustness.interleaved"]

    async def at_once(self: Barrier) -> None:
        self._absent -= 1
        self._abroad += 1

    with patch.object(Barrier, "_come", at_once if changed else Barrier._come):
        real_reports.make(real_reports.reference_epp(), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    assert [step.name for step in verification.steps if step.answer != "pass"] == ["judgement"] * changed


def test_a_target_that_takes_no_further_connection_fails_and_its_report_is_verified(catalogue, tmp_path):
    instances = [one for one in load(catalogue) if one.id == "destination.every-connection"]
    refused = ConnectFailed("127.0.0.1:9", "connection refused", "Start it.")
    with patch("conformance.run.epp.target.Target.fresh_channel", side_effect=refused):
        real_reports.make(real_reports.reference_epp(), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    assert [step.details for step in verification.steps if step.answer != "pass"] == []
    report = json.loads((tmp_path / "report.json").read_text())
    assert {row["id"] for row in report["requirements"] if row["verdict"] == "fail"} == {"ENV-16"}


@pytest.mark.parametrize("secret", ["Bearer abcdef", "tell me", "0123456789abcdef"])
def test_a_secret_in_headers_is_no_difference(catalogue, tmp_path, secret):
    instances = [one for one in load(catalogue) if one.id.startswith(SCENARIOS)]
    profile = real_reports.reference_epp()
    requests = profile.requests.model_copy(update={"secret_headers": {"authorization": secret}})
    real_reports.make(profile.model_copy(update={"requests": requests}), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    assert [step.details for step in verification.steps if step.answer != "pass"] == []


@pytest.mark.parametrize("times", [1, 1000])
def test_a_secret_in_bodies_is_no_difference(catalogue, tmp_path, times):
    """Nor is one that is cut where the EPP answers in other pieces than it was asked in, and none is kept."""
    secret = "sesame-open-" * 12
    instances = [one for one in load(catalogue) if one.id.startswith("ext-proc.large-piece[size=100000")]
    profile = real_reports.reference_epp()
    given = {"secret_headers": {"authorization": secret}, "body": {"keys": [secret] * times}}
    requests = profile.requests.model_copy(update=given)
    real_reports.make(profile.model_copy(update={"requests": requests}), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    assert [step.details for step in verification.steps if step.answer != "pass"] == []
    report = json.loads((tmp_path / "report.json").read_text())
    assert {row["verdict"] for row in report["results"]} == {"pass"}
    episodes = [line.read()[0] for line in EvidenceReader(tmp_path / report["evidence"]["file"])]
    messages = [event.raw for episode in episodes for _, event in episode.of(Message)]
    assert len(messages) > 10
    assert not any(b"sesame" in raw for raw in messages)


@pytest.mark.parametrize("cut", [True, False])
def test_a_response_that_is_to_be_cut_has_no_end(cut):
    script = Script(pool={"a": "10.0.0.1:8000"})
    script.exchange().upstream("10.0.0.1:8000", answer=b"beginning", cut=cut)
    request = Request(reply=Reply(kind="text", text="beginning", cut=True))
    found = [one for one in problems(request, script.entries, None) if "by its scenario is cut" in one]
    assert bool(found) is not cut


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_response_is_to_be_as_late_as_its_scenario_says(delay):
    script = Script()
    script.exchange().upstream("10.0.0.1:8000", answer=b"late", delay=delay)
    request = Request(reply=Reply(kind="text", text="late", delay_seconds=0.05))
    found = [one for one in problems(request, script.entries, None) if "by its scenario it takes 0.05 s" in one]
    assert bool(found) is (delay == 0)
