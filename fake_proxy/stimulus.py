"""What is done to an EPP beyond an ordinary request: dynamic metadata, and ways to leave Envoy's contract.

The machine consults a `Stimulus` when it builds messages; all else stays Envoy. Knobs marked *off-contract* make
messages that Envoy never sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from ext_proc.messages import Value
from fake_proxy.actions import Layer
from fake_proxy.config import ProxyConfig


class ServedMetadata(Enum):
    """What response messages say about the endpoint that served: the truth, or nothing."""

    ACTUAL = "actual"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """Off-contract: bytes `raw`, sent right after the first message of kind `after` (`open`: before all).

    Of `layer` `http2` they are frames; the connection is then spoilt for other streams.
    """

    after: str
    raw: bytes
    layer: Layer = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """Deviations for one exchange; the default deviates in nothing."""

    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Dynamic metadata set before the exchange, by namespace: plain values, as `ext_proc.headers.to_struct` takes.
    Only configured `forwarding_namespaces` reach the EPP."""
    metadata_on: Literal["every", "headers", "body", "none"] = "every"
    """Off-contract unless `every`: the messages that carry `metadata_context`."""
    served: ServedMetadata | str | Value | tuple[str, ...] = ServedMetadata.ACTUAL
    """A string or Value replaces the endpoint in `served_key`; of a tuple the first that is not that endpoint."""
    append: bytes = b""
    """Serialised fields added to every message, such as fields unknown to the schema."""
    inject: tuple[Injection, ...] = ()
    withhold: frozenset[str] = frozenset()
    """Off-contract: kinds of messages (`request_headers`, `request_body`, …) that are not sent."""
    duplicate_end: bool = False
    """Off-contract: the request_body message with `end_of_stream` is sent twice."""

    def report(self, endpoint: str | None) -> Value | None:
        """What is reported after `endpoint` was chosen; None for nothing."""
        match self.served:
            case ServedMetadata.ABSENT:
                return None
            case Value() as value:
                return value
            case tuple() as several:
                return Value(string_value=next(one for one in several if one != endpoint))
            case str() as text:
                return Value(string_value=text)
            case ServedMetadata.ACTUAL:
                return Value(string_value=endpoint)


def subset_hint(config: ProxyConfig, endpoints: object) -> dict[str, dict[str, object]]:
    """Metadata with the subset hint `endpoints`: a list of `ip:port` by contract, any other value off-contract."""
    return {config.subset_namespace: {config.subset_key: endpoints}}
