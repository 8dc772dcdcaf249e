"""What a real Envoy is to be: the same `ProxyConfig` as the fake's, and what only a real one has.

`EnvoySettings` describe one gateway: a listener with an ext_proc filter, the pool behind it, and its EPP. Several
gateways fit into one Envoy.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ext_proc.headers import to_value
from ext_proc.http2.address import socket_path, split_address
from ext_proc.http2.tls import ClientTls
from ext_proc.record import Headers
from fake_proxy.config import Ending, ProtocolConfigForm, ProxyConfig
from fake_proxy.router import dialable
from real_envoy import binary

SUBSET_HEADER = "x-test-subset-b64"
"""The request header that carries a subset hint into Envoy; `subset_header_value` makes its value."""


class Routing(StrEnum):
    """How Envoy follows the EPP's choice.

    `OVERRIDE_HOST`: a load-balancing policy that walks lists of known endpoints. `ORIGINAL_DST_*`: a cluster that dials
    whatever one endpoint the header or the metadata names. `SUBSET`: subset load balancing over endpoints labelled with
    their own address, which follows metadata only.
    """

    OVERRIDE_HOST = "override-host"
    ORIGINAL_DST_HEADER = "original-dst-header"
    ORIGINAL_DST_METADATA = "original-dst-metadata"
    SUBSET = "subset"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """One gateway. Times are seconds. Raises `ValueError` for what a real Envoy can't be told to do.

    `epp` is `host:port` with an IP address, or `unix:/path`. `config` is what the fake proxy understands too, with its
    pool; knobs that would make the fake depart from Envoy are refused.
    """

    epp: str
    config: ProxyConfig = field(default_factory=ProxyConfig)
    routing: Routing = Routing.OVERRIDE_HOST
    epp_tls: ClientTls | None = None
    """TLS to the EPP; with `verify=False` any certificate will do, as data planes do with GIE's EPPs."""
    authority: str = ""
    """`:authority` of the ext_proc streams; the EPP's address by default."""
    connect_timeout: float = 1.0
    route_timeout: float = 60.0
    """Until the response is complete; the only limit that full duplex knows."""
    retry_back_off: float = 0.025
    """Base of the pause before a retry; Envoy waits a random time up to it."""
    delayed_close: float = 1.0
    """How long Envoy leaves an HTTP/1.1 connection open after a response that it had to cut."""
    subset_header: str = SUBSET_HEADER
    exchange_header: str = ""
    """A request header that names the exchange. The EPP never sees it in the request; the head of its ext_proc stream
    has it, and so does the request that reaches a model server, whatever the EPP makes of the headers."""
    epp_metadata: Headers = ()
    """gRPC metadata of the ext_proc streams."""
    fresh_connections: bool = False
    """Every ext_proc stream on a separate connection, in place of one connection for all."""
    changing_pool: bool = False
    """The pool is empty at first and set with `Envoy.set_pool`, in place of `config.pool`."""
    listen: str = "127.0.0.1"
    """The address to listen on; the port is always a free one."""

    def __post_init__(self) -> None:
        self._check_addresses()
        self._check_likeness()

    def _check_addresses(self) -> None:
        if socket_path(self.epp) is None and not dialable(self.epp):
            host, _ = split_address(self.epp)
            raise ValueError(f"epp: Envoy is given addresses, not names: resolve {host!r} first")
        for endpoint in self.config.pool:
            if not dialable(endpoint):
                raise ValueError(f"config.pool: {endpoint!r} is not an IP address with a port")
        if not (self.config.pool or self.changing_pool) and self.knows_pool:
            raise ValueError(f"config.pool: routing {self.routing} chooses among known endpoints; name them")

    def _check_likeness(self) -> None:
        config = self.config
        if config.ending is Ending.DRAIN:
            raise ValueError("config.ending: a real Envoy does not drain; use Ending.ENVOY or Ending.HALF_CLOSE")
        if config.protocol_config is not ProtocolConfigForm.MODES or config.header_value_field != "raw_value":
            raise ValueError(
                "config: protocol_config and header_value_field imitate other Envoys; leave their defaults"
            )

    @property
    def knows_pool(self) -> bool:
        """Whether the routing chooses among endpoints that the cluster knows."""
        return self.routing in (Routing.OVERRIDE_HOST, Routing.SUBSET)

    @property
    def labels_endpoints(self) -> bool:
        """Whether each endpoint carries its own address as metadata."""
        return self.routing is Routing.SUBSET

    @property
    def served_by_header(self) -> bool:
        """Whether the served endpoint is reported through a response header, as the routing has no better way."""
        return self.config.report_served and self.routing is not Routing.OVERRIDE_HOST

    def require(self, envoy: binary.EnvoyBinary) -> None:
        """Raise `EnvoyTooOldError` if `envoy` lacks what these settings need."""
        if self.routing is Routing.OVERRIDE_HOST and self.config.report_served:
            envoy.require(binary.SERVED_AND_LISTS, "reporting the served endpoint (override_host.selected_host_key)")


def subset_header_value(endpoints: Any) -> bytes:
    """The value of `subset_header` for a hint: a list of `ip:port` by contract, any other plain value off-contract."""
    return base64.b64encode(to_value(endpoints).SerializeToString())
