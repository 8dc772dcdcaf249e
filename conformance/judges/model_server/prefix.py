"""Prefix Cache Reuse (MS-PFX-01): a prompt that came before is found in the cache, as far as the server tells."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.episode_view import EpisodeView
from conformance.judges.model_server.objects import cached_of
from conformance.judges.registry import judge_of_episode
from conformance.judges.ruling import Ruling, not_applicable, passed
from conformance.judges.server_view import ServerExchange
from conformance.verdict import Verdict

PREFIX = "MS-PFX-01"


@judge_of_episode(PREFIX, role="model-server")
def reuse(episode: EpisodeView) -> Iterator[Ruling]:
    """The same long prompt again and again: cached tokens in a later answer's usage, or a counter of hits that rises.

    Data-parallel ranks have a cache each. If there are as many as prompts, each may have had the prompt once only.
    """
    view = episode.server
    answered = [one for one in view.exchanges if one.answer is not None and one.answer.event.status == 200]
    if PREFIX not in episode.context.requirements or len(answered) < 2:
        return
    if view.claims.prefix_cache is False:
        yield not_applicable(PREFIX, "the profile says that caches are not reused")
        return
    cached = [_cached(one) for one in answered[1:]]
    values = [view.value(one, "prefix_hits") for one in view.readable]
    hits = [value or 0.0 for value in values]  # some engines show a counter from its first count on only
    if any(cached) or (hits and hits[-1] > hits[0]):
        yield passed(PREFIX)
    elif all(one is None for one in cached) and all(value is None for value in values):
        what = "the server reports neither cached tokens nor hits of its cache"
        yield Ruling(requirement=PREFIX, verdict=Verdict.ATTESTED, actual=what)
    else:
        told = "cached_tokens is 0" if any(one is not None for one in cached) else "the counter of hits stayed the same"
        hint, verdict = "If it is switched off, say `prefixCache: false` in the profile.", Verdict.FAIL
        ranks = max((view.metrics.engines(one.page) for one in view.readable), default=1)
        if len(answered) <= ranks:
            hint, verdict = f"Each of its {ranks} ranks may have had the prompt once only.", Verdict.INCONCLUSIVE
        expected = "a prompt that came before is found in the cache"
        yield answered[-1].fail(PREFIX, expected, told, hint=hint, verdict=verdict)


def _cached(one: ServerExchange) -> int | None:
    """The cached tokens that an answer reports; None if it reports none."""
    body = one.answer.json if one.answer is not None else None
    return cached_of(body.get("usage")) if isinstance(body, dict) else None
