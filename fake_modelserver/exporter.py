"""Serving a page: what is on it, how it is encoded, and what faults make of it."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from fake_modelserver.faults.fault import Active
from fake_modelserver.faults.kinds import FaultType
from fake_modelserver.faults.pages import damaged
from fake_modelserver.messages import Request, Response, json_response
from fake_modelserver.page import Page, Rank

_OPENMETRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"
_ITERATIONS = 1000


class Exporter:
    """The page of some ranks of a pod, as one of its ports serves it."""

    def __init__(self, page: Page, ranks: Sequence[Rank]) -> None:
        self.page = page
        self.ranks = tuple(ranks)
        self._made: dict[tuple[bool, bool], Response] = {}
        self._iterations: deque[dict[str, Any]] = deque(maxlen=_ITERATIONS)
        self._iteration = 0

    def changed(self) -> None:
        """Something that the page shows is different now."""
        self._made.clear()
        if self.page.generation.iterations:
            self._iteration += 1
            self._iterations.append(self._step())

    def render(self) -> bytes:
        """The page in the text format, or OpenMetrics where the engine has nothing else."""
        return self.page.render(self.ranks, openmetrics=self.page.generation.openmetrics == "always")

    def serve(self, request: Request, met: Sequence[Active] = ()) -> Response:
        """The answer to a scrape that has met faults."""
        generation = self.page.generation
        asked = generation.openmetrics == "asked" and b"openmetrics" in (request.header(b"accept") or b"")
        openmetrics = generation.openmetrics == "always" or asked
        takes_gzip = b"gzip" in (request.header(b"accept-encoding") or b"")
        packed = generation.gzip and takes_gzip
        of_pages = [active for active in met if active.fault.kind.stage == "page"]
        if of_pages:
            wrongly = [active.fault["how"] for active in of_pages if active.fault.type is FaultType.PACKED]
            how = wrongly[-1] if wrongly and takes_gzip else ""
            return self._response(self._damaged(of_pages, openmetrics), openmetrics, packed or bool(how), how)
        key = (openmetrics, packed)
        if key not in self._made:
            self._made[key] = self._response(self.page.render(self.ranks, openmetrics=openmetrics), openmetrics, packed)
        return self._made[key]

    def iterations(self) -> Response:
        """The statistics of the iterations since the last call, as JSON: reading takes them out of the queue."""
        taken = list(self._iterations)
        self._iterations.clear()
        return json_response(200, taken)

    def _response(self, page: bytes, openmetrics: bool, packed: bool, how: str = "") -> Response:
        headers: tuple[tuple[bytes, bytes], ...] = (
            (b"content-type", _OPENMETRICS if openmetrics else self.page.generation.content_type),
        )
        if packed:
            packer = zlib.compressobj(wbits=31)
            full = packer.compress(page) + packer.flush()
            page = {"plain": page, "cut": full[: len(full) // 2]}.get(how, full)
            if how != "unsaid":
                headers = (*headers, (b"content-encoding", b"gzip"))
        return Response(headers=headers, body=page)

    def _damaged(self, met: Sequence[Active], openmetrics: bool) -> bytes:
        text = self.page.render(self.ranks, openmetrics=openmetrics)
        for active in met:
            fault = active.fault
            if fault.type is FaultType.PACKED:
                continue
            if fault.type is FaultType.FROZEN:
                text = self._frozen(active, text)
            else:
                lora = fault.type is FaultType.STALE_SERIES
                wanted = ("lora",) if lora else fault.attributes.get("families", ())
                text = damaged(text, fault, self.page.generation.named(wanted))
        return text

    def _frozen(self, active: Active, text: bytes) -> bytes:
        now, interval = time.monotonic(), active.fault["interval"] / 1000
        kept: dict[int, bytes] = active.kept
        if interval and now - active.refreshed >= interval:
            active.refreshed = now
            kept.clear()
        return kept.setdefault(id(self), text)

    def _step(self) -> dict[str, Any]:
        identity, gauges = self.page.identity, self.ranks[0].gauges
        used = round(identity.num_gpu_blocks * gauges.kv)
        return {
            "iter": self._iteration,
            "numActiveRequests": gauges.running,
            "numQueuedRequests": gauges.queue,
            "kvCacheStats": {
                "maxNumBlocks": identity.num_gpu_blocks,
                "usedNumBlocks": used,
                "freeNumBlocks": identity.num_gpu_blocks - used,
                "tokensPerBlock": identity.block_size,
            },
        }
