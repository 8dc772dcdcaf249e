"""A route that splits requests over two pools (DP-SPLIT-01, -02): both take part, and one that fails costs its share.

That each request's EPP is that of the pool which serves it is judged with its attempts, in `destination`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import passed
from conformance.judges.gateway.destination import SPLIT
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.registry import judge_of_episode
from conformance.verdict import Finding, Verdict

SHARE = "DP-SPLIT-02"

LUCK = 1e-6
"""The chance with which a gateway that splits evenly, and by lot, may be taken for one that does not."""


@judge_of_episode(SPLIT, SHARE, role="data-plane")
def split(episode_view: EpisodeView) -> Iterator[Finding]:
    """The requests that were sent to the route that splits."""
    found = [one for one in episode_view.gateway_exchanges if one.splits and one.response is not None]
    if not found:
        return
    names = [backend.epp for backend in found[0].backends]
    empty = [name for name in names if any(_empty(one, name) for one in found)]
    if not empty:
        yield from _both(found, names)
    elif len(empty) < len(names):
        yield _share(found, empty[0])


def _both(found: Sequence[GatewayExchange], names: Sequence[str]) -> Iterator[Finding]:
    """With endpoints in both pools, both are asked. Otherwise nothing is known of the split."""
    asked = {stream.epp for one in found for stream in one.asked}
    if len(asked) == 1 and len(names) * 2.0 ** -len(found) < LUCK:
        actual = f"all {len(found)} requests went to the pool of the EPP {asked.pop()}"
        hint = "The route that claims.splitHeader selects must give each pool about half of the requests."
        expected = "requests for both pools"
        yield found[-1].fail(SPLIT, expected, actual, hint=hint, verdict=Verdict.INCONCLUSIVE)


def _share(found: Sequence[GatewayExchange], empty: str) -> Finding:
    """The pool `empty` has no endpoints. What a gateway that splits evenly loses by that is about a half."""
    failed = [one for one in found if one.status is None or one.status >= 500]
    if _at_least(len(failed), len(found)) >= LUCK:
        return passed(SHARE)
    expected = f"requests for the other pool are served: only the pool of the EPP {empty} has no endpoints"
    actual = f"{len(failed)} of {len(found)} requests failed"
    hint = "One backend without endpoints must not fail the route, nor make its EPP's refusal the answer to all."
    return failed[-1].fail(SHARE, expected, actual, hint=hint)


def _at_least(failed: int, of: int) -> float:
    """The chance that a fair coin shows so many heads or more."""
    return math.fsum(math.comb(of, heads) * 0.5**of for heads in range(failed, of + 1))


def _empty(exchange: GatewayExchange, name: str) -> bool:
    """Whether a pool has nothing to serve the request: its EPP refuses or is away, or its pods take no connections."""
    backend = next(one for one in exchange.backends if one.epp == name)
    refused = any(one.epp == name and one.immediate is not None for one in exchange.asked)
    down = all(exchange.conduct(endpoint) == "refuses" for endpoint in backend.endpoints)
    return refused or down or name in exchange.epps_down
