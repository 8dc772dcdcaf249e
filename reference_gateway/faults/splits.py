"""Faults of a gateway that splits requests over two pools, and variants of it that are right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ext_proc.messages import ImmediateResponse
from reference_gateway.epp_client import Answered, Decision, Talk
from reference_gateway.fault import Fault
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

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
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


def _split(**fields: Any) -> Fault:
    return Fault(pools=2, claims={"splitHeader": "x-split"}, **fields)


_UNFOLLOWED = {"DP-DEST-01": "the pick of the wrong EPP is not followed, which is seen where the pool chosen is empty"}

FAULTS: tuple[Fault, ...] = (
    _split(
        name="split-asks-one-epp",
        why="one EPP is asked about all requests of a split, whichever pool is chosen",
        breaks="DP-SPLIT-01",
        also_breaks=_UNFOLLOWED,
        gateway=_EppBeforePool,
    ),
    _split(
        name="split-chooses-again",
        why="the pool is chosen once more when the EPP has answered, so that EPP and endpoint are of two pools",
        breaks="DP-SPLIT-01",
        also_breaks=_UNFOLLOWED,
        gateway=_PoolChosenAgain,
    ),
    _split(
        name="split-fails-whole",
        why="one pool without endpoints makes the whole route fail",
        breaks="DP-SPLIT-02",
        effect="warn",
        gateway=_WholeRouteFails,
    ),
    _split(
        name="envoy-split-asks-one-epp",
        why="weighted clusters share one ext_proc filter, which asks the EPP of the first",
        breaks="DP-SPLIT-01",
        also_breaks=_UNFOLLOWED,
        envoy="split-asks-one-epp",
    ),
)

VARIANTS: tuple[Fault, ...] = (
    _split(name="split", why="a route that splits requests over two pools, each with its EPP"),
    _split(name="split-moves-on", why="what one pool of a split refuses, the other gets", gateway=_MovesToTheOtherPool),
    _split(name="envoy-split", why="a real Envoy: weighted clusters, each with its own ext_proc", envoy="split"),
)
