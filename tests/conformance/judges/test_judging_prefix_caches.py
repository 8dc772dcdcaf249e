"""Judging prefix caches: which counters of hits show that a prompt was found."""

from __future__ import annotations

import json

import pytest

from conformance.evidence.episode import Context, Episode
from conformance.evidence.model_server import MetricNames, MetricsPage, ModelServerFacts, ServerAnswered, ServerAsked
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.record import Entry

CONTEXT = Context(
    version="next",
    scenario="metrics.prefix-cache",
    role="model-server",
    requirements=("MS-PFX-01",),
    model_server=ModelServerFacts(names=MetricNames(prefix_hits=("hits_total",), running=("running",))),
)


def verdict(*pages: bytes, cached: tuple[int | None, int | None] = (None, None)) -> Verdict:
    """The verdict on two alike requests, with the first page before them and the others after; of their prompts of 600
    tokens so many were cached, by their usage."""

    def scraped(body: bytes) -> MetricsPage:
        return MetricsPage(url="http://x/metrics", status=200, body=body)

    events = [scraped(pages[0])]
    for number, tokens in enumerate(cached):
        usage = {"prompt_tokens": 600, "prompt_tokens_details": {"cached_tokens": tokens}}
        body = json.dumps({"usage": usage}).encode()
        events.append(ServerAsked(exchange=f"{number}", method="POST", path="/v1/completions"))
        events.append(ServerAnswered(exchange=f"{number}", status=200, body=body))
    events += map(scraped, pages[1:])
    entries = tuple(Entry(seq, seq, event) for seq, event in enumerate(events, 1))
    found = judge(Episode(id="1", entries=entries), CONTEXT, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == "MS-PFX-01")


OTHER, FAMILY = b"# TYPE other gauge\nother 1\n", b"# TYPE hits_total counter\n"
NONE, SOME = FAMILY + b"hits_total 0\n", FAMILY + b"hits_total 600\n"


@pytest.mark.parametrize("before", [OTHER, FAMILY, NONE], ids=["not there", "without a sample", "0"])
def test_a_counter_of_hits_that_rises_shows_that_the_cache_is_used(before: bytes) -> None:
    assert verdict(before, SOME, SOME) is Verdict.PASS


def test_a_counter_of_hits_that_stays_is_warned_of() -> None:
    assert verdict(NONE, NONE, NONE) is Verdict.WARN
    assert verdict(SOME, SOME, SOME) is Verdict.WARN


@pytest.mark.parametrize(("ranks", "expected"), [(1, Verdict.WARN), (2, Verdict.INCONCLUSIVE)])
def test_ranks_that_may_have_had_the_prompt_once_are_not_judged(ranks: int, expected: Verdict) -> None:
    page = NONE + b"# TYPE running gauge\n" + b"".join(b'running{rank="%d"} 0\n' % number for number in range(ranks))
    assert verdict(page, page, page) is expected


def test_a_server_without_a_counter_is_not_judged() -> None:
    assert verdict(OTHER, OTHER, OTHER) is Verdict.ATTESTED


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        ((0, 592), Verdict.PASS),
        ((0, 16), Verdict.PASS),
        ((16, 592), Verdict.PASS),
        ((592, 592), Verdict.PASS),  # the server has had the prompt in an earlier run
        ((16, 16), Verdict.INCONCLUSIVE),
        ((0, 0), Verdict.WARN),
    ],
)
def test_cached_tokens_that_are_the_same_for_a_new_prompt_prove_nothing(cached, expected) -> None:
    assert verdict(OTHER, OTHER, cached=cached) is expected
    assert verdict(NONE, SOME, cached=cached) is Verdict.PASS
