"""The ways in which the field sets Envoy up towards an EPP, by name. Each becomes settings with `.settings`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ext_proc.http2.tls import ClientTls
from fake_proxy.config import BodyMode, ProxyConfig
from real_envoy.settings import EnvoySettings, Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyVariant:
    """A way of routing and a configuration of ext_proc; `about` says in a sentence who uses it."""

    about: str
    routing: Routing
    config: ProxyConfig

    def settings(
        self, *, epp: str, pool: tuple[str, ...] = (), epp_tls: ClientTls | None = None, authority: str = ""
    ) -> EnvoySettings:
        """A gateway of this kind before the EPP at `epp` (`ip:port`). `pool` are the endpoints the cluster knows.

        Raises `ValueError` if the routing needs a pool and there is none.
        """
        config = dataclasses.replace(self.config, pool=pool)
        return EnvoySettings(epp=epp, config=config, routing=self.routing, epp_tls=epp_tls, authority=authority)


_FULL_DUPLEX = ProxyConfig()
_STREAMED = ProxyConfig().with_modes(BodyMode.STREAMED)
_AI_GATEWAY = ProxyConfig(
    request_body_mode=BodyMode.BUFFERED,
    response_body_mode=BodyMode.STREAMED,
    send_request_trailers=False,
    send_response_trailers=False,
    message_timeout=5.0,
    forwarding_namespaces=(),
    receiving_namespaces=(),
    destination_sources=("header",),
    report_served=False,
)
"""Envoy AI Gateway's example for custom EPPs: neither metadata in any direction nor the served endpoint."""


def _open(config: ProxyConfig) -> ProxyConfig:
    return dataclasses.replace(config, failure_mode_allow=True)


VARIANTS: Mapping[str, EnvoyVariant] = MappingProxyType(
    {
        "override-host": EnvoyVariant(
            about="Full duplex, lists from metadata or header, served endpoint reported by the load balancer.",
            routing=Routing.OVERRIDE_HOST,
            config=_FULL_DUPLEX,
        ),
        "override-host-open": EnvoyVariant(
            about="The same, failing open, which full duplex allows only until a body has left for the EPP.",
            routing=Routing.OVERRIDE_HOST,
            config=_open(_FULL_DUPLEX),
        ),
        "override-host-streamed": EnvoyVariant(
            about="The same with bodies sent in step with the answers.",
            routing=Routing.OVERRIDE_HOST,
            config=_STREAMED,
        ),
        "override-host-streamed-open": EnvoyVariant(
            about="The same, failing open.",
            routing=Routing.OVERRIDE_HOST,
            config=_open(_STREAMED),
        ),
        "original-dst-header": EnvoyVariant(
            about="Dials the one endpoint in the header; the served endpoint comes back through a response header.",
            routing=Routing.ORIGINAL_DST_HEADER,
            config=dataclasses.replace(_FULL_DUPLEX, destination_sources=("header",)),
        ),
        "original-dst-metadata": EnvoyVariant(
            about="Dials the one endpoint in the metadata.",
            routing=Routing.ORIGINAL_DST_METADATA,
            config=dataclasses.replace(_FULL_DUPLEX, destination_sources=("metadata",)),
        ),
        "subset": EnvoyVariant(
            about="Subset load balancing by metadata, one endpoint at a time: kgateway's older plugin.",
            routing=Routing.SUBSET,
            config=dataclasses.replace(_FULL_DUPLEX, destination_sources=("metadata",)),
        ),
        "envoy-ai-gateway": EnvoyVariant(
            about="Envoy AI Gateway's chosen approach: ORIGINAL_DST by header; requests buffered, responses streamed.",
            routing=Routing.ORIGINAL_DST_HEADER,
            config=_AI_GATEWAY,
        ),
        "envoy-ai-gateway-override-host": EnvoyVariant(
            about="Envoy AI Gateway's other approach: override_host by header.",
            routing=Routing.OVERRIDE_HOST,
            config=_AI_GATEWAY,
        ),
        "envoy-ai-gateway-full-duplex": EnvoyVariant(
            about="Envoy AI Gateway as it configures InferencePools: ORIGINAL_DST by header, full duplex.",
            routing=Routing.ORIGINAL_DST_HEADER,
            config=dataclasses.replace(
                _AI_GATEWAY,
                request_body_mode=BodyMode.FULL_DUPLEX_STREAMED,
                response_body_mode=BodyMode.FULL_DUPLEX_STREAMED,
                send_request_trailers=True,
                send_response_trailers=True,
            ),
        ),
    }
)
