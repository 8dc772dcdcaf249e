"""Judging model servers: when gauges are at fault that show nothing, or too much, of what was in flight at a scrape."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.evidence.episode import Context, Episode
from conformance.evidence.model_server import (
    LoadPhase,
    MetricNames,
    MetricsPage,
    ModelServerFacts,
    ServerAnswered,
    ServerAsked,
)
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.record import Entry

NAMES = MetricNames(queued=("vllm:num_requests_waiting",), running=("vllm:num_requests_running",), kv_cache=())
CONTEXT = Context(
    version="next",
    scenario="metrics.queue",
    role="model-server",
    requirements=("MS-MET-02",),
    model_server=ModelServerFacts(names=NAMES),
)
EVERY = 0.05
"""Seconds between two scrapes."""


def verdict(*scrapes: tuple[int, int, int], queued: int = 0) -> Verdict:
    """The verdict on the queue gauge, of a number of scrapes: requests in flight, those that had begun, those that run
    by the gauge."""
    events = [LoadPhase(phase="raised", level=16)]
    for sent, begun, running in scrapes:
        shown = {"vllm:num_requests_waiting": queued, "vllm:num_requests_running": running}
        body = "".join(f"# TYPE {name} gauge\n{name} {value}\n" for name, value in shown.items()).encode()
        events.append(
            MetricsPage(
                url="http://x/metrics", status=200, content_type="text/plain; version=0.0.4", body=body, sent=sent,
                begun=begun,
            )
        )  # fmt: skip
    entries = [Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1)]
    found = judge(Episode(id="1", entries=tuple(entries)), CONTEXT, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == "MS-MET-02")


WAITING, RUNNING, BETWEEN = (16, 6, 6), (16, 16, 16), (16, 0, 6)


@pytest.mark.parametrize(
    "scrapes",
    [[WAITING] * 80, ([WAITING] * 12 + [BETWEEN]) * 7, ([WAITING] * 12 + [(13, 3, 3)]) * 7],
    ids=["steady", "answers of one length end together", "some have begun"],
)
def test_a_queue_that_is_never_shown_is_at_fault(scrapes) -> None:
    assert verdict(*scrapes) is Verdict.FAIL
    assert verdict(*scrapes, queued=10) is Verdict.PASS


@pytest.mark.parametrize(
    "scrapes",
    [
        [RUNNING] * 80,
        [WAITING, RUNNING] * 40,
        [WAITING, WAITING, RUNNING] * 30,
        [BETWEEN, RUNNING] * 40,
        [(2, 0, 1)] * 10,
        [(16, 2, 0)] * 20,
    ],
    ids=["none waits", "by turns", "in short runs", "all run", "one between two states", "nothing seems to run"],
)
def test_a_server_whose_requests_need_not_wait_is_not(scrapes) -> None:
    assert verdict(*scrapes) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "scrapes",
    [[WAITING] * 40, [BETWEEN] * 80, ([WAITING] * 12 + [BETWEEN] * 2) * 7],
    ids=["too short", "nothing begins", "a pause of two scrapes"],
)
def test_a_queue_that_the_load_did_not_hold_for_long_enough_is_inconclusive(scrapes) -> None:
    assert verdict(*scrapes) is Verdict.INCONCLUSIVE
    assert verdict(*scrapes, queued=10) is Verdict.PASS


# -- too much ----------------------------------------------------------------------------------------------------------

QUEUE, RUNS, CACHE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"
EVERYTHING = MetricNames(
    queued=(QUEUE,),
    running=(RUNS,),
    kv_cache=(CACHE,),
    block_size=("vllm:cache_config_info@block_size",),
    blocks=("vllm:cache_config_info@num_gpu_blocks",),
)
RAISED = LoadPhase(phase="raised", level=16, tokens=64, words=8)


def said_of(
    requirement: str, pages: list[tuple[int, int, str]], raised: LoadPhase = RAISED, *, idle: float = 0
) -> Verdict:
    """The verdict on a gauge, of scrapes: requests in flight, those that had begun, and the samples of the page."""
    first = MetricsPage(url="http://x/metrics", status=200, body=f"# TYPE {CACHE} gauge\n{CACHE} {idle}\n".encode())
    events: list = [first, raised]
    for sent, begun, samples in pages:
        types = "".join(f"# TYPE {name} gauge\n" for name in (QUEUE, RUNS, CACHE) if name in samples)
        body = f"{types}{samples}".encode()
        events.append(
            MetricsPage(url="http://x/metrics", status=200, body=body, sent=sent, begun=begun, most=sent)
        )  # fmt: skip
    entries = [Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1)]
    facts = ModelServerFacts(names=EVERYTHING)
    context = dataclasses.replace(CONTEXT, requirements=(requirement,), model_server=facts)
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == requirement)


def counts(begun: int, queued: int, running: int, used: float | None = 0.1) -> tuple[int, int, str]:
    """A scrape while 16 requests are in flight."""
    cache = f"{CACHE} {used}\n" if used is not None else ""
    return 16, begun, f"{QUEUE} {queued}\n{RUNS} {running}\n{cache}"


RIGHT = counts(6, 10, 6)


def test_a_load_of_long_prompts_under_which_there_was_no_page_tells_nothing_of_the_cache() -> None:
    """One request at a time came before, and was scraped: what that shows is no sign of a cache that fills."""
    body = f"# TYPE {CACHE} gauge\n{CACHE} 0.1\n".encode()
    page = MetricsPage(url="http://x/metrics", status=200, body=body, sent=1, begun=1, most=1)
    events = [dataclasses.replace(RAISED, level=1), page, dataclasses.replace(RAISED, words=2000)]
    entries = tuple(Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1))
    facts = ModelServerFacts(names=EVERYTHING)
    context = dataclasses.replace(CONTEXT, requirements=("MS-MET-03",), model_server=facts)
    found = judge(Episode(id="1", entries=entries), context, Catalogue.load())
    assert {one.verdict for one in found if one.requirement == "MS-MET-03"} == {Verdict.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("requirement", "pages"),
    [
        ("MS-MET-02", [counts(6, 16, 6)] * 80),
        ("MS-MET-02", ([counts(6, 16, 6)] * 5 + [counts(0, 10, 6)]) * 15),
        ("MS-MET-02", [counts(10, 10, 6)] * 80),
        ("MS-MET-02", [RIGHT] * 100 + [counts(6, 800, 6)] * 80),
        ("MS-MET-04", [counts(6, 10, 16)] * 80),
        ("MS-MET-04", [counts(6, 10, 600)] * 80),
    ],
    ids=["all waits", "in waves", "swapped", "never sent", "all runs", "a hundred for one"],
)
def test_a_gauge_that_counts_more_than_can_be_is_at_fault(requirement, pages) -> None:
    other = {"MS-MET-02": "MS-MET-04", "MS-MET-04": "MS-MET-02"}[requirement]
    assert said_of(requirement, pages) is Verdict.FAIL
    assert said_of(other, pages) is Verdict.PASS


@pytest.mark.parametrize(
    ("queued", "running", "at_fault"), [(4, 6, "MS-MET-02"), (2, 8, "MS-MET-04")], ids=["the queue", "what runs"]
)
def test_which_of_two_gauges_counts_too_much_together_shows_over_time(queued, running, at_fault) -> None:
    """Six of eight run. Of those some have no token yet: more than half of them, or fewer, at a scrape."""
    level = dataclasses.replace(RAISED, level=8)
    pages = [(8, begun, f"{QUEUE} {queued}\n{RUNS} {running}\n{CACHE} 0.1\n") for begun in (6, 5, 4, 5)] * 20
    for requirement in ("MS-MET-02", "MS-MET-04"):
        expected = Verdict.FAIL if requirement == at_fault else Verdict.PASS
        assert said_of(requirement, pages, level) is expected


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        ([counts(6, 11, 6, used) for used in (0.1, 0.2, 0.3)] * 30, Verdict.WARN),
        ([RIGHT, *[counts(6, 11, 6, used) for used in (0.1, 0.2, 0.3)] * 30], Verdict.WARN),
        ([RIGHT, *[counts(6, 11, 6, used) for used in (0.1, 0.2, 0.3)]] * 30, Verdict.PASS),
        ([counts(6, 11, 6)] * 90, Verdict.PASS),
        ([counts(6, 11, 6, used) for used in (0.1, 0.2, 0.3)] * 10, Verdict.PASS),
        ([counts(6, 10, 7, used) for used in (0.1, 0.2, 0.3)] * 30, Verdict.PASS),
    ],
    ids=["always", "but at first", "most often", "an old page", "for a moment", "one more runs"],
)
def test_a_queue_that_is_one_too_long_is_warned_of(pages, wanted) -> None:
    assert said_of("MS-MET-02", pages) is wanted


@pytest.mark.parametrize(
    "pages",
    [
        [RIGHT] * 20 + [counts(6, 16, 6)] * 40 + [RIGHT] * 20,
        ([RIGHT] * 3 + [counts(6, 16, 6)] * 2) * 30,
        [counts(6, 11, 6)] * 80,
        [counts(10, 13, 3, 0.95)] * 80,
        [counts(10, 13, 3, None)] * 80,
        [(16, 6, f'{QUEUE}{{engine="0"}} 9\n{QUEUE}{{engine="1"}} 9\n{RUNS}{{engine="0"}} 9\n{CACHE} 0.1\n')] * 80,
    ],
    ids=["for a moment", "now and then", "one between", "a full cache", "it may be full", "ranks at odds"],
)
def test_a_gauge_that_lags_or_counts_what_waits_again_is_not(pages) -> None:
    assert said_of("MS-MET-02", pages) is Verdict.PASS
    assert said_of("MS-MET-04", pages) is Verdict.PASS


@pytest.mark.parametrize(
    ("requirement", "pages", "wanted"),
    [
        ("MS-MET-02", [counts(6, 1, 6), *[counts(6, 1, 6, 0.2)] * 80], Verdict.FAIL),
        ("MS-MET-04", [counts(6, 10, 1), *[counts(6, 10, 1, 0.2)] * 80], Verdict.FAIL),
        ("MS-MET-02", [counts(6, 1, 6), *[counts(6, 1, 6, 0.2)] * 40], Verdict.PASS),
        ("MS-MET-02", [counts(6, 1, 6)] * 80, Verdict.PASS),
        ("MS-MET-02", [counts(6, 1, 6), *[counts(6, 1, 6, 0.2)] * 80, counts(6, 8, 6)], Verdict.PASS),
        ("MS-MET-02", [counts(6, 5, 6), *[counts(6, 5, 6, 0.2)] * 80], Verdict.WARN),
        ("MS-MET-02", [counts(6, 5, 6)] * 80, Verdict.PASS),
        ("MS-MET-02", [counts(6, 8, 6), *[counts(6, 8, 6, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-02", [counts(6, 5, 6), *[counts(6, 5, 6, 0.2)] * 40], Verdict.PASS),
        ("MS-MET-02", [counts(14, 1, 14), *[counts(14, 1, 14, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-02", [counts(2, 1, 14), *[counts(2, 1, 14, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-02", [counts(0, 1, 6), *[counts(0, 1, 6, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-04", [counts(2, 10, 1), *[counts(2, 10, 1, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 1, 0.8), *[counts(6, 10, 1, 0.9)] * 80], Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 1), *[counts(6, 10, 1, 0.2)] * 80, RIGHT], Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 3), *[counts(6, 10, 3, 0.2)] * 80], Verdict.WARN),
        ("MS-MET-04", [counts(6, 10, 3), *[counts(6, 10, 3, 0.2)] * 80, RIGHT], Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 3)] * 80, Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 5), *[counts(6, 10, 5, 0.2)] * 80], Verdict.PASS),
        ("MS-MET-04", [counts(6, 10, 3, 0.8), *[counts(6, 10, 3, 0.9)] * 80], Verdict.PASS),
    ],
    ids=[
        "queue",
        "running",
        "soon",
        "old",
        "late",
        "a half",
        "an old half",
        "most of them",
        "a half, soon",
        "2 wait",
        "or run",
        "none begun",
        "2 run",
        "a full cache",
        "running lags",
        "a half runs",
        "a half runs, soon more",
        "an old half runs",
        "most of them run",
        "a half runs, and the cache is full",
    ],
)
def test_a_gauge_that_only_says_whether_there_is_a_request_is_at_fault(requirement, pages, wanted) -> None:
    assert said_of(requirement, pages) is wanted


@pytest.mark.parametrize(
    ("used", "blocks", "wanted"),
    [
        (0.3, 2000, Verdict.PASS),
        (0.02, 2000, Verdict.PASS),
        (0.004, 2000, Verdict.FAIL),
        (0.004, 100_000, Verdict.PASS),
        (0.004, None, Verdict.PASS),
    ],
    ids=["right", "of sixteen ranks that share it", "too small", "a large cache", "of unknown size"],
)
def test_the_gauge_of_the_cache_shows_a_good_part_of_what_is_known_to_fill_it(used, blocks, wanted) -> None:
    config = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}} 1\n' if blocks else ""
    page = (8, 6, f"{CACHE} {used}\n{config}")
    long = LoadPhase(phase="raised", level=8, tokens=64, words=2000)
    assert said_of("MS-MET-03", [page] * 80, long) is wanted


@pytest.mark.parametrize(
    ("idle", "loaded", "wanted"),
    [
        (1, 1, Verdict.WARN),
        (0.99, 0.99, Verdict.WARN),
        (0.5, 0.5, Verdict.FAIL),
        (1, 0.7, Verdict.FAIL),
        (0.9, 1, Verdict.PASS),
    ],
    ids=["full", "nearly", "stuck", "what is free", "of what is kept, too"],
)
def test_a_cache_that_is_full_at_rest_may_be_so_of_what_is_kept(idle, loaded, wanted) -> None:
    page = (8, 6, f'{CACHE} {loaded}\nvllm:cache_config_info{{block_size="16",num_gpu_blocks="2000"}} 1\n')
    long = LoadPhase(phase="raised", level=8, tokens=64, words=2000)
    assert said_of("MS-MET-03", [page] * 80, long, idle=idle) is wanted


def cache_over(values: list[float], *, running: str = "0", left: float | str = 0.0, asks: int = 1) -> Verdict:
    """The verdict on the gauge of the cache that is at 0.3 under long prompts: of scrapes when they have ended, and of
    what it is at when a further request has ended, too."""

    def page(used: float | str, count: str, most: int = 0) -> MetricsPage:
        runs = f"# TYPE {RUNS} gauge\n{RUNS} {count}\n" if count else ""
        body = f"{runs}# TYPE {CACHE} gauge\n{CACHE} {used}\n".encode()
        return MetricsPage(url="http://x/metrics", status=200, body=body, sent=most, begun=most, most=most)

    long = LoadPhase(phase="raised", level=8, tokens=64, words=2000)
    events: list = [page(0.0, "0"), long, page(0.3, "8", 8), page(0.3, "8", 8)]
    events += [LoadPhase(phase="over"), LoadPhase(phase="rest"), *(page(value, running) for value in values)]
    for number in range(asks):
        events.append(ServerAsked(method="POST", path="/v1/completions", exchange=str(number)))
        events.append(ServerAnswered(status=200, exchange=str(number)))
    events += [page(left, running)] * 3
    entries = [Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1)]
    context = dataclasses.replace(CONTEXT, requirements=("MS-MET-03",), model_server=ModelServerFacts(names=EVERYTHING))
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    said = {one.verdict for one in found if one.requirement == "MS-MET-03"}
    return next(one for one in (Verdict.FAIL, Verdict.WARN, Verdict.PASS) if one in said)


@pytest.mark.parametrize(
    ("values", "running", "wanted"),
    [
        ([0.1, 0.7] * 6, "0", Verdict.FAIL),
        ([0.1, 0.7] * 6, "1", Verdict.PASS),
        ([0.1, 0.7] * 6, "", Verdict.PASS),
        ([0.3, 0.2, 0.3, 0.1, 0.2, 0.0], "0", Verdict.PASS),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], "0", Verdict.PASS),
    ],
    ids=["by chance", "others ask", "it may be others", "it lags", "it only falls"],
)
def test_the_gauge_of_the_cache_does_not_rise_by_itself(values, running, wanted) -> None:
    assert cache_over(values, running=running) is wanted


@pytest.mark.parametrize(
    ("left", "asks", "wanted"),
    [
        (0.3, 1, Verdict.WARN),
        (0.4, 1, Verdict.WARN),
        (0.29, 1, Verdict.PASS),
        (0.0, 1, Verdict.PASS),
        (0.3, 0, Verdict.PASS),
    ],
    ids=["the most", "all that is kept", "less", "empty", "no step since"],
)
def test_the_gauge_of_the_cache_falls_when_long_prompts_have_ended(left, asks, wanted) -> None:
    assert cache_over([0.3], left=left, asks=asks) is wanted


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        (-1.1e-16, Verdict.PASS),
        ("-0.0", Verdict.PASS),
        (-0.01, Verdict.FAIL),
        (1.01, Verdict.FAIL),
        (30, Verdict.FAIL),
        ("NaN", Verdict.FAIL),
    ],
)
def test_the_gauge_of_the_cache_is_a_fraction_as_computers_compute_it(left, wanted) -> None:
    assert cache_over([1.0000000000000002, 0.3], left=left) is wanted


# -- the LoRA gauge ----------------------------------------------------------------------------------------------------

LORA = "vllm:lora_requests_info"
NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("first", "apart", "second", "wanted"),
    [
        (NOW + 0.5, 0.1, NOW + 0.6, Verdict.PASS),
        (NOW, 0.1, NOW, Verdict.PASS),
        (NOW + 0.5, 0.1, NOW + 0.5, Verdict.FAIL),
        (NOW, 2.5, NOW, Verdict.FAIL),
        (NOW - 190_000_000, 0.1, NOW - 190_000_000, Verdict.FAIL),
        (0, 0.1, NOW, Verdict.PASS),
        (0, 0.1, 0, Verdict.FAIL),
    ],
    ids=["newer", "within a second", "the same fraction", "seconds later", "long ago", "not updated yet", "never"],
)
def test_the_lora_gauge_has_a_newer_value_when_there_is_a_further_series(first, apart, second, wanted) -> None:
    idle = f'{LORA}{{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""}} {first}\n'
    used = f'{LORA}{{max_lora="2",running_lora_adapters="a",waiting_lora_adapters=""}} {second}\n'
    pages = [(0.0, idle), (apart, idle), (apart + 0.1, idle + used)]
    entries = [Entry(1, 1, LoadPhase(phase="raised", level=1))]
    for seconds, samples in pages:
        body = f"# TYPE {LORA} gauge\n{samples}".encode()
        event = MetricsPage(url="http://x/metrics", status=200, body=body, sent=1, begun=1, most=1, at=NOW + seconds)
        entries.append(Entry(len(entries) + 1, round(seconds * 1e9) + 2, event))
    facts = ModelServerFacts(names=MetricNames(lora=(LORA,)), adapters=("a",), lora=True)
    context = dataclasses.replace(CONTEXT, requirements=("MS-LORA-02",), model_server=facts)
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    assert next(one.verdict for one in found if one.requirement == "MS-LORA-02") is wanted


Lists = tuple[int, str, str, str]
"""A scrape while each of two adapters has a request in flight: how many of them had begun, and the labels."""


def lists_over(requirement: str, *scrapes: Lists, engines: int = 1, level: int = 2) -> Verdict:
    """The verdict on the labels of the LoRA gauge."""
    events: list = [LoadPhase(phase="raised", level=level)]
    counts = "".join(f'{RUNS}{{engine="{number}"}} 1\n' for number in range(engines))
    for begun, most, runs, waits in scrapes:
        labels = f'max_lora="{most}",running_lora_adapters="{runs}",waiting_lora_adapters="{waits}"'
        body = f"# TYPE {RUNS} gauge\n{counts}# TYPE {LORA} gauge\n{LORA}{{{labels}}} {NOW}\n".encode()
        events.append(
            MetricsPage(url="http://x/metrics", status=200, body=body, sent=level, begun=begun, most=level, at=NOW)
        )
    entries = [Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1)]
    facts = ModelServerFacts(names=dataclasses.replace(EVERYTHING, lora=(LORA,)), adapters=("a", "b"), lora=True)
    context = dataclasses.replace(CONTEXT, requirements=(requirement,), model_server=facts)
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == requirement)


@pytest.mark.parametrize(
    ("scrapes", "engines", "wanted"),
    [
        ([(2, "2", "a", "")] * 80, 1, Verdict.FAIL),
        ([(2, "2", "a", "")] * 80 + [(2, "2", "a,b", "")], 1, Verdict.PASS),
        ([(2, "2", "a", "")] * 40, 1, Verdict.PASS),
        ([(1, "1", "a", "b")] * 80, 1, Verdict.PASS),
        ([(2, "1", "a,b", "")] * 80, 1, Verdict.WARN),
        ([(2, "1", "a,b", "")] * 40, 1, Verdict.PASS),
        ([(2, "1", "a,b", "")] * 80, 2, Verdict.PASS),
        ([(2, "1", "a,b", "a,b")] * 80, 1, Verdict.PASS),
    ],
    ids=["one alone", "late", "soon", "one waits", "too many", "for a moment", "of two engines", "alike"],
)
def test_the_list_of_adapters_that_run_has_all_of_them(scrapes, engines, wanted) -> None:
    assert lists_over("MS-LORA-03", *scrapes, engines=engines) is wanted


@pytest.mark.parametrize(
    ("scrapes", "engines", "level", "wanted"),
    [
        ([(1, "1", "a", "")] * 80, 1, 2, Verdict.FAIL),
        ([(1, "1", "a", "")] * 80 + [(1, "1", "a", "b")], 1, 2, Verdict.PASS),
        ([(1, "1", "a", "")] * 40, 1, 2, Verdict.INCONCLUSIVE),
        ([(1, "2", "a", "")] * 80, 1, 2, Verdict.PASS),
        ([(2, "1", "a", "")] * 80, 1, 2, Verdict.PASS),
        ([(0, "1", "a", "")] * 80, 1, 2, Verdict.INCONCLUSIVE),
        ([(1, "1", "a", "")] * 80, 2, 2, Verdict.PASS),
        ([(1, "1", "a", "")] * 80, 1, 1, Verdict.PASS),
    ],
    ids=["none", "late", "soon", "there is room", "all run", "none has begun", "of two engines", "another load"],
)
def test_the_list_of_adapters_that_wait_names_one(scrapes, engines, level, wanted) -> None:
    assert lists_over("MS-LORA-05", *scrapes, engines=engines, level=level) is wanted


@pytest.mark.parametrize(
    ("outdated", "right", "wanted"),
    [(80, 0, Verdict.WARN), (20, 5, Verdict.PASS), (5, 80, Verdict.PASS)],
    ids=["for good", "until the page is brought up to date", "between two answers"],
)
def test_the_newest_lora_series_is_current_but_for_a_moment(outdated, right, wanted) -> None:
    series = f'{LORA}{{max_lora="2",running_lora_adapters="%s",waiting_lora_adapters=""}} %s\n'
    old, empty, newer = series % ("a,b", NOW), series % ("", NOW + 1), series % ("a", NOW + 2)
    events: list = [LoadPhase(phase="raised", level=2)]
    for samples in [old, *[old + empty] * outdated, *[old + empty + newer] * right]:
        body = f"# TYPE {LORA} gauge\n{samples}".encode()
        events.append(MetricsPage(url="http://x/metrics", status=200, body=body, sent=2, begun=2, most=2, at=NOW))
    entries = [Entry(seq, round(seq * EVERY * 1e9), event) for seq, event in enumerate(events, 1)]
    facts = ModelServerFacts(names=MetricNames(lora=(LORA,)), adapters=("a", "b"), lora=True)
    context = dataclasses.replace(CONTEXT, requirements=("MS-LORA-04",), model_server=facts)
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    assert next(one.verdict for one in found if one.requirement == "MS-LORA-04") is wanted


# -- the page itself ---------------------------------------------------------------------------------------------------


def verdict_on_pages(*seconds: float, late: float = 0.0, content_type: str = "text/plain; version=0.0.4") -> Verdict:
    """The verdict on the page, that takes no time at rest, and so many seconds each time under load."""
    took = [(0.0, 0.0), *((one, late if one else 0.0) for one in seconds)]
    pages = [
        MetricsPage(url="", status=200, content_type=content_type, body=b"x 1\n", seconds=one, late=other)
        for one, other in took
    ]
    times = [0.0, 0.0, *(1.0 + number * 0.3 for number in range(len(seconds)))]
    events = [pages[0], RAISED, *pages[1:]]
    entries = [Entry(seq, round(t * 1e9), event) for seq, (t, event) in enumerate(zip(times, events, strict=True), 1)]
    context = dataclasses.replace(CONTEXT, requirements=("MS-MET-01",))
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == "MS-MET-01")


@pytest.mark.parametrize(
    ("seconds", "late", "wanted"),
    [
        ([0.3] * 16, 0.0, Verdict.WARN),
        ([0.01, *[0.3] * 16], 0.0, Verdict.WARN),
        ([0.3] * 16, 0.05, Verdict.WARN),
        ([0.3] * 16, 0.15, Verdict.PASS),
        ([1.2] * 16, 0.4, Verdict.INCONCLUSIVE),
        ([0.3] * 8, 0.0, Verdict.PASS),
        ([0.3, 0.1] * 16, 0.0, Verdict.PASS),
    ],
    ids=[
        "always",
        "but at first",
        "nearly all the server's",
        "not all the server's",
        "behind work that a busy machine left undone",
        "for a moment",
        "now and then",
    ],
)
def test_a_page_that_is_late_under_load_is_warned_of(seconds, late, wanted) -> None:
    assert verdict_on_pages(*seconds, late=late) is wanted


@pytest.mark.parametrize(("busy", "wanted"), [(1, Verdict.WARN), (5, Verdict.INCONCLUSIVE)])
def test_a_page_that_is_always_late_is_the_servers_doing_if_most_scrapes_show_it(busy, wanted) -> None:
    pages = [
        MetricsPage(url="", status=200, content_type="text/plain", body=b"x 1\n", seconds=0.25, late=late)
        for late in [0.2] * busy + [0.0] * 4
    ]
    entries = [Entry(seq, seq, event) for seq, event in enumerate(pages, 1)]
    context = dataclasses.replace(CONTEXT, requirements=("MS-MET-01",))
    found = judge(Episode(id="1", entries=tuple(entries)), context, Catalogue.load())
    assert next(one.verdict for one in found if one.requirement == "MS-MET-01") is wanted


@pytest.mark.parametrize(
    ("content_type", "wanted"),
    [
        ("text/plain", Verdict.PASS),
        ("Text/Plain;charset=utf-8", Verdict.PASS),
        ("text/html; charset=utf-8", Verdict.WARN),
        ("", Verdict.WARN),
    ],
)
def test_a_page_says_what_it_is(content_type, wanted) -> None:
    assert verdict_on_pages(content_type=content_type) is wanted
