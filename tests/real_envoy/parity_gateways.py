"""The gateways of the parity matrix: each is one `ProxyConfig` for the fake and one listener of the real Envoy."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from fake_proxy.config import BodyMode, ProxyConfig
from real_envoy import Routing

MODES = ("fds", "buffered", "streamed", "mixed")
"""`mixed` is Envoy AI Gateway's example: BUFFERED requests, STREAMED responses, 5 s per message."""

_HASTY = 0.3
"""Seconds of the message timeout where it is meant to run out."""


@dataclass(frozen=True)
class Gateway:
    """A data plane's configuration; `pool` are names of endpoints, `down` means nothing listens for the EPP."""

    config: ProxyConfig = field(default_factory=ProxyConfig)
    pool: tuple[str, ...] = ("a", "b", "c", "dead")
    down: bool = False
    routing: Routing = Routing.OVERRIDE_HOST


def _config(mode: str) -> ProxyConfig:
    base = ProxyConfig(message_timeout=5.0)
    match mode:
        case "fds":
            return base
        case "buffered":
            return base.with_modes(BodyMode.BUFFERED)
        case "streamed":
            return base.with_modes(BodyMode.STREAMED)
        case _:
            return dataclasses.replace(base, request_body_mode=BodyMode.BUFFERED, response_body_mode=BodyMode.STREAMED)


def _all() -> dict[str, Gateway]:
    found, replace = {}, dataclasses.replace
    for mode in MODES:
        config = _config(mode)
        hasty = replace(config, message_timeout=_HASTY)
        lenient = replace(hasty, failure_mode_allow=True)
        found[mode] = Gateway(config)
        found[f"{mode}-one"] = Gateway(config, pool=("b",))  # where the pick may not count: one place to fall back to
        found[f"{mode}-hasty"] = Gateway(hasty, pool=("b",))
        found[f"{mode}-open"] = Gateway(lenient, pool=("b",))
        found[f"{mode}-refused"] = Gateway(replace(config, refused_with=403))
        found[f"{mode}-down"] = Gateway(config, pool=("b",), down=True)
        found[f"{mode}-down-open"] = Gateway(lenient, pool=("b",), down=True)
    fds, streamed = _config("fds"), _config("streamed")
    found["headers-only"] = Gateway(
        replace(fds.with_modes(BodyMode.NONE), send_request_trailers=False, send_response_trailers=False)
    )
    found["headers-and-trailers"] = Gateway(fds.with_modes(BodyMode.NONE))
    found["request-only"] = Gateway(
        replace(fds, response_body_mode=BodyMode.NONE, send_response_headers=False, send_response_trailers=False)
    )
    found["response-headers-only"] = Gateway(
        replace(fds, response_body_mode=BodyMode.NONE, send_response_trailers=False), pool=("b",)
    )
    found["buffered-no-headers"] = Gateway(replace(_config("buffered"), send_request_headers=False), pool=("b",))
    found["by-header"] = Gateway(replace(fds, destination_sources=("header",)))
    found["by-metadata"] = Gateway(replace(fds, destination_sources=("metadata",)))
    found["header-first"] = Gateway(replace(fds, destination_sources=("header", "metadata")))
    found["nothing-received"] = Gateway(replace(fds, receiving_namespaces=()))
    found["nothing-forwarded"] = Gateway(replace(fds, forwarding_namespaces=()))
    found["not-reported"] = Gateway(replace(fds, report_served=False))
    found["early-body"] = Gateway(replace(streamed, send_body_without_waiting=True))
    found["attributes"] = Gateway(
        replace(
            fds,
            request_attributes=(
                "request.method",
                "request.path",
                "request.host",
                "request.scheme",
                "request.protocol",
                "request.referer",
                "request.useragent",
                "request.url_path",
                "request.query",
                "response.code",
                "upstream.address",
                "xds.upstream_host_metadata",
                "no.such",
            ),
            response_attributes=(
                "response.code",
                "response.code_details",
                "upstream.address",
                "upstream.port",
                "xds.upstream_host_metadata",
                "no.such",
            ),
        )
    )
    found["status-503"] = Gateway(replace(fds, status_on_error=503))
    found["no-retry"] = Gateway(replace(fds, num_retries=0))
    found["one-retry"] = Gateway(replace(fds, num_retries=1, retriable_statuses=(429,)))
    found["dial-header"] = Gateway(
        replace(fds, destination_sources=("header",), original_destination=True),
        pool=(),
        routing=Routing.ORIGINAL_DST_HEADER,
    )
    found["dial-metadata"] = Gateway(
        replace(fds, destination_sources=("metadata",), original_destination=True),
        pool=(),
        routing=Routing.ORIGINAL_DST_METADATA,
    )
    return found


GATEWAYS = _all()
