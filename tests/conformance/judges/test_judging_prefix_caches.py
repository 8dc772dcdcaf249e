"""Judging prefix caches: which counters of hits show that a prompt was found."""

from __future__ import annotations

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


def verdict(*pages: bytes) -> Verdict:
    """The verdict on two alike requests, with the first page before them and the others after."""

    def scraped(body: bytes) -> MetricsPage:
        return MetricsPage(url="http://x/metrics", status=200, body=body)

    events = [scraped(pages[0])]
    for exchange in ("1", "2"):
        events.append(ServerAsked(exchange=exchange, method="POST", path="/v1/completions"))
        events.append(ServerAnswered(exchange=exchange, status=200, body=b"{}"))
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
