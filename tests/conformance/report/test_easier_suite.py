"""A vendor really runs a suite that asks less than the certified one: each report of it follows from its evidence, and
`verify` must see that its exchanges are not those of the scenarios."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
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

SCENARIOS = ("ext-proc.end-of-stream[end=flag,chunks=7]", "ext-proc.content-length[size=400,http=1]",
             "ext-proc.response-trailers[kind=json]", "ext-proc.request-trailers[chunks=3,http=1]",
             "destination.client-sends-protocol-headers", "ext-proc.unknown-input[inject=attributes]",
             "ext-proc.unknown-input[inject=unknown-field]", "robustness.no-message")  # fmt: skip

Change = Callable[[Exchange, dict[str, Any]], Exchange]


def as_it_is(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange


def in_one_piece(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"chunks": 1})


def in_an_easier_body_mode(exchange: Exchange, arguments: dict[str, Any]) -> Exchange:
    arguments["mode"] = "buffered"
    return exchange.model_copy(update={"mode": None, "response_mode": None})


def with_a_small_body(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    sized = isinstance(exchange.body, BodySpec) and exchange.body.size is not None
    return exchange.model_copy(update={"body": "default"} if sized else {})


def with_a_placeholder_in_a_small_body(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    sized = isinstance(exchange.body, BodySpec) and exchange.body.size is not None
    return exchange.model_copy(
        update={"body": BodySpec(fields={"note": "[redacted:header:authorization]"})} if sized else {}
    )


def without_trailers(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"trailers": (), "end": "default"})


def with_other_headers(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"headers": (("x-other", "1"),)})


def never_drained(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"ending": "envoy"})


def without_what_is_beyond_the_ordinary(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"inject": ()})


def answered_plainly(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"reply": Reply.model_construct()})


@pytest.mark.parametrize(
    "change",
    [in_one_piece, in_an_easier_body_mode, with_a_small_body, with_a_placeholder_in_a_small_body, without_trailers,
     with_other_headers, never_drained, without_what_is_beyond_the_ordinary, answered_plainly, as_it_is],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_exchanges_must_be_those_of_their_scenarios(catalogue, tmp_path, change: Change):
    instances = [one for one in load(catalogue) if one.id.startswith(SCENARIOS)]

    def easier(exchange: Exchange, **arguments: Any) -> Any:
        changed = change(exchange, arguments)
        return dataclasses.replace(prepare(changed, **arguments), note=exchange.note)

    with patch("conformance.run.epp.runner.prepare", easier):
        real_reports.make(real_reports.reference_epp(), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    failed = [step.name for step in verification.steps if step.answer != "pass"]
    assert failed == ([] if change is as_it_is else ["judgement"])


def without_waiting(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"lock_step": False})


def without_pauses(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"gap_seconds": 0})


def told_who_served(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"served": "default"})


def answered_without_waiting(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"reply": exchange.reply.model_copy(update={"lock_step": False})})


def answered_without_pauses(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"reply": exchange.reply.model_copy(update={"gap_seconds": 0})})


def answered_at_once(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    return exchange.model_copy(update={"reply": exchange.reply.model_copy(update={"delay_seconds": 0})})


def written_in_one_line(exchange: Exchange, _: dict[str, Any]) -> Exchange:
    spec = exchange.body
    spaced = spec.model_copy(update={"written": "spaced"}) if isinstance(spec, BodySpec) else spec
    return exchange.model_copy(update={"body": spaced})


@pytest.mark.parametrize(
    ("change", "scenario"),
    [(without_waiting, "ext-proc.early-response-streamed"), (without_pauses, "streaming.slow-request"),
     (told_who_served, "served.variants[served=absent"), (answered_without_waiting, "streaming.token-by-token"),
     (answered_without_pauses, "streaming.pauses"), (answered_at_once, "streaming.late-response"),
     (written_in_one_line, "destination.as-clients-write-it[path=/v1/completions,written=indented]")],
    ids=lambda one: getattr(one, "__name__", ""),
)  # fmt: skip
@pytest.mark.parametrize("changed", [True, False])
def test_exchanges_must_come_as_their_scenarios_say(catalogue, tmp_path, change, scenario, changed):
    instances = [one for one in load(catalogue) if one.id.startswith(scenario)][:1]

    def easier(exchange: Exchange, **arguments: Any) -> Any:
        return prepare(change(exchange, arguments) if changed else exchange, **arguments)

    with patch("conformance.run.epp.runner.prepare", easier):
        real_reports.make(real_reports.reference_epp(), tmp_path, instances)
    verification = verify(tmp_path / "report.json", instances=instances)
    assert [step.name for step in verification.steps if step.answer != "pass"] == ["judgement"] * changed


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
