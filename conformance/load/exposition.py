"""Prometheus metrics of a load while it runs, on this machine's loopback only. They are renewed every second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from conformance.errors import UsageError
from conformance.load.course import Snapshot
from conformance.load.figures import FIRST_BYTE, LATENESS, PICK
from conformance.load.run import LoadRun
from conformance.verdict import Verdict

HOST = "127.0.0.1"

_METRICS = {
    PICK: "epp_load_time_to_pick_seconds",
    FIRST_BYTE: "epp_load_added_time_to_first_byte_seconds",
    LATENESS: "epp_load_lateness_seconds",
}
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Exposition:
    """Serves metrics on `port` (0: any; see `port` then). `renew` takes them from a run on the run's own thread, so
    that the server's never reads what is changing. Raises `UsageError` if the port can't be had."""

    def __init__(self, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._families: list[Any] = []
        self._shown: dict[str, int] = {}
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, HOST, registry)
        except OSError as problem:
            raise UsageError(
                f"--metrics-port: {HOST}:{port}: {problem.strerror}", hint="name a free port, or 0 for any"
            ) from problem
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Any]:
        """What the registry asks for at each scrape."""
        yield from self._families

    def renew(self, run: LoadRun, snapshot: Snapshot) -> None:
        """Show the run as it is now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        exchanges = CounterMetricFamily("epp_load_exchanges", "Exchanges that are over.", labels=["outcome"])
        for outcome, count in {
            "conformant": run.tally.exchanges - run.tally.failed - run.tally.undecided,
            "failed": run.tally.failed,
            "undecided": run.tally.undecided,
            "lost-with-process": run.lost_with_process,
            "lost-to-trouble": run.troubles.lost,
        }.items():
            exchanges.add_metric([outcome], self._risen(outcome, count))
        violations = CounterMetricFamily(
            "epp_load_violations", "Exchanges that broke a requirement.", labels=["requirement"]
        )
        for (requirement, verdict), count in sorted(run.tally.counts.items()):
            if verdict is Verdict.FAIL:
                violations.add_metric([requirement], self._risen(requirement, count))
        trouble = GaugeMetricFamily("epp_load_trouble", "1 for each kind of trouble that goes on.", labels=["kind"])
        for kind in sorted(run.troubles.now):
            trouble.add_metric([kind], 1)
        families = [
            exchanges,
            violations,
            GaugeMetricFamily("epp_load_exchanges_under_way", "Exchanges under way.", snapshot.open),
            GaugeMetricFamily("epp_load_remembered_ratio", "Share of remembered verdicts.", snapshot.hit_rate),
            trouble,
        ]
        for name, buckets in run.figures.buckets(_BOUNDS).items():
            families.append(_histogram(HistogramMetricFamily, _METRICS[name], name, buckets))
        self._families = families

    def _risen(self, name: str, count: int) -> int:
        """The highest count of that name: one may fall, where more comes after an exchange is over, and who reads a
        counter would take that for a new beginning at 0."""
        self._shown[name] = max(count, self._shown.get(name, 0))
        return self._shown[name]


def _histogram(family: Any, metric: str, name: str, buckets: tuple[Mapping[float, int], int, float]) -> Any:
    counts, total, seconds = buckets
    found = family(metric, f"{name}, counted from when each request was due.")
    found.add_metric([], [*((f"{bound:g}", count) for bound, count in counts.items()), ("+Inf", total)], seconds)
    return found
