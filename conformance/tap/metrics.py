"""What a live tap counts, and its metrics page for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.errors import UsageError
from conformance.tap.judging import JudgedExchange
from conformance.verdict import Verdict
from ext_proc.relay import Counts


@dataclass(slots=True)
class Tally:
    """What became of the exchanges that were recorded."""

    judged: int = 0
    remembered: int = 0
    """Of those judged, exchanges whose findings were remembered."""
    violating: int = 0
    """Exchanges in which a rule was broken."""
    untold: int = 0
    """Exchanges that tell nothing of the EPP, as those do that end before it said anything."""
    unjudged: int = 0
    """Recorded, and dropped because judging was behind."""
    problems: int = 0
    """Exchanges on which a judge raised, or trouble with transcripts."""
    unwritten: int = 0
    """Exchanges whose transcript was asked for, and could not be written."""
    partial: int = 0
    """Exchanges that were judged by their beginning."""
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By requirement and verdict."""

    def add(self, one: JudgedExchange) -> None:
        """Count an exchange."""
        self.judged += 1
        self.remembered += one.remembered
        self.violating += one.failed
        self.untold += one.untold
        self.problems += bool(one.problem)
        self.unwritten += one.unwritten
        self.partial += one.partial
        for requirement, verdict, count in one.counts:
            self.findings[requirement, verdict] += count

    def of(self, verdict: Verdict) -> list[tuple[str, int]]:
        """The requirements with this verdict and how often it was found, most often first."""
        found = [(name, count) for (name, given), count in self.findings.items() if given == verdict]
        return sorted(found, key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Where the figures come from."""

    counts: Counts
    tally: Tally
    open_streams: Callable[[], int]
    waiting: Callable[[], int]
    lost: Callable[[], int]


EVERYWHERE = "0.0.0.0"
"""Every interface: the library's server takes no empty host."""


def serve_metrics(readings: Readings, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve `/metrics` on `host:port` (0: any free port): the port, and what stops it. Raises `UsageError`."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(readings))
    try:
        server, thread = start_http_server(port, host or EVERYWHERE, registry)
    except OSError as problem:
        raise UsageError(
            f"metrics can't be served on {host}:{port}: {problem.strerror}", hint="choose another port with --metrics"
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop


class _Collector:
    """Reads the figures when the page is asked for; nothing is counted twice."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts, tally, readings = self._readings.counts, self._readings.tally, self._readings
        plain = {
            "connections": ("Connections of data planes", counts.connections),
            "streams": ("Process streams relayed", counts.streams),
            "other_calls": ("Calls of other methods relayed", counts.other_calls),
            "epp_unreachable": ("Connections cut because the EPP could not be reached", counts.unreachable),
            "connections_unopened": ("Connections cut for want of TLS or HTTP/2 of the data plane", counts.unopened),
            "streams_lost": ("Streams that were open when the connection to the EPP broke", counts.lost),
            "streams_refused": ("Streams refused, as the EPP takes no more at a time, or leaves", counts.refused),
            "recordings_ended_early": ("Exchanges recorded up to a limit only", counts.ended_early),
            "recording_failures": ("Exchanges of which the recording failed", counts.failures),
            "remembered_exchanges": ("Judged exchanges whose findings were remembered", tally.remembered),
            "untold_exchanges": ("Judged exchanges that tell nothing of the EPP", tally.untold),
            "violating_exchanges": ("Judged exchanges in which a rule was broken", tally.violating),
            "unwritten_exchanges": ("Judged exchanges whose transcript could not be written", tally.unwritten),
            "partial_exchanges": ("Judged exchanges of which what came late is not known", tally.partial),
            "judging_problems": ("Exchanges on which a judge raised, or trouble with transcripts", tally.problems),
        }
        for name, (text, value) in plain.items():
            yield CounterMetricFamily(f"epp_tap_{name}", text, value=value)
        moved = CounterMetricFamily("epp_tap_bytes", "Bytes relayed, by the side they go to", labels=["to"])
        moved.add_metric(["epp"], counts.bytes_to_epp)
        moved.add_metric(["data-plane"], counts.bytes_to_data_plane)
        yield moved
        exchanges = CounterMetricFamily("epp_tap_exchanges", "What became of each exchange", labels=["outcome"])
        for outcome, value in (
            ("judged", tally.judged),
            ("sampled_out", counts.sampled_out),
            ("left_out", counts.declined + tally.unjudged),
            ("lost", readings.lost()),
        ):
            exchanges.add_metric([outcome], value)
        yield exchanges
        findings = CounterMetricFamily("epp_tap_findings", "What the judges found", labels=["requirement", "verdict"])
        for (requirement, verdict), value in sorted(tally.findings.copy().items()):
            findings.add_metric([requirement, verdict], value)
        yield findings
        yield GaugeMetricFamily("epp_tap_open_streams", "Streams being relayed", value=readings.open_streams())
        yield GaugeMetricFamily("epp_tap_judging_waiting", "Exchanges that wait to be judged", value=readings.waiting())
