"""Gateways under test: real Envoy as it is, the small gateway with two pools, and gateways in trouble."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from programs import needs_envoy

from conformance.errors import GateFailedError, IncompleteError, TargetUnreachableError, UsageError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Episode, GatewayFacts, ProcessStarted
from conformance.outcome import RunOutcome, VersionOutcome
from conformance.planning.plan import Selection
from conformance.run.gateway.pods import Pods
from conformance.run.session import RunSettings, run
from conformance.targets.gateway import Backend, GatewayProfile, GatewayStart
from conformance.targets.profile import Timeouts
from conformance.targets.resolve import load_any, shipped
from conformance.verdict import Verdict
from ext_proc.record import (
    A_CONNECTION,
    ClientResponse,
    ExchangeOpened,
    StreamOpened,
    UpstreamRequest,
    Wait,
)
from fake_epp.player import Player
from real_envoy import VARIANTS

pytestmark = pytest.mark.program

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "gateways.py"
SHORT = Timeouts(start=5, answer=1, stop=1)
TWO_POOLS = (
    *("{python}", "-m", "reference_gateway", "--listen", "127.0.0.1:{port}", "--protocol-version", "{version}"),
    *("--epp", "{epp}", "--endpoints", "{endpoints}", "--epp", "{epp2}", "--endpoints", "{endpoints2}"),
)


class Log(list):
    """The events of a run."""

    __call__ = list.append

    @property
    def episodes(self) -> list[Episode]:
        return [one.episode for one in self if isinstance(one, ScenarioFinished)]

    def finished(self, name: str) -> ScenarioFinished:
        return next(one for one in self if isinstance(one, ScenarioFinished) and one.result.id == name)


def conduct(
    target: GatewayProfile, *scenarios: str, version: str = "1.0.0", log: Log | None = None, smoke: bool = False
) -> RunOutcome:
    selection = Selection(scenarios=scenarios, smoke=smoke)
    settings = RunSettings(profile=target, versions=(version,), selection=selection, seed=1)
    return run(settings, Log() if log is None else log)


def verdicts(outcome: VersionOutcome) -> dict[str, Verdict]:
    return {row.requirement.id: row.verdict for row in outcome.requirements}


def hostile(how: str) -> GatewayProfile:
    command = ("{python}", str(HOSTILE), how, "{port}", "{endpoints}")
    return GatewayProfile(role="data-plane", name=how, start=GatewayStart(command=command), timeouts=SHORT)


def small(*flags: str, **changes) -> GatewayProfile:
    settings = {
        "role": "data-plane",
        "name": "small",
        "start": GatewayStart(command=(*TWO_POOLS, *flags)),
        "backends": (Backend(), Backend()),
        "subset_header": "x-subset",
        "claims": GatewayFacts(follows="either", retries=3, retry_statuses=(503,)),
    }
    return GatewayProfile(**{**settings, **changes})


# -- real Envoy --------------------------------------------------------------------------------------------------------

WALKS_NO_LIST = {"DP-DEST-02"}
REPORTS_NOTHING = {"DP-SRVD-01"}
BLOCKERS = {
    "override-host": set(),
    "override-host-open": set(),
    "override-host-streamed": set(),
    "override-host-streamed-open": set(),
    "original-dst-header": WALKS_NO_LIST,
    "original-dst-metadata": WALKS_NO_LIST,
    "subset": WALKS_NO_LIST,
    "envoy-ai-gateway": WALKS_NO_LIST | REPORTS_NOTHING,
    "envoy-ai-gateway-override-host": REPORTS_NOTHING,
    "envoy-ai-gateway-full-duplex": WALKS_NO_LIST | REPORTS_NOTHING,
}
"""What stands between each way to set up Envoy and `conformant`, with version 1.0.0."""


def profiles() -> dict[str, GatewayProfile]:
    """The shipped profiles of real Envoy, by variant."""
    every = (load_any(name) for name in shipped())
    return {one.start.envoy: one for one in every if isinstance(one, GatewayProfile) and one.start.envoy}


def test_the_profile_of_each_envoy_variant_matches_its_configuration() -> None:
    found = profiles()
    assert set(found) == set(VARIANTS) == set(BLOCKERS)
    for name, variant in VARIANTS.items():
        claims, config = found[name].claims, variant.config
        assert claims.retries == config.num_retries
        assert claims.retry_statuses == config.retriable_statuses
        assert claims.failure_mode == ("open" if config.failure_mode_allow else "closed")
        assert claims.reports_served is config.report_served
        assert claims.follows in ("either", *config.destination_sources)
        assert (claims.follows == "either") is (len(config.destination_sources) == 2)


@needs_envoy
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_envoy_variant_has_its_known_blockers(variant: str) -> None:
    outcome = conduct(profiles()[variant], smoke=True)
    version = outcome.versions[0]
    assert set(version.blockers) == BLOCKERS[variant]
    assert not [one for one in version.results if one.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)]


@needs_envoy
def test_a_request_is_seen_from_all_sides() -> None:
    log = Log()
    conduct(profiles()["override-host"], "gateway.walks-past-the-dead*", log=log)
    done = log.finished("gateway.walks-past-the-dead[method=POST,http=2]")
    assert done.result.verdict is Verdict.PASS
    episode, gateway = done.episode, done.context.gateway
    assert [event.epp for _, event in episode.of(StreamOpened)] == ["first", "first"]
    served = {event.endpoint for _, event in episode.of(UpstreamRequest)}
    assert served == {next(pod.endpoints[0] for pod in episode.pool.states[0][1].pods if pod.name == "b")}
    assert [event.status for _, event in episode.of(ClientResponse)] == [200, 200]
    assert served < set(gateway.backends[0].endpoints)
    assert all("x-conformance-exchange" not in str(event.headers) for _, event in episode.of(ClientResponse))


# -- two pools ---------------------------------------------------------------------------------------------------------


def test_two_pools_have_an_epp_each() -> None:
    outcome = conduct(small(), "gateway.stays-in-*", "gateway.asks-the-epp-of-*", version="next")
    found = verdicts(outcome.versions[0])
    assert {name: found[name] for name in found if "SCOPE" in name} == {
        "DP-SCOPE-01": Verdict.PASS,
        "DP-SCOPE-02": Verdict.PASS,
        "DP-SCOPE-03": Verdict.PASS,
    }
    assert {one.id: one.reason for one in outcome.versions[0].results if one.verdict is not Verdict.PASS} == {}


def split(**changes) -> GatewayProfile:
    claims = GatewayFacts(retries=3, retry_statuses=(503,), split_header="x-split")
    return small("--split-header=x-split", claims=claims, **changes)


def test_a_split_is_judged_by_both_of_its_pools() -> None:
    outcome = conduct(split(), "gateway.splits*", "gateway.does-not-split", "gateway.asks-the-epp-of-*", version="next")
    found = verdicts(outcome.versions[0])
    assert (found["DP-SPLIT-01"], found["DP-SPLIT-02"]) == (Verdict.PASS, Verdict.PASS)
    reasons = {one.reason for one in outcome.versions[0].results if one.verdict is not Verdict.PASS}
    assert reasons == {"the gateway has no second pool that takes over for the first"}


def test_a_route_that_does_not_split_is_inconclusive() -> None:
    """The gateway says that a header selects a route that splits, and knows nothing of it."""
    claims = GatewayFacts(retries=3, retry_statuses=(503,), split_header="x-split")
    outcome = conduct(small(claims=claims), "gateway.splits")
    found = {one.verdict: one.reason for one in outcome.versions[0].results}
    assert found == {Verdict.INCONCLUSIVE: "all 24 requests went to the pool of the EPP first"}


def test_a_split_needs_a_second_pool() -> None:
    with pytest.raises(ValueError, match="needs two pools"):
        split(backends=(Backend(),))
    outcome = conduct(small(), "gateway.splits*")
    reasons = {one.reason for one in outcome.versions[0].results}
    assert reasons == {"the profile names no route that splits requests (claims.splitHeader)"}


def test_unclaimed_features_are_not_tested() -> None:
    bare = small(claims=GatewayFacts(), subset_header=None, backends=(Backend(endpoints=("127.0.0.1:18765",)),))
    with pytest.raises(UsageError, match="the profile has one pool"):
        conduct(bare, "gateway.subset-hint-if-any")
    alone = GatewayStart(command=TWO_POOLS[:-4])
    outcome = conduct(
        bare.model_copy(update={"start": alone}),
        *("gateway.walks-*", "gateway.subset-hint", "gateway.fails-open", "gateway.follows-ipv6"),
        *("gateway.takes-the-first-of-a-list", "gateway.asks-about-head"),
    )
    reasons = {one.scenario: (one.verdict, one.reason) for one in outcome.versions[0].results}
    assert reasons["gateway.walks-past-the-dead"][1] == "the profile says that retry is not configured"
    assert reasons["gateway.subset-hint"][0] is Verdict.NOT_APPLICABLE
    assert reasons["gateway.fails-open"][0] is Verdict.NOT_APPLICABLE
    few = "endpoints in the first pool, which has"
    assert reasons["gateway.follows-ipv6"] == (Verdict.SKIPPED, f"needs 1 ipv6 {few} 0")
    assert reasons["gateway.takes-the-first-of-a-list"] == (Verdict.SKIPPED, f"needs 3 ipv4 {few} 1")


# -- gateways in trouble -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("unasked", GateFailedError, "did not call the EPP; the client got HTTP 200"),
        ("garbage", GateFailedError, "no HTTP response before the connection ended"),
        ("closes", GateFailedError, "no HTTP response before the connection ended"),
        ("hangs", GateFailedError, "no response in time"),
        ("dies", TargetUnreachableError, "exited with 7"),
        ("deaf", TargetUnreachableError, "can't be reached: Connection refused, after 5 s"),
        ("exits", TargetUnreachableError, "no configuration"),
    ],
)
def test_a_gateway_that_never_gets_going_is_explained(how: str, error: type[IncompleteError], said: str) -> None:
    with pytest.raises(error) as raised:
        conduct(hostile(how), "gateway.asks-about-head")
    assert said in raised.value.message
    assert raised.value.hint
    assert raised.value.exit_code == 4


def test_likely_causes_are_given_if_no_request_leaves_the_gateway() -> None:
    elsewhere = tuple(part.replace("{endpoints}", "127.0.0.1:9") for part in TWO_POOLS[:-4])
    alone = small(start=GatewayStart(command=elsewhere), backends=(Backend(),), timeouts=SHORT)
    with pytest.raises(GateFailedError, match="called the EPP and sent the first plain request to no") as raised:
        conduct(alone, "gateway.asks-about-head")
    assert all(cause in raised.value.hint for cause in ("the pool that it knows must be", "end_of_stream", "raw_value"))


@pytest.mark.parametrize(
    ("scenario", "key", "values"),
    [
        ("gateway.sends-a-body-in-pieces", "unannounced", {True}),
        ("gateway.sends-an-empty", "unannounced", {None}),
        ("gateway.asks-however-it-is-written", "written", {"absolute-form", "http-1.0"}),
    ],
)
def test_the_form_of_requests_is_in_the_log(scenario: str, key: str, values: set) -> None:
    """Without it, a gateway that refuses a form (411, 426, 505) looks like one that answers so to any request."""
    log = Log()
    conduct(small(), f"{scenario}*", log=log)
    assert {event.note.get(key) for episode in log.episodes for _, event in episode.of(ExchangeOpened)} == values


def test_a_late_recovery_is_reported_once_with_the_setting_for_more_time() -> None:
    slow = small("--variant=ejects", timeouts=Timeouts(convergence=0.2))
    outcome = conduct(slow, "gateway.walks-past-*")
    told = [one.text for one in outcome.anomalies if one.code == "unsettled"]
    assert told == [
        "the gateway sent no request to a model server within 0.2 s after that one served again; "
        "timeouts.convergence of the profile gives it longer"
    ]


@needs_envoy
@pytest.mark.parametrize(("how", "spoken"), [("http2", "HTTP/2"), ("tls", "TLS")])
def test_a_gateway_that_speaks_something_else_to_model_servers_is_told(how: str, spoken: str) -> None:
    command = ("{python}", str(HOSTILE.parent / "other_protocol.py"), how, "{port}", "{epp}", "{endpoints}")
    patient = Timeouts(start=20, answer=1, stop=1)  # Envoy takes seconds to start on a busy machine
    envoy = small(start=GatewayStart(command=command), backends=(Backend(),), timeouts=patient)
    with pytest.raises(GateFailedError, match=f"called the EPP and spoke {spoken} to a model server") as raised:
        conduct(envoy, "gateway.asks-about-head")
    assert "HTTP/1.1 without TLS" in raised.value.hint


def test_a_gateway_that_does_not_run_is_out_of_reach() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: it refuses
        address = "{}:{}".format(*held.getsockname())
        profile = GatewayProfile(role="data-plane", url=f"http://{address}", timeouts=SHORT)
        with pytest.raises(TargetUnreachableError, match=f"{address} can't be reached: Connection refused"):
            conduct(profile, "gateway.asks-about-head")


def test_a_port_that_is_taken_is_named_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        with pytest.raises(UsageError, match=f"the scripted EPP can't listen on {address}"):
            conduct(small(backends=(Backend(epp=address), Backend())), "gateway.asks-about-head")
        with pytest.raises(UsageError, match=address):
            conduct(small(backends=(Backend(endpoints=(address,)), Backend())), "gateway.asks-about-head")


def test_nothing_is_left_of_a_run() -> None:
    log = Log()
    conduct(small(), "gateway.asks-about-head*", log=log, version="next")
    done = log.finished("gateway.asks-about-head[http=1]")
    opened = next(event for _, event in done.episode.of(StreamOpened))
    authority = dict(opened.headers)[b":authority"].decode()
    endpoints = [endpoint for backend in done.context.gateway.backends for endpoint in backend.endpoints]

    async def refused(address: str) -> bool:
        host, _, port = address.rpartition(":")
        try:
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            return True
        writer.close()
        return False

    for address in (authority, *endpoints):
        assert asyncio.run(refused(address)), address


def test_a_gateway_that_dies_is_started_again_and_the_death_is_its_own() -> None:
    log = Log()
    killed: list[int] = []

    def handler(event: RunEvent) -> None:
        log(event)
        if isinstance(event, ScenarioFinished) and event.episode is not None and not killed:
            killed.extend(started.pid for _, started in event.episode.of(ProcessStarted))
            os.kill(killed[0], signal.SIGKILL)

    selection = Selection(scenarios=("gateway.follows-the-pick",))
    settings = RunSettings(profile=small(), versions=("1.0.0",), selection=selection, seed=1)
    outcome = run(settings, handler)
    results = outcome.versions[0].results
    assert len(results) == 6
    assert not [one.id for one in results if one.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)]
    assert results[-1].verdict is Verdict.PASS
    assert "restarted" in {anomaly.code for anomaly in outcome.anomalies}
    blamed = {finding.requirement for one in results for finding in one.findings if finding.verdict is Verdict.FAIL}
    assert blamed <= {"DP-EXTP-01"}


@pytest.mark.parametrize(
    ("flags", "name", "scenario", "exchanges"),
    [
        (("--variant", "backs-off"), "gateway.fails-open[method=GET]", "gateway.fails-open*", 2),
        (("--variant", "ejects"), "gateway.uses-a-list-up", "gateway.uses-a-list-up", 4),
        (("--variant", "checks-health"), "gateway.uses-a-list-up", "gateway.uses-a-list-up", 4),
    ],
)
def test_a_gateway_has_time_to_find_its_epp_and_its_pods_again(flags, name, scenario, exchanges) -> None:
    """Requests that are sent meanwhile are no part of the scenario."""
    log = Log()
    claims = GatewayFacts(failure_mode="open") if "open" in scenario else small().claims
    outcome = conduct(small(*flags, claims=claims), scenario, log=log)
    assert {one.verdict for one in outcome.versions[0].results} <= {Verdict.PASS, Verdict.NOT_APPLICABLE}
    episode = log.finished(name).episode
    own = {f"{episode.id}.{number}" for number in range(1, exchanges + 1)}
    assert {entry.event.exchange for entry in episode.entries} - {None} == own
    if "open" in scenario:
        assert [event.exchange for _, event in episode.of(StreamOpened)] == [f"{episode.id}.2"]


LEAVES_HTTP2_WAITING = """
import asyncio
import reference_gateway.http as http
from reference_gateway.__main__ import main

http._Either._http2 = lambda self: asyncio.Protocol()
main()
"""


def test_a_connection_over_http2_that_is_left_waiting_is_waited_for() -> None:
    """So it can be excused where the gateway got no processor. One that speaks HTTP/1.1 alone is right."""
    command = ("{python}", "-c", LEAVES_HTTP2_WAITING, *TWO_POOLS[3:])
    log = Log()
    outcome = conduct(small(start=GatewayStart(command=command)), "gateway.carries-grpc", log=log)
    assert not outcome.versions[0].blockers
    episode = log.finished("gateway.carries-grpc").episode
    waits = [(wait.what, wait.outcome) for _, wait in episode.of(Wait)]
    assert waits == [(A_CONNECTION, "expired")]
    ((_, response),) = episode.of(ClientResponse)
    assert re.match(r"the connection failed: 127\.0\.0\.1:\d+: .* did not come within 5 s$", response.details)


@pytest.mark.parametrize("where", ["epp", "model server"])
def test_an_error_of_ours_in_a_callback_is_no_failure_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """In the middle of the scenarios, after the gate; the loop only prints such errors."""
    owner, name = (Player, "play") if where == "epp" else (Pods, "_arrived")
    right = getattr(owner, name)

    def fails(self: object, first: object) -> Any:
        if b"gate." in (first if isinstance(first, bytes) else str(first).encode()):
            return right(self, first)
        raise RuntimeError("ours")

    monkeypatch.setattr(owner, name, fails)
    log = Log()
    conduct(small(), "gateway.asks-about-head*", log=log, version="next")
    result = log.finished("gateway.asks-about-head[http=1]").result
    assert result.verdict is Verdict.ERROR
    assert "RuntimeError: ours" in str(result)
