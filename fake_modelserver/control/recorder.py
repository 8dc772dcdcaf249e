"""What a fleet has served, kept to be asked for: the last scrapes and requests, each with a number that only rises."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from fake_modelserver.record import ScrapeStarted, Served


class Recorder:
    """Hears what a fleet serves, and keeps the last `most` of each kind.

    Give its methods to the fleet: `Fleet(on_scrape=recorder.scrape, on_request=recorder.request)`.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._scrapes: deque[tuple[int, ScrapeStarted]] = deque(maxlen=most)
        self._requests: deque[tuple[int, Served]] = deque(maxlen=most)
        self._number = 0

    def scrape(self, scrape: ScrapeStarted) -> None:
        """A scrape has started."""
        self._number += 1
        self._scrapes.append((self._number, scrape))

    def request(self, served: Served) -> None:
        """A request has arrived."""
        self._number += 1
        self._requests.append((self._number, served))

    def scrapes(self, *, pod: str | None, after: int, limit: int) -> list[dict[str, Any]]:
        """The first `limit` scrapes of `pod` (None: of any) with a number above `after`."""
        return _listed(self._scrapes, pod, after, limit, _scrape)

    def requests(self, *, pod: str | None, after: int, limit: int) -> list[dict[str, Any]]:
        """The first `limit` requests to `pod` (None: to any) with a number above `after`."""
        return _listed(self._requests, pod, after, limit, _request)


def _listed(
    kept: deque[tuple[int, Any]], pod: str | None, after: int, limit: int, show: Callable[[Any], dict[str, Any]]
) -> list[dict[str, Any]]:
    found = ((number, one) for number, one in kept if number > after and pod in (None, one.pod))
    return [{"number": number, **show(one)} for (number, one), _ in zip(found, range(limit), strict=False)]


def _scrape(one: ScrapeStarted) -> dict[str, Any]:
    return {"pod": one.pod, "t": one.t, "outcome": one.outcome}


def _request(one: Served) -> dict[str, Any]:
    return {
        "pod": one.pod,
        "endpoint": one.endpoint,
        "t": one.t,
        "method": one.method,
        "path": one.path,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in one.headers],
        "body": one.body.decode(errors="replace"),
        "body_size": one.body_size,
        "body_sha256": one.body_sha256,
        "model": one.model,
        "status": one.status,
    }
