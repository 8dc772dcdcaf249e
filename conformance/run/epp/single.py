"""One exchange by itself, with its episode: for replays, and for the fixtures of pytest."""

from __future__ import annotations

import dataclasses
from random import Random

from conformance.evidence.episode import Episode
from conformance.reading.conversation import Conversation, conversations
from conformance.run.epp.runner import EppRunner
from conformance.scenario.schema import Exchange
from fake_proxy.client import HttpRequest
from fake_proxy.exchange import ExchangeOutcome


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """What came of it."""

    outcome: ExchangeOutcome
    conversation: Conversation
    episode: Episode


async def send_one(lane: EppRunner, exchange: Exchange, request: HttpRequest | None = None) -> Single:
    """Send `exchange` through the target of `lane`; with `request` the HTTP request is exactly that one."""
    with lane.capture() as capture:
        name = capture.exchange()
        prepared = lane.prepared(exchange, 0, lane.profile.body_modes[0], Random(f"{lane.seed} {name}"))
        if request is not None:
            prepared = dataclasses.replace(prepared, request=request)
        outcome = await lane.carry_out(prepared, name, fresh_connection=exchange.connection == "fresh")
        episode = lane.redactor.across(capture.episode())
    conversation = next(one for one in conversations(episode) if one.exchange == name)
    return Single(outcome=outcome, conversation=conversation, episode=episode)
