"""Judging model servers: when a queue gauge that shows nothing is at fault, of what was in flight at each scrape."""

from __future__ import annotations

import pytest

from conformance.evidence.episode import Context, Episode
from conformance.evidence.model_server import LoadPhase, MetricNames, MetricsPage, ModelServerFacts
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
        [WAITING] * 40,
        [WAITING, RUNNING] * 40,
        [WAITING, WAITING, RUNNING] * 30,
        [BETWEEN] * 80,
        [BETWEEN, RUNNING] * 40,
        ([WAITING] * 12 + [BETWEEN] * 2) * 7,
    ],
    ids=["none waits", "too short", "by turns", "in short runs", "nothing begins", "all run", "a pause of two scrapes"],
)
def test_a_server_whose_requests_need_not_wait_is_not(scrapes) -> None:
    assert verdict(*scrapes) is Verdict.NOT_APPLICABLE
