"""The messages to the EPP: what Envoy adds to each, and where a stimulus departs from it.

A message is its oneof, serialised, followed by the fields common to all; equal bytes to Envoy's, because protobuf
writes fields in the order of their numbers and so do we.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ext_proc.headers import header_map
from ext_proc.messages import (
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
    ProtocolConfiguration,
)
from fake_proxy.actions import HeaderList, SendMessage, Side
from fake_proxy.attributes import Facts, attributes_field
from fake_proxy.config import ProtocolConfigForm, ProxyConfig
from fake_proxy.metadata import DynamicMetadata, varint
from fake_proxy.stimulus import Stimulus

HeaderField: TypeAlias = Literal["raw_value", "value", "both"]


def headers_part(side: Side, headers: HeaderList, end: bool, field: HeaderField) -> bytes:
    """Oneof `request_headers` or `response_headers`, serialised; values go in `field`."""
    part = HttpHeaders(headers=_header_map(headers, field), end_of_stream=end)
    if side == "request":
        return ProcessingRequest(request_headers=part).SerializeToString()
    return ProcessingRequest(response_headers=part).SerializeToString()


def body_part(side: Side, data: bytes, end: bool) -> bytes:
    """Oneof `request_body` or `response_body`, serialised."""
    part = HttpBody(body=data, end_of_stream=end)
    if side == "request":
        return ProcessingRequest(request_body=part).SerializeToString()
    return ProcessingRequest(response_body=part).SerializeToString()


def trailers_part(side: Side, trailers: HeaderList, field: HeaderField) -> bytes:
    """Oneof `request_trailers` or `response_trailers`, serialised; values go in `field`."""
    part = HttpTrailers(trailers=_header_map(trailers, field))
    if side == "request":
        return ProcessingRequest(request_trailers=part).SerializeToString()
    return ProcessingRequest(response_trailers=part).SerializeToString()


def _header_map(headers: HeaderList, field: HeaderField) -> HeaderMap:
    if field == "raw_value":
        return header_map(headers)
    return HeaderMap(
        headers=[
            HeaderValue(
                key=name.decode(),
                value=value.decode("utf-8", "replace"),
                raw_value=value if field == "both" else b"",
            )
            for name, value in headers
        ]
    )


class MessageWriter:
    """Completes messages of one stream: metadata on each, attributes once a side, protocol_config on the first."""

    __slots__ = ("_attributed", "_config", "_configured", "_facts", "_injections", "_metadata", "_opened", "_stimulus")

    def __init__(self, config: ProxyConfig, stimulus: Stimulus, metadata: DynamicMetadata, facts: Facts) -> None:
        self._config = config
        self._stimulus = stimulus
        self._metadata = metadata
        self._facts = facts
        self._configured = config.protocol_config is ProtocolConfigForm.ABSENT
        self._attributed: set[Side] = set()
        self._injections = list(stimulus.inject)
        self._opened = False

    def write(self, side: Side, kind: str, part: bytes, *, end: bool) -> list[SendMessage]:
        """What to send where Envoy sends one message: `part` is its oneof `kind`; `end` says if it ends its side."""
        out = []
        if not self._opened:
            self._opened = True
            out += self._injected("open")
        if kind not in self._stimulus.withhold:
            message = SendMessage(kind, self._complete(side, kind, part))
            out.append(message)
            if self._stimulus.duplicate_end and end and kind == "request_body":
                out.append(message)
        if self._injections:
            out += self._injected(kind)
        return out

    def _complete(self, side: Side, kind: str, part: bytes) -> bytes:
        raw = part
        carrying = self._stimulus.metadata_on
        if carrying == "every" or (carrying != "none" and kind.endswith(carrying)):
            raw += self._metadata.context()
        names = self._config.request_attributes if side == "request" else self._config.response_attributes
        if names and side not in self._attributed:
            self._attributed.add(side)
            raw += attributes_field(names, self._facts)
        if not self._configured:
            self._configured = True
            raw += _protocol_config(self._config)
        return raw + self._stimulus.append

    def _injected(self, after: str) -> list[SendMessage]:
        due = [injection for injection in self._injections if injection.after == after]
        self._injections = [injection for injection in self._injections if injection.after != after]
        return [SendMessage("injected", injection.raw, injection.layer) for injection in due]


def _protocol_config(config: ProxyConfig) -> bytes:
    """Field `protocol_config` (11) of the first message, present even when it is empty."""
    raw = b""
    if config.protocol_config is ProtocolConfigForm.MODES:
        raw = ProtocolConfiguration(
            request_body_mode=config.request_body_mode,
            response_body_mode=config.response_body_mode,
            send_body_without_waiting_for_header_response=config.send_body_without_waiting,
        ).SerializeToString()
    return b"\x5a" + varint(len(raw)) + raw
