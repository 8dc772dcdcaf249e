"""Show the accounting to Prometheus. Nothing is counted here: the figures are read when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reference_epp.accounting import Accounting
from reference_epp.endpoints import Pool


def serve_metrics(host: str, port: int, pool: Pool, accounting: Accounting) -> tuple[int, Callable[[], None]]:
    """Serve /metrics on its own thread; the port (for `port` 0) and a function that ends it."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def family(kind: Any, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Any:
        metric = kind(name, text, labels=[label])
        for key, value in values:
            metric.add_metric([key], value)
        return metric

    class Collector:
        def collect(self) -> Iterable[Any]:
            counters = (
                ("reference_epp_requests", "Requests by answer.", "answer", accounting.answers),
                ("reference_epp_picked", "Requests by the endpoint named first.", "endpoint", accounting.picked),
                ("reference_epp_served", "Responses by the endpoint that served.", "endpoint", accounting.served),
            )
            for name, text, label, counter in counters:
                yield family(CounterMetricFamily, name, text, label, list(counter.items()))
            in_flight = [(endpoint.text, float(count)) for endpoint, count in list(accounting.in_flight.items())]
            yield family(GaugeMetricFamily, "reference_epp_in_flight", "Open requests.", "endpoint", in_flight)
            yield GaugeMetricFamily("reference_epp_pool_size", "Ready endpoints.", value=len(pool.endpoints))

    registry = CollectorRegistry()
    registry.register(Collector())  # type: ignore[arg-type,unused-ignore]  # it need only have `collect`
    server, _thread = start_http_server(port, host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return server.server_port, stop
