"""Scrapes of the page of metrics, as an EPP makes them, each in the log with the load that was in flight meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import fields, replace
from urllib.parse import urlsplit

from conformance.evidence.model_server import MetricsPage, ModelServerFacts
from conformance.reading.metrics_page import MetricReading, Page, excerpt, look_up, names_of, read_page
from conformance.run.model_server.client import Got, ServerClient
from conformance.run.model_server.load import ServerLoad, Snapshot

INTERVAL = 0.05
"""Seconds between two scrapes: what EPPs have by default."""

_NOTHING = Snapshot(flying=frozenset(), begun=frozenset(), sent=0)


class Scraper:
    """Reads the page, and hands `remark` a `MetricsPage` for each that differs from the one before."""

    def __init__(self, client: ServerClient, facts: ModelServerFacts, remark: Callable[[MetricsPage], object]) -> None:
        self._client = client
        self._facts = facts
        self._remark = remark
        names = facts.names
        self._names = names_of(text for one in fields(names) for text in getattr(names, one.name))
        self._kept: MetricsPage | None = None
        self._same = 0
        base, page = urlsplit(client.url), urlsplit(client.page_url)
        self._elsewhere = (page.netloc, page.path) != (base.netloc, base.path.rstrip("/") + "/metrics")

    async def scrape(self, load: ServerLoad | None = None, *, whole: bool = False) -> Page:
        """One scrape; `whole`: the page is kept as it came."""
        before = load.snapshot() if load is not None else _NOTHING
        got = await self._client.page()
        after = load.snapshot() if load is not None else _NOTHING
        page = read_page(got.body, got.content_type) if got.status == 200 else Page(samples={}, types={})
        self._take(got, before, after, whole=whole or bool(page.problems) or got.status != 200)
        return page

    def look_up(self, page: Page, meaning: str) -> MetricReading | None:
        """A metric on the page, by its meaning (`queued`, `running`, …)."""
        facts = self._facts
        combine = "max" if meaning == "kv_cache" and facts.combine == "sum" else facts.combine
        return look_up(page, getattr(facts.names, meaning), match=facts.match, combine=combine)

    def value(self, page: Page, meaning: str) -> float | None:
        """What a metric amounts to; None if it is not there."""
        found = self.look_up(page, meaning)
        return found.value if found is not None else None

    async def rest(self, seconds: float, idle: Callable[[Page], bool]) -> bool:
        """Scrape until the page is `idle`, for so many seconds at most; whether it is."""
        until = time.monotonic() + seconds
        while not idle(await self.scrape()):
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(INTERVAL)
        return True

    def flush(self) -> None:
        """Write down how often the last page came again."""
        if self._kept is not None and self._same:
            self._remark(replace(self._kept, same=self._same))
        self._kept, self._same = None, 0

    def _take(self, got: Got, before: Snapshot, after: Snapshot, *, whole: bool) -> None:
        body = got.body if whole else excerpt(got.body, self._names)
        event = MetricsPage(
            url=self._client.page_url,
            outcome="page" if got.outcome == "response" else got.outcome,
            status=got.status,
            content_type=got.content_type,
            body=body[:1_000_000],
            whole=whole and len(body) <= 1_000_000,
            size=len(got.body),
            sha256=hashlib.sha256(got.body).hexdigest(),
            seconds=round(got.seconds, 4),
            at=round(time.time(), 3),
            elsewhere=self._elsewhere,
            sent=len(before.flying & after.flying),
            begun=len(before.begun & after.flying),
            most=len(before.flying) + after.sent - before.sent,
            details=got.details,
        )
        kept = self._kept
        if kept is not None and _alike(kept, event):
            self._kept = replace(event, whole=kept.whole, body=kept.body)
            self._same += 1
            return
        self.flush()
        self._remark(event)
        self._kept = event


def _alike(one: MetricsPage, other: MetricsPage) -> bool:
    """Whether nothing but time passed between two pages."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("outcome", "status", "content_type", "body", "sent", "begun", "most", "details")
    )
