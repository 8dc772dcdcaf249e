"""Faults of a gateway that splits requests over two pools, and variants of it that are right."""
# fmt: off

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ext_proc.messages import ImmediateResponse
from reference_gateway.epp_client import Answered, Decision, Talk
from reference_gateway.fault import fault, variant
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BUSY, BackendPool, Gateway, PoolOutcome


class _Balances(Gateway):
    """A pick that is not in the pool does not count: the pool is used in turn."""

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        yield from itertools.chain(super().walk(decision, pool), self.unsteered(pool))


class _EppBeforePool(_Balances):
    """The EPP of the first pool is asked about every request; only then the pool is chosen."""

    def open(self, pool: BackendPool, subset: list[str] | None, *, before: PoolOutcome | None) -> Talk:
        first = self.settings.pools[0] if self.settings.split_header else pool
        return super().open(first, subset, before=before)


class _PoolChosenAgain(_Balances):
    """The pool is chosen once more when the EPP has answered."""

    async def through(self, pool: BackendPool, talk: Talk, request: Any, *, before: Any) -> PoolOutcome:
        again = next(iter(self.route(request))) if self.splits(request) else pool
        return await super().through(again, talk, request, before=before)


class _WholeRouteFails(Gateway):
    """An EPP answered 503, or could not be asked: its pool has no endpoints, and the route is refused from then on."""

    invalid = False

    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if self.invalid and self.splits(request):
            return GatewayResponse(status=500, headers=((b"content-type", b"text/plain"),), body=b"invalid backend")
        return await super().handle(request)

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        self.invalid = self.invalid or answer.status.code == BUSY
        return await super().answered(answer, pool, request)

    async def without_epp(self, pool: BackendPool, request: GatewayRequest, problem: str) -> GatewayResponse:
        self.invalid = True
        return await super().without_epp(pool, request, problem)


class _MovesToTheOtherPool(Gateway):
    """What the EPP of one pool refuses with 503 is asked of the other's."""

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        other = next((one for one in self.settings.pools if one is not pool), pool)
        if answer.status.code != BUSY or not self.splits(request):
            return await super().answered(answer, pool, request)
        talk = self.open(other, None, before=None)
        try:
            outcome = await self.through(other, talk, request, before=None)
            return await talk.tell(outcome.response, outcome.endpoint, outcome.tried)
        except Answered as refusal:
            return await super().answered(refusal.response, other, request)
        finally:
            talk.close()


SPLIT: dict[str, Any] = {"pools": 2, "claims": {"splitHeader": "x-split"}}
_UNFOLLOWED = {"DP-DEST-01": "the pick of the wrong EPP is not followed, which is seen where the pool chosen is empty"}

fault("split-asks-one-epp", "DP-SPLIT-01",
      "one EPP is asked about all requests of a split, whichever pool is chosen",
      _EppBeforePool, also=_UNFOLLOWED, **SPLIT)
fault("split-chooses-again", "DP-SPLIT-01",
      "the pool is chosen once more when the EPP has answered, so that EPP and endpoint are of two pools",
      _PoolChosenAgain, also=_UNFOLLOWED, **SPLIT)
fault("split-fails-whole", "DP-SPLIT-02",
      "one pool without endpoints makes the whole route fail", _WholeRouteFails, effect="warn", **SPLIT)
fault("envoy-split-asks-one-epp", "DP-SPLIT-01",
      "weighted clusters share one ext_proc filter, which asks the EPP of the first",
      also=_UNFOLLOWED, envoy="split-asks-one-epp", **SPLIT)

variant("split", "a route that splits requests over two pools, each with its EPP", **SPLIT)
variant("split-moves-on", "what one pool of a split refuses, the other gets", _MovesToTheOtherPool, **SPLIT)
variant("envoy-split", "a real Envoy: weighted clusters, each with its own ext_proc", envoy="split", **SPLIT)
