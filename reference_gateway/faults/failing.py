"""Faults of gateways that fail closed: an EPP that breaks off at one moment is not taken for one that failed."""
# fmt: off

from __future__ import annotations

import asyncio

from reference_gateway.epp_client import Decision, EppUnavailable, Talk
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest

NOTICED = 0.02
"""Seconds in which a gateway hears of an EPP that fails at once."""


class PickIsEnoughTalk(Talk):
    """Once an endpoint is named, the request goes there, whatever comes of its body at the EPP."""

    async def ask(self, request: GatewayRequest) -> Decision:
        try:
            return await super().ask(request)
        except EppUnavailable:
            if not self._decision.destinations():
                raise
            return self._decision


fault("goes-on-with-what-no-epp-let-go", "DP-FAIL-01",
      "a request whose EPP named an endpoint, and failed when it was told the body, goes there whole",
      PickIsEnoughTalk, effect="warn")
fault("goes-on-with-pieces-that-no-epp-let-go", "DP-FAIL-01",
      "the same where bodies are sent piece by piece, each when the one before is answered",
      PickIsEnoughTalk, effect="warn", settings={"mode": "STREAMED"})


@fault("goes-on-without-an-epp-that-fails-late", "DP-FAIL-01",
       "a request whose EPP takes its time, and fails then, is sent on", effect="warn")
class TooLateToFailTalk(Talk):
    async def ask(self, request: GatewayRequest) -> Decision:
        began = asyncio.get_running_loop().time()
        try:
            return await super().ask(request)
        except EppUnavailable:
            if self._stream is None or asyncio.get_running_loop().time() < began + NOTICED:
                raise
            return self._decision
