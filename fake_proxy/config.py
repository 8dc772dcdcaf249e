"""How the data plane is configured: the parts of Envoy's ext_proc filter, router and cluster that an EPP can notice.

Defaults are those of an inference gateway: full duplex in both directions with trailers, destination in `envoy.lb` and
in a header, the served endpoint reported.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Literal

from ext_proc.messages import ProcessingMode
from ext_proc.protocol import DESTINATION, DESTINATION_NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE


class BodyMode(IntEnum):
    """Envoy's `ProcessingMode.BodySendMode`, as far as data planes use it towards an EPP."""

    NONE = ProcessingMode.NONE
    STREAMED = ProcessingMode.STREAMED
    BUFFERED = ProcessingMode.BUFFERED
    FULL_DUPLEX_STREAMED = ProcessingMode.FULL_DUPLEX_STREAMED


class Ending(StrEnum):
    """How the data plane ends a stream that it is done with.

    `ENVOY`: RST_STREAM at once. `HALF_CLOSE`: END_STREAM, then the EPP's status is awaited (Envoy's graceful close).
    `DRAIN`: END_STREAM, then everything is read until the EPP ends the stream or is quiet for `quiet_window`.
    """

    ENVOY = "envoy"
    HALF_CLOSE = "half-close"
    DRAIN = "drain"


class ProtocolConfigForm(StrEnum):
    """What the first message says in `protocol_config`: the modes in use, an empty one, or (older Envoy) nothing."""

    MODES = "modes"
    EMPTY = "empty"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """One data plane. Times are seconds, sizes bytes. Raises `ValueError` for what Envoy would refuse to load."""

    request_body_mode: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    response_body_mode: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    send_request_headers: bool = True
    send_response_headers: bool = True
    send_request_trailers: bool = True
    send_response_trailers: bool = True
    send_body_without_waiting: bool = False
    """Envoy's `send_body_without_waiting_for_header_response`; matters to STREAMED only."""

    failure_mode_allow: bool = False
    message_timeout: float = 1.0
    """Per awaited answer; never runs in FULL_DUPLEX_STREAMED."""
    status_on_error: int = 500

    forwarding_namespaces: tuple[str, ...] = (DESTINATION_NAMESPACE, SUBSET_NAMESPACE)
    receiving_namespaces: tuple[str, ...] = (DESTINATION_NAMESPACE,)
    destination_namespace: str = DESTINATION_NAMESPACE
    destination_key: str = DESTINATION
    destination_header: str = DESTINATION
    destination_sources: tuple[Literal["metadata", "header"], ...] = ("metadata", "header")
    """Where the router looks for the destination; the lists found are walked one after the other."""
    report_served: bool = True
    served_key: str = SERVED
    subset_namespace: str = SUBSET_NAMESPACE
    subset_key: str = SUBSET

    pool: tuple[str, ...] = ()
    """Endpoints the cluster knows. Unknown picks go round-robin over it. Empty: every well-formed pick is dialled, and
    lists are walked, which no Envoy does: for who does not know the pool."""
    pool_grows: bool = False
    """Others may have joined since: every well-formed pick is dialled, and `pool` is only what is fallen back to."""
    original_destination: bool = False
    """Envoy's ORIGINAL_DST cluster: the first of `destination_sources` is one address, dialled whatever it is; no list,
    and nothing to fall back to. The served endpoint is reported by the response alone."""
    num_retries: int = 3
    retriable_statuses: tuple[int, ...] = (503,)

    refused_with: int | None = None
    """HTTP status with which a filter before ext_proc (Envoy's fault filter) answers each request: of the request the
    EPP sees nothing, and of the reply everything."""

    protocol_config: ProtocolConfigForm = ProtocolConfigForm.MODES
    header_value_field: Literal["raw_value", "value", "both"] = "raw_value"
    """`value` is what Envoy before 1.27 sent; no data plane is known to fill both."""
    request_attributes: tuple[str, ...] = ()
    response_attributes: tuple[str, ...] = ()

    buffer_limit: int = 1024 * 1024
    """What is buffered of a body of an HTTP/1.1 client at most, and kept for retries."""
    http2_buffer_limit: int = 16 * 1024 * 1024
    """The same for an HTTP/2 client: the window of its stream."""
    max_header_count: int = 100
    max_header_bytes: int = 60 * 1024

    ending: Ending = Ending.ENVOY
    quiet_window: float = 0.150

    def __post_init__(self) -> None:
        for direction, mode, trailers in (
            ("request", self.request_body_mode, self.send_request_trailers),
            ("response", self.response_body_mode, self.send_response_trailers),
        ):
            if mode is BodyMode.FULL_DUPLEX_STREAMED and not trailers:
                raise ValueError(
                    f"{direction}_body_mode FULL_DUPLEX_STREAMED needs send_{direction}_trailers=True: "
                    "in this mode trailers may end the body, and Envoy refuses a configuration without them"
                )

    def buffer_of(self, http: Literal[1, 2]) -> int:
        """The limit that holds for a client of this version of HTTP."""
        return self.http2_buffer_limit if http == 2 else self.buffer_limit

    def with_modes(self, mode: BodyMode) -> ProxyConfig:
        """This configuration with `mode` in both directions."""
        return dataclasses.replace(self, request_body_mode=mode, response_body_mode=mode)
