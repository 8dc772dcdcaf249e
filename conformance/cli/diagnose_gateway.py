"""What `profile check` and `doctor` find out about a gateway: it starts, asks the EPP, follows it, and reports."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from conformance.cli.diagnosis import Diagnosis
from conformance.errors import ConformanceError, UsageError

if TYPE_CHECKING:
    from conformance.run.engine import EngineThread
    from conformance.run.gateway.runner import GatewayRunner
    from conformance.targets.resolve_gateway import ResolvedGateway


def gateway(resolved: ResolvedGateway, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    """Start the gateway (if it is ours), and look at what becomes of its first request.

    Raises `UsageError` if it can't be started as it was asked for.
    """
    return engine.call(_gateway(resolved, protocol_version, engine))


async def _gateway(resolved: ResolvedGateway, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    from conformance.run.gateway.runner import GatewayRunner

    began = time.monotonic()
    profile = resolved.profile
    lane = GatewayRunner(
        profile, protocol_version, dict(resolved.values), seed=0, lag=engine.lag, status=lambda _: None
    )
    try:
        async with lane:
            started = "started" if profile.started_by_us else "reached"
            text = f"{started} at {lane.target.address}, ready after {time.monotonic() - began:.1f} s"
            return [Diagnosis(name="gateway", state="good", text=text), *await _conversation(lane, protocol_version)]
    except UsageError:  # the same mistake is the same error in `run`
        raise
    except ConformanceError as problem:
        return [Diagnosis(name="gateway", state="bad", text=problem.message, hint=problem.hint)]


async def _conversation(lane: GatewayRunner, version: str) -> list[Diagnosis]:
    """What one more request shows, and which rules it breaks already."""
    from conformance.evidence.episode import Context
    from conformance.judges import judge
    from conformance.reading.conversation import conversations
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.schema import EppScript, Request
    from conformance.verdict import Verdict
    from ext_proc.messages import ProcessingMode

    pick = (lane.claims.backends[0].endpoints[-1],)
    with lane.capture() as capture:
        await lane.exchange(Request(epp=EppScript(pick=pick)), capture.exchange(), lane.send, Random(0))
        episode = capture.episode()
    first = next(one.first.request for one in conversations(episode) if one.first is not None)
    text = "it says nothing of its body modes"
    if first is not None and first.HasField("protocol_config"):
        name, config = ProcessingMode.BodySendMode.Name, first.protocol_config
        text = f"request bodies {name(config.request_body_mode)}, response bodies {name(config.response_body_mode)}"
    answers = [Diagnosis(name="ext_proc", state="good", text=text)]
    context = Context(version=version, scenario="check", role="data-plane", gateway=lane.claims)
    for finding in judge(episode, context, Catalogue.load()):
        if finding.verdict is Verdict.FAIL:
            text = f"expected {' or '.join(finding.expected)}; {finding.actual}"
            answers.append(Diagnosis(name=finding.requirement, state="bad", text=text, hint=finding.hint))
    return answers
