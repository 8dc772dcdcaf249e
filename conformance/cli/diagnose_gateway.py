"""What `profile check` and `doctor` find out about a gateway: it starts, asks the EPP, follows it, and reports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING

from conformance.cli.diagnosis import Diagnosis

if TYPE_CHECKING:
    from conformance.run.gateway.runner import GatewayRunner


async def gateway(lane: GatewayRunner, took: float) -> AsyncIterator[Diagnosis]:
    """What one more request shows, and which rules it breaks already; it `took` so many seconds to start."""
    started = "started" if lane.profile.started_by_us else "reached"
    text = f"{started} at {lane.target.address}, ready after {took:.1f} s"
    yield Diagnosis(name="gateway", state="good", text=text)
    from conformance.evidence.episode import Context
    from conformance.judges import judge
    from conformance.reading.conversation import conversations
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.epp_script import EppScript
    from conformance.scenario.schema import Request
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
    yield Diagnosis(name="ext_proc", state="good", text=text)
    context = Context(version=lane.version, scenario="check", role="data-plane", gateway=lane.claims)
    for finding in judge(episode, context, Catalogue.load()):
        if finding.verdict is Verdict.FAIL:
            text = f"expected {' or '.join(finding.expected)}; {finding.actual}"
            yield Diagnosis(name=finding.requirement, state="bad", text=text, hint=finding.hint)
