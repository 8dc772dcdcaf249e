"""Scrapes of the page of metrics, as an EPP makes them, each in the log with the load that was in flight meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from conformance.evidence.model_server import MetricsPage, ModelServerFacts
from conformance.reading.metrics_page import Page, excerpt, read_page
from conformance.reading.server_metrics import ServerMetrics, page_of
from conformance.run.model_server.client import Got, ServerClient
from conformance.run.model_server.load import Flight, ServerLoad

INTERVAL = 0.05
"""Seconds between two scrapes: what EPPs have by default."""

PATIENCE = 5
"""How many times as long it is waited for gauges at rest on a machine that lets the server wait."""

QUICK = 0.1
"""Seconds that a scrape may take without a look at whose they were."""

MOST = 1_000_000
"""Bytes of a page that are kept."""

_NOTHING = Flight(flying=frozenset(), begun=frozenset(), sent=0)


class Scraper:
    """Reads the page, and hands `remark` a `MetricsPage` for each that differs from the one before. `late` says how
    many of the last so many seconds are not the server's."""

    def __init__(
        self,
        client: ServerClient,
        facts: ModelServerFacts,
        remark: Callable[[MetricsPage], object],
        late: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        self._client = client
        self._late = late
        self.metrics = ServerMetrics(facts)
        self._remark = remark
        self._families = self.metrics.families
        self._kept: MetricsPage | None = None
        self._same = 0
        base, page = urlsplit(client.url), urlsplit(client.page_url)
        self._elsewhere = (page.netloc, page.path) != (base.netloc, base.path.rstrip("/") + "/metrics")

    async def scrape(self, load: ServerLoad | None = None, *, whole: bool = False, gzip: bool = True) -> MetricsPage:
        """One scrape, as it is kept; `whole`: the page is kept as it came; `gzip`: its bytes may come packed."""
        before = load.snapshot() if load is not None else _NOTHING
        got = await self._client.page(gzip=gzip)
        after = load.snapshot() if load is not None else _NOTHING
        there = got.outcome == "response" and got.status == 200
        page = read_page(got.body, got.content_type) if there else Page(samples={}, types={})
        return self._take(got, before, after, whole=whole or bool(page.problems) or not there, gzip=gzip)

    async def rest(self, seconds: float) -> bool:
        """Scrape until the page is that of an idle server, for so many seconds at most; whether it is.

        What is not the server's of the time of a page comes on top, up to `PATIENCE` times as many seconds in all.
        """
        began = time.monotonic()
        until = began + seconds
        while not self.metrics.idle(page_of(page := await self.scrape())):
            until = min(until + page.late, began + PATIENCE * seconds)
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(INTERVAL)
        return True

    def flush(self) -> None:
        """Write down the last page, if it came again, with how often it had come before."""
        if self._kept is not None and self._same:
            self._remark(replace(self._kept, same=self._same - 1))
        self._kept, self._same = None, 0

    def _take(self, got: Got, before: Flight, after: Flight, *, whole: bool, gzip: bool) -> MetricsPage:
        whole = whole and len(got.body) <= MOST
        body = got.body if whole else excerpt(got.body, self._families)
        event = MetricsPage(
            url=self._client.page_url,
            outcome="page" if got.outcome == "response" else got.outcome,
            status=got.status,
            content_type=got.content_type,
            body=body[:MOST],
            whole=whole,
            size=len(got.body),
            sha256=hashlib.sha256(got.body).hexdigest(),
            seconds=round(got.seconds, 4),
            late=round(self._late(got.seconds), 4) if got.seconds > QUICK else 0.0,
            at=round(time.time(), 3),
            elsewhere=self._elsewhere,
            gzip=gzip,
            sent=len(before.flying & after.flying),
            begun=len(before.begun & after.flying),
            most=len(before.flying) + after.sent - before.sent,
            details=got.details,
        )
        kept = self._kept
        if kept is not None and _alike(kept, event):
            self._kept = event
            self._same += 1
            return event
        self.flush()
        self._remark(event)
        self._kept = event
        return event


def _alike(one: MetricsPage, other: MetricsPage) -> bool:
    """Whether nothing but time passed between two pages."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("outcome", "status", "content_type", "body", "whole", "gzip", "sent", "begun", "most", "details")
    )
