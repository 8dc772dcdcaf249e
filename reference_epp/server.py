"""Put the parts together and serve them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace

import grpc

from reference_epp.accounting import Accounting
from reference_epp.conversation import Conversation
from reference_epp.endpoints import EndpointsFile, Pool
from reference_epp.epp import Bodies, Epp
from reference_epp.health import Health
from reference_epp.picker import Limits, Picker
from reference_epp.reporter.attributes import Reporter
from reference_epp.reporter.config import ConfigReader, read_config
from reference_epp.reporter.report import Report
from reference_epp.scraper import Readings, Scraper
from reference_epp.service import Service
from reference_epp.settings import Settings

LOG = logging.getLogger(__name__)

STOP_GRACE = 0.2
"""Seconds that open streams get when the EPP stops."""

OPTIONS = (
    # Above their defaults gRPC drops streams when some two thousand begin at once.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port that is taken is to be an error
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The classes that an EPP is made of. Faults and variants exchange one or two of them for subclasses."""

    conversation: type[Conversation] = Conversation
    picker: type[Picker] = Picker
    health: type[Health] = Health
    service: type[Service] = Service
    config: type[ConfigReader] = ConfigReader
    reporter: type[Reporter] = Reporter
    report: type[Report] = Report

    def exchange(self, *classes: type) -> Parts:
        """The same with each of `classes` in the place of the class that it derives from."""
        parts = self
        for replacement in classes:
            place = next(item.name for item in fields(self) if issubclass(replacement, getattr(self, item.name)))
            parts = replace(parts, **{place: replacement})
        return parts


async def serve(settings: Settings, parts: Parts) -> None:
    """Serve until SIGINT or SIGTERM; prints where as a line of JSON as soon as streams are accepted.

    Raises `ConfigError` for a wrong configuration, `RuntimeError` if a port can't be had, `OSError` if a certificate
    can't be read.
    """
    async with running(settings, parts) as addresses:
        print(json.dumps({"event": "listening"} | addresses), flush=True)  # noqa: T201  # who started us waits for it
        await _stop_signal()
    LOG.info("stopped")


@contextlib.asynccontextmanager
async def running(settings: Settings, parts: Parts) -> AsyncIterator[dict[str, str]]:
    """An EPP that serves within the context; gives the addresses by name: `address`, `health_address`, …"""
    pool, accounting, readings = Pool(), Accounting(), Readings(settings.staleness)
    limits = Limits(
        queue_threshold=settings.queue_threshold,
        kv_threshold=settings.kv_threshold,
        endpoints=settings.max_endpoints,
    )
    epp = Epp(
        picker=parts.picker(pool, readings, accounting, limits),
        accounting=accounting,
        version=settings.version,
        models=settings.models,
        objectives=settings.objectives,
        metadata_namespace=settings.metadata_namespace,
        subset_namespace=settings.subset_namespace,
        patience=settings.patience,
        bodies=Bodies(each=settings.max_body),
        reporter=parts.reporter(read_config(settings.config_file, settings.config_text, parts.config)),
        report=parts.report,
    )
    host, port = settings.listen
    health = parts.health(pool)
    async with contextlib.AsyncExitStack() as stack:
        scraper = Scraper(pool, readings, settings.scrape_interval)
        stack.push_async_callback(scraper.stop)
        source = EndpointsFile(settings.endpoints_file, pool)
        source.start()

        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((parts.service(epp, parts.conversation).handler(), health.handler()))
        addresses = {"address": _address(host, _bind(server, settings, host, port))}
        servers = [server]
        if settings.health_port is not None:
            servers.append(grpc.aio.server(options=OPTIONS))
            servers[-1].add_generic_rpc_handlers((health.handler(),))
            bound = servers[-1].add_insecure_port(_address(host, settings.health_port))
            addresses["health_address"] = _address(host, bound)
        if settings.metrics_port is not None:
            from reference_epp.metrics import serve_metrics

            bound, stop = serve_metrics(host, settings.metrics_port, pool, accounting)
            stack.callback(stop)
            addresses["metrics_address"] = _address(host, bound)
        for one in servers:
            await one.start()
            stack.push_async_callback(one.stop, STOP_GRACE)
        watching = asyncio.get_running_loop().create_task(source.watch())
        stack.callback(watching.cancel)
        yield addresses


def _bind(server: grpc.aio.Server, settings: Settings, host: str, port: int) -> int:
    if settings.tls is None:
        return int(server.add_insecure_port(_address(host, port)))
    return int(server.add_secure_port(_address(host, port), settings.tls.credentials(host)))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _stop_signal() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
