"""Judging model servers by few pages, as on a machine that is busy with other things: what could not be seen is
inconclusive, and what was seen counts."""

from __future__ import annotations

import pytest

from conformance.evidence.episode import Context, Episode
from conformance.evidence.model_server import LoadPhase, MetricNames, MetricsPage, ModelServerFacts
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.record import Entry

QUEUE, RUNS, CACHE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"
LORA = "vllm:lora_requests_info"
NAMES = MetricNames(
    queued=(QUEUE,),
    running=(RUNS,),
    kv_cache=(CACHE,),
    block_size=("vllm:cache_config_info@block_size",),
    blocks=("vllm:cache_config_info@num_gpu_blocks",),
    lora=(LORA,),
)
CONFIG = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="2000"} 1\n'
NOW = 1_790_000_000.0
SLOWLY, OFTEN = 0.4, 0.06
"""Seconds between two pages: on a busy machine, and as it should be."""

Seen = tuple[int, int, str]
"""A scrape: the requests in flight all the while, those that had begun, and the samples of the page."""


def said(
    requirement: str,
    pages: list[Seen],
    *,
    every: float = SLOWLY,
    level: int = 8,
    words: int = 8,
    ended: int = 6,
    adapters: tuple[str, ...] = (),
) -> Verdict:
    """The verdict on a gauge, of pages under load of which so many requests came to an end."""
    idle = MetricsPage(url="http://x/metrics", status=200, body=f"# TYPE {CACHE} gauge\n{CACHE} 0\n".encode())
    events: list = [idle, LoadPhase(phase="raised", level=level, tokens=64, words=words)]
    for sent, begun, samples in pages:
        types = "".join(f"# TYPE {name} gauge\n" for name in (QUEUE, RUNS, CACHE, LORA) if name in samples)
        body = f"{types}{samples}".encode()
        events.append(
            MetricsPage(url="http://x/metrics", status=200, body=body, sent=sent, begun=begun, most=level, at=NOW)
        )
    events.append(LoadPhase(phase="released", finished=ended))
    entries = [Entry(seq, round(seq * every * 1e9), event) for seq, event in enumerate(events, 1)]
    context = Context(
        version="next",
        scenario="metrics.queue",
        role="model-server",
        requirements=(requirement,),
        model_server=ModelServerFacts(names=NAMES, adapters=adapters, lora=bool(adapters)),
    )
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == requirement)


def counts(begun: int, queued: int, running: int, sent: int = 8) -> Seen:
    return sent, begun, f"{QUEUE} {queued}\n{RUNS} {running}\n{CACHE} 0.1\n"


QUEUED, RUNNING, KV, LABELS, WAITS = "MS-MET-02", "MS-MET-04", "MS-MET-03", "MS-LORA-03", "MS-LORA-05"


@pytest.mark.parametrize(
    ("requirement", "pages"),
    [
        (QUEUED, [counts(0, 0, 6, sent=3)] * 10),
        (QUEUED, [counts(6, 1, 3), counts(0, 1, 3, sent=2)] * 5),
        (QUEUED, [counts(3, 2, 3), counts(0, 2, 3, sent=2)] * 5),
        (QUEUED, [counts(6, 6, 2), counts(0, 0, 0, sent=1)] * 5),
        (RUNNING, [counts(6, 2, 0), counts(0, 2, 0, sent=2)] * 5),
        (RUNNING, [counts(6, 2, 1), counts(0, 2, 1, sent=2)] * 5),
    ],
    ids=["always 0", "a flag", "a half", "swapped", "none runs", "whether one runs"],
)
def test_what_few_pages_do_not_tell_of_a_gauge_is_inconclusive(requirement, pages) -> None:
    assert said(requirement, pages) is Verdict.INCONCLUSIVE
    assert said(requirement, pages, every=OFTEN) in (Verdict.PASS, Verdict.NOT_APPLICABLE)


def test_the_requests_that_had_begun_tell_that_the_count_of_those_that_run_is_right() -> None:
    pages = [counts(3, 1, 3), counts(0, 1, 3, sent=2)] * 5
    assert said(RUNNING, pages) is Verdict.PASS
    assert said(QUEUED, pages) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "pages",
    [
        [counts(0, 2, 4, sent=2), counts(6, 2, 6)],
        [counts(0, 2, 6, sent=2)] * 5,
        [counts(0, 1, 6, sent=2), counts(5, 2, 6)] * 5,
    ],
    ids=["once", "none had begun before a page", "one between two states"],
)
def test_one_page_on_which_the_gauges_account_for_all_that_is_in_flight_is_enough(pages) -> None:
    assert said(QUEUED, pages) is Verdict.PASS
    assert said(RUNNING, pages) is Verdict.PASS


def test_a_server_that_runs_all_that_is_sent_need_not_queue() -> None:
    assert said(QUEUED, [counts(8, 0, 8)] * 12) is Verdict.NOT_APPLICABLE
    assert said(QUEUED, [counts(8, 0, 8)] * 4) is Verdict.INCONCLUSIVE


def test_answers_that_are_over_between_two_pages_are_not_for_want_of_pages() -> None:
    quick = [counts(0, 0, 0, sent=1)] * 10
    assert said(QUEUED, quick, ended=40) is Verdict.NOT_APPLICABLE
    assert said(RUNNING, quick, ended=40) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("used", "few", "many"),
    [
        (0.0, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE),
        (0.003, Verdict.INCONCLUSIVE, Verdict.PASS),
        (0.3, Verdict.PASS, Verdict.PASS),
    ],
    ids=["always 0", "a hundredth", "right"],
)
def test_few_pages_do_not_tell_that_a_cache_is_nearly_empty(used, few, many) -> None:
    pages = [(8, begun, f"{RUNS} 6\n{CACHE} {used}\n{CONFIG}") for begun in (0, 6, 0, 3)] * 3
    assert said(KV, pages, words=2000) is few
    assert said(KV, pages, words=2000, every=OFTEN) is many


@pytest.mark.parametrize(
    ("requirement", "begun", "most", "lists", "many"),
    [
        (LABELS, 2, 2, ("a", ""), Verdict.PASS),
        (LABELS, 2, 1, ("a,b", ""), Verdict.PASS),
        (LABELS, 1, 2, ("", ""), Verdict.FAIL),
        (WAITS, 1, 1, ("a", ""), Verdict.INCONCLUSIVE),
    ],
    ids=["one alone", "too many", "never", "none waits"],
)
def test_few_pages_do_not_tell_which_adapters_are_left_out(requirement, begun, most, lists, many) -> None:
    labels = f'max_lora="{most}",running_lora_adapters="{lists[0]}",waiting_lora_adapters="{lists[1]}"'
    samples = f"{RUNS} 1\n{LORA}{{{labels}}} {NOW}\n"
    pages = [(2, begun, samples), (1, 0, samples)] * 4
    assert said(requirement, pages, level=2, ended=2, adapters=("a", "b")) is Verdict.INCONCLUSIVE
    assert said(requirement, pages, level=2, ended=2, adapters=("a", "b"), every=OFTEN) is many


@pytest.mark.parametrize(
    ("scrapes", "wanted"),
    [
        ([(0.25, 0.0), (0.3, 0.05)], {Verdict.WARN}),
        ([(0.25, 0.02), (0.4, 0.15)], {Verdict.WARN}),
        ([(0.25, 0.0), (0.4, 0.3)], {Verdict.INCONCLUSIVE}),
        ([(0.25, 0.2), (0.3, 0.05)], {Verdict.INCONCLUSIVE}),
        ([(0.25, 0.0), (0.15, 0.1)], set()),
    ],
    ids=["slow", "slow for the most part", "one may be quick", "the machine is busy", "quick once"],
)
def test_the_time_of_a_page_is_without_what_is_not_the_servers(scrapes, wanted) -> None:
    body = f"# TYPE {QUEUE} gauge\n{QUEUE} 0\n".encode()
    pages = [
        MetricsPage(
            url="http://x/metrics", status=200, content_type="text/plain", body=body, seconds=seconds, late=late
        )
        for seconds, late in scrapes
    ]
    entries = tuple(Entry(seq, seq, page) for seq, page in enumerate(pages, 1))
    facts = ModelServerFacts(names=NAMES)
    context = Context(
        version="next", scenario="x", role="model-server", requirements=("MS-MET-01",), model_server=facts
    )
    found = judge(Episode(id="1", entries=entries), context, Catalogue.load())
    said = {one.verdict for one in found if one.requirement == "MS-MET-01"}
    assert said - {Verdict.PASS} == wanted


@pytest.mark.parametrize("requirement", [QUEUED, RUNNING, KV])
def test_a_load_of_which_nothing_is_served_is_inconclusive_and_names_the_servers_message(requirement) -> None:
    idle = MetricsPage(url="", status=200, body=f"# TYPE {CACHE} gauge\n{CACHE} 0\n".encode())
    zero = "".join(f"# TYPE {name} gauge\n{name} 0\n" for name in (QUEUE, RUNS, CACHE)).encode()
    pages = [MetricsPage(url="", status=200, body=zero, sent=8, most=8)] * 80
    refused = {"refused": {"400": 391}, "message": "maximum context length"}
    load = [LoadPhase(phase="raised", level=8, tokens=64, words=2000), *pages, LoadPhase(phase="over", **refused)]
    entries = tuple(Entry(seq, round(seq * 5e7), event) for seq, event in enumerate([idle, *load], 1))
    facts = ModelServerFacts(names=NAMES)
    context = Context(
        version="next", scenario="x", role="model-server", requirements=(requirement,), model_server=facts
    )
    found = judge(Episode(id="1", entries=entries), context, Catalogue.load())
    (one,) = [one for one in found if one.requirement == requirement]
    assert one.verdict is Verdict.INCONCLUSIVE
    assert "391 × 400" in one.actual
    assert "maximum context length" in one.actual
