"""Where a request goes: Envoy's override_host load balancing and the router's retries, without I/O.

The destination lists named by `destination_sources` are put one after the other and walked one step per attempt.
Entries that the cluster does not know are skipped; with none left, the pool is used round-robin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from fake_proxy.actions import AbortUpstream, Action, HeaderList, OpenUpstream, UpstreamData, UpstreamTrailers
from fake_proxy.config import ProxyConfig
from fake_proxy.header_map import get
from fake_proxy.metadata import DynamicMetadata

Failure: TypeAlias = Literal["connect-failed", "reset", "protocol-error"]
"""Why an attempt broke: no connection, the connection lost, or an answer that is no (complete) HTTP."""

_REASONS: dict[Failure, tuple[int, str, str]] = {
    "connect-failed": (503, "remote connection failure", "|delayed connect error: Connection refused"),
    "reset": (503, "connection termination", ""),
    "protocol-error": (502, "protocol error", ""),
}
"""The status of Envoy's reply, the reason in its body, and what only the details add."""

LocalReply: TypeAlias = Callable[[int, bytes, str], None]
"""Called with status, body and details when the router has to answer itself."""


def dialable(endpoint: str) -> bool:
    """Whether `endpoint` is an IP address with a port, written as Envoy would write it."""
    host, _, port = endpoint.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536 and port[0] != "0"):
        return False
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    return bracketed == (address.version == 6)


def destinations(config: ProxyConfig, metadata: DynamicMetadata, headers: HeaderList) -> list[str]:
    """The endpoints that the EPP named, in the order of the walk; blanks around entries do not count."""
    named = _named(config, metadata, headers)
    return [entry.strip() for text in named for entry in text.split(",") if entry.strip()]


def _named(config: ProxyConfig, metadata: DynamicMetadata, headers: HeaderList) -> Iterator[str]:
    """What each of the `destination_sources` says."""
    for source in config.destination_sources:
        if source == "metadata":
            yield metadata.text(config.destination_namespace, config.destination_key) or ""
        else:
            yield (get(headers, config.destination_header.encode()) or b"").decode("latin-1")


class Router:
    """Takes the request as the filter passes it on, and makes attempts of it until one may be answered with."""

    def __init__(
        self,
        config: ProxyConfig,
        metadata: DynamicMetadata,
        emit: Callable[[Action], None],
        selected: Callable[[str], None],
        local_reply: LocalReply,
        buffer_limit: int,
    ) -> None:
        self._config = config
        self._buffer_limit = buffer_limit
        self._metadata = metadata
        self._emit = emit
        self._selected = selected
        self._local_reply = local_reply
        self._walk: Iterator[str] = iter(())
        self._headers: HeaderList = []
        self._body: bytearray | None = bytearray()  # None: it was too large to be kept
        self._trailers: HeaderList | None = None
        self._fallbacks = 0
        self._bodyless = False
        self.sent = False
        """Whether the request was passed on to its end."""
        self.attempt = 0
        """Number of the latest attempt, from 1; 0 before the first."""
        self.open = False
        """Whether an attempt is under way."""

    # -- from the request direction ------------------------------------------------------------------------------------

    def headers(self, headers: HeaderList, end: bool) -> None:
        """The request may go: choose an endpoint."""
        self._headers, self.sent, self._bodyless = headers, end, end
        self._walk = iter(destinations(self._config, self._metadata, headers))
        self._try()

    def data(self, data: bytes, end: bool) -> None:
        """More body; kept for retries as long as it fits the buffer."""
        if self._body is not None and len(self._body) + len(data) <= self._buffer_limit:
            self._body += data
        else:
            self._body = None
        self.sent = end
        if self.open:
            self._emit(UpstreamData(data, end))

    def trailers(self, trailers: HeaderList) -> None:
        """The end, with trailers."""
        self._trailers, self.sent = trailers, True
        if self.open:
            self._emit(UpstreamTrailers(trailers))

    # -- from the upstream ---------------------------------------------------------------------------------------------

    def responded(self, status: int) -> bool:
        """An attempt was answered with `status`. True if this answer is passed on, False if another attempt starts."""
        if status in self._config.retriable_statuses and self._may_retry():
            self.abort()
            self._try()
            return False
        return True

    def failed(self, how: Failure) -> None:
        """An attempt broke before it was answered."""
        self.open = False
        if self._may_retry():
            self._try()
        else:
            self._local_reply(*self.broken(how, "before"))

    def broken(self, how: Failure, when: Literal["before", "after"]) -> tuple[int, bytes, str]:
        """Status, body and details of Envoy's reply in place of a response that broke `when` it had started, or not."""
        status, reason, more = _REASONS[how]
        retried = "retried and the latest " if self.attempt > 1 else ""
        text = f"upstream connect error or disconnect/reset before headers. {retried}reset reason: {reason}"
        return status, text.encode(), f"upstream_reset_{when}_response_started{{{reason}{more}}}"

    def completed(self) -> None:
        """The attempt's response is complete."""
        self.open = False

    def abort(self) -> None:
        """Drop the attempt under way, if any."""
        if self.open:
            self.open = False
            self._emit(AbortUpstream())

    # ------------------------------------------------------------------------------------------------------------------

    def _may_retry(self) -> bool:
        """Envoy retries what it still has from the beginning, be it complete or not."""
        return self._body is not None and self.attempt <= self._config.num_retries

    def _try(self) -> None:
        endpoint = self._choose()
        if endpoint is None:
            self._local_reply(503, b"no healthy upstream", "no_healthy_upstream")
            return
        self.attempt += 1
        self.open = True
        self._selected(endpoint)
        body, trailers = bytes(self._body or b""), self._trailers
        late = self.sent and not (self._bodyless or body or trailers)  # a body that turned out to be empty
        self._emit(OpenUpstream(self.attempt, endpoint, list(self._headers), body, trailers, self.sent and not late))
        if late:
            self._emit(UpstreamData(b"", True))

    def _choose(self) -> str | None:
        if self._config.original_destination:
            address = next(_named(self._config, self._metadata, self._headers), "")
            return address if dialable(address) else None
        pool = self._config.pool
        anyone = self._config.pool_grows or not pool
        for endpoint in self._walk:
            if endpoint in pool or (anyone and dialable(endpoint)):
                return endpoint
        if not pool:
            return None
        self._fallbacks += 1
        return pool[(self._fallbacks - 1) % len(pool)]
