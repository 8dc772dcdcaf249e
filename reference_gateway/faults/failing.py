"""Faults of gateways that fail closed: an EPP that breaks off at one moment is not taken for one that failed. Each is
the right gateway otherwise."""

from __future__ import annotations

import asyncio

from reference_gateway.epp_client import Decision, EppUnavailable, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import Gateway

NOTICED = 0.02
"""Seconds in which a gateway hears of an EPP that fails at once."""


class _PickIsEnoughTalk(Talk):
    """Once an endpoint is named, the request goes there, whatever comes of its body at the EPP."""

    async def ask(self, request: GatewayRequest) -> Decision:
        try:
            return await super().ask(request)
        except EppUnavailable:
            if not self._decision.destinations():
                raise
            return self._decision


class _PickIsEnough(Gateway):
    talk_type = _PickIsEnoughTalk


class _TooLateToFailTalk(Talk):
    """An EPP that was told the whole request without a failure can't fail any more."""

    async def ask(self, request: GatewayRequest) -> Decision:
        began = asyncio.get_running_loop().time()
        try:
            return await super().ask(request)
        except EppUnavailable:
            if self._stream is None or asyncio.get_running_loop().time() < began + NOTICED:
                raise
            return self._decision


class _TooLateToFail(Gateway):
    talk_type = _TooLateToFailTalk


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="goes-on-with-what-no-epp-let-go",
        why="a request whose EPP named an endpoint, and failed when it was told the body, goes there whole",
        breaks="DP-FAIL-01",
        effect="warn",
        gateway=_PickIsEnough,
    ),
    Fault(
        name="goes-on-with-pieces-that-no-epp-let-go",
        why="the same where bodies are sent piece by piece, each when the one before is answered",
        breaks="DP-FAIL-01",
        effect="warn",
        gateway=_PickIsEnough,
        settings={"mode": "STREAMED"},
    ),
    Fault(
        name="goes-on-without-an-epp-that-fails-late",
        why="a request whose EPP takes its time, and fails then, is sent on",
        breaks="DP-FAIL-01",
        effect="warn",
        gateway=_TooLateToFail,
    ),
)
