"""What was decided and what became of it: requests in flight by endpoint, and counters for Prometheus."""

from __future__ import annotations

from collections import Counter

from reference_epp.endpoints import Endpoint


class Accounting:
    """Counts on one event loop. A request is in flight at the endpoint that was picked, until another one served it."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """Requests by answer: `endpoint`, or the HTTP status of a refusal."""
        self.picked: Counter[str] = Counter()
        """Requests by the endpoint named first."""
        self.served: Counter[str] = Counter()
        """Responses by the endpoint that the data plane says has served them; `other` is one outside the pool."""
        self.in_flight: Counter[Endpoint] = Counter()
        """Requests whose stream is open, by endpoint."""

    def begin(self, endpoint: Endpoint) -> None:
        """A request goes to `endpoint`."""
        self.answers["endpoint"] += 1
        self.picked[endpoint.text] += 1
        self.in_flight[endpoint] += 1

    def refuse(self, code: int) -> None:
        """A request is refused with HTTP status `code`."""
        self.answers[str(code)] += 1

    def move(self, picked: Endpoint, served: Endpoint, *, known: bool) -> None:
        """The request that was to go to `picked` was served by `served`: a retry took another one of the list."""
        self.served[served.text if known else "other"] += 1  # a counter for each stranger would be a leak
        if served != picked:
            self.end(picked)
            self.in_flight[served] += 1

    def end(self, endpoint: Endpoint) -> None:
        """A request at `endpoint` is over."""
        self.in_flight[endpoint] -= 1
        if self.in_flight[endpoint] <= 0:
            del self.in_flight[endpoint]
