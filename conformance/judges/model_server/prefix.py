"""Prefix Cache Reuse (MS-PFX-01): a prompt that came before is found in the cache, as far as the server tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import not_applicable, passed
from conformance.judges.model_server.objects import cached_of
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import ServerExchange
from conformance.verdict import Finding, Verdict

PREFIX = "MS-PFX-01"


@judge_of_episode(PREFIX, role="model-server")
def reuse(episode: EpisodeView) -> Iterator[Finding]:
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
    first, *cached = (_cached(one) for one in answered)
    new = any((one or 0) > (first or 0) or _most(answer, one) for one, answer in zip(cached, answered[1:], strict=True))
    values = [view.value(one, "prefix_hits") for one in view.readable]
    hits = [value or 0.0 for value in values]  # some engines show a counter from its first count on only
    if new or (hits and hits[-1] > hits[0]):
        yield passed(PREFIX)
    elif any(cached):
        actual = f"cached_tokens is {cached[-1]}, and was {first} when the prompt came first"
        hint = "Was it asked with the same --seed before? Then try another."
        expected = "more of a prompt that came before is found in the cache"
        yield answered[-1].fail(PREFIX, expected, actual, hint=hint, verdict=Verdict.INCONCLUSIVE)
    elif all(one is None for one in cached) and all(value is None for value in values):
        what = "the server reports neither cached tokens nor hits of its cache"
        yield Finding(requirement=PREFIX, verdict=Verdict.ATTESTED, actual=what)
    else:
        told = "cached_tokens is 0" if any(one is not None for one in cached) else "the counter of hits stayed the same"
        hint, verdict = "If it is switched off, say `prefixCache: false` in the profile.", Verdict.FAIL
        ranks = max((view.metrics.engines(one.page) for one in view.readable), default=1)
        if len(answered) <= ranks:
            hint, verdict = f"Each of its {ranks} ranks may have had the prompt once only.", Verdict.INCONCLUSIVE
        expected = "a prompt that came before is found in the cache"
        yield answered[-1].fail(PREFIX, expected, told, hint=hint, verdict=verdict)


def _usage(one: ServerExchange) -> Any:
    body = one.answer.json if one.answer is not None else None
    return body.get("usage") if isinstance(body, dict) else None


def _most(one: ServerExchange, cached: int | None) -> bool:
    """Whether half of the prompt was cached, which is made of words in an order that no other has."""
    prompt = usage.get("prompt_tokens") if isinstance(usage := _usage(one), dict) else None
    return isinstance(prompt, int) and (cached or 0) * 2 >= prompt > 0


def _cached(one: ServerExchange) -> int | None:
    """The cached tokens that an answer reports; None if it reports none."""
    return cached_of(_usage(one))
