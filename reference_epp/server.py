"""Put the parts together and serve them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace

from ext_proc.http2.frames import Setting
from ext_proc.server import Server
from ext_proc.server import serve as listen
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

HTTP2_SETTINGS = (
    (Setting.MAX_CONCURRENT_STREAMS, 100_000),  # an exchange keeps its stream open, so a limit would be one of load
    (Setting.INITIAL_WINDOW_SIZE, 1024 * 1024),
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
    scraper: type[Scraper] = Scraper

    def exchange(self, *classes: type) -> Parts:
        """The same with each of `classes` in the place of the class that it derives from; several in one place are
        its bases."""
        chosen: dict[str, tuple[type, ...]] = {}
        for replacement in classes:
            place = next(item.name for item in fields(self) if issubclass(replacement, getattr(self, item.name)))
            chosen[place] = (replacement, *chosen.get(place, ()))
        return replace(
            self, **{place: found[0] if len(found) == 1 else type(place, found, {}) for place, found in chosen.items()}
        )


async def serve(settings: Settings, parts: Parts) -> None:
    """Serve until SIGINT or SIGTERM; prints where as a line of JSON as soon as streams are accepted.

    Raises `ConfigError` for a wrong configuration, `OSError` if a port can't be had or a certificate can't be read.
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
    beside = "127.0.0.1" if host.startswith("unix:") else host
    health = parts.health(pool)
    async with contextlib.AsyncExitStack() as stack:
        scraper = parts.scraper(pool, readings, settings.scrape_interval)
        stack.push_async_callback(scraper.stop)
        source = EndpointsFile(settings.endpoints_file, pool)
        source.start()

        tls = settings.tls.context(beside) if settings.tls is not None else None
        process = parts.service(epp, parts.conversation).process
        server = await listen(host, port, process, tls=tls, methods=health.methods(), settings=HTTP2_SETTINGS)
        stack.push_async_callback(server.close)
        addresses = {"address": server.address}
        if settings.health_port is not None:
            checks = await listen(beside, settings.health_port, None, methods=health.methods())
            stack.push_async_callback(checks.close)
            addresses["health_address"] = checks.address
        if settings.metrics_port is not None:
            from reference_epp.metrics import serve_metrics

            bound, stop = serve_metrics(beside, settings.metrics_port, pool, accounting)
            stack.callback(stop)
            addresses["metrics_address"] = _address(beside, bound)
        stack.push_async_callback(_drain, health, server, settings.stop_deadline)
        watches = [source.watch()]
        if settings.tls is not None and tls is not None:
            watches.append(settings.tls.watch(tls))
        for watch in watches:
            stack.callback(asyncio.get_running_loop().create_task(watch).cancel)
        yield addresses


async def _drain(health: Health, server: Server, deadline: float) -> None:
    """Say that nothing new is taken, and let open streams end by themselves, but no longer than `deadline` seconds."""
    health.stop()
    if not await server.drain(deadline):
        LOG.warning("streams were still open at the deadline", extra={"seconds": deadline})


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _stop_signal() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second one ends the process at once
