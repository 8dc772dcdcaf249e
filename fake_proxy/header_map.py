"""Envoy's header map: names in lower case, pseudo-headers first, and well-known headers with one entry each.

What is added to a well-known header joins the entry that is there, with a comma. Which headers those are was read off
Envoy 1.40 with every header sent twice; a separate list for each kind of map.
"""

from __future__ import annotations

from fake_proxy.actions import HeaderList

_BOTH = (
    b"cache-control", b"content-encoding", b"content-type", b"proxy-status", b"via", b"x-envoy-attempt-count",
    b"x-envoy-decorator-operation", b"x-request-id",
)  # fmt: skip

REQUEST = frozenset({
    *_BOTH, b"accept", b"accept-encoding", b"access-control-request-headers", b"access-control-request-method",
    b"access-control-request-private-network", b"authorization", b"cdn-loop", b"expect", b"grpc-accept-encoding",
    b"grpc-timeout", b"if-match", b"if-modified-since", b"if-none-match", b"if-range", b"if-unmodified-since",
    b"origin", b"pragma", b"referer", b"te", b"user-agent", b"x-client-trace-id", b"x-envoy-downstream-service-cluster",
    b"x-envoy-external-address", b"x-envoy-original-path", b"x-forwarded-for", b"x-forwarded-host",
    b"x-forwarded-port", b"x-forwarded-proto",
})  # fmt: skip
"""Well-known headers of requests. Request trailers have none."""

RESPONSE = frozenset({
    *_BOTH, b"access-control-allow-credentials", b"access-control-allow-headers", b"access-control-allow-methods",
    b"access-control-allow-origin", b"access-control-allow-private-network", b"access-control-expose-headers",
    b"access-control-max-age", b"age", b"connection", b"date", b"etag", b"expires", b"grpc-message", b"grpc-status",
    b"keep-alive", b"last-modified", b"location", b"proxy-connection", b"server", b"transfer-encoding", b"upgrade",
    b"vary", b"x-envoy-degraded", b"x-envoy-immediate-health-check-fail",
    b"x-envoy-ratelimited", b"x-envoy-upstream-canary", b"x-envoy-upstream-healthchecked-cluster",
    b"x-envoy-upstream-service-time",
})  # fmt: skip
"""Well-known headers of responses."""

RESPONSE_TRAILERS = frozenset({b"grpc-message", b"grpc-status"})
"""Well-known trailers of responses."""


def get(headers: HeaderList, name: bytes) -> bytes | None:
    """The first value of `name`."""
    return next((value for key, value in headers if key == name), None)


def number(value: bytes | None) -> int | None:
    """`value` as a number; None if it is none, or has more digits than Envoy reads."""
    return int(value) if value is not None and value.isdigit() and len(value) < 20 else None


def remove(headers: HeaderList, name: bytes) -> None:
    """Drop every entry of `name`."""
    if any(key == name for key, _ in headers):
        headers[:] = [entry for entry in headers if entry[0] != name]


def put(headers: HeaderList, name: bytes, value: bytes) -> None:
    """Set `name` to `value` alone: in the place of its first entry, or at the end (pseudo-headers: before others)."""
    for index, (key, _) in enumerate(headers):
        if key == name:
            headers[index] = (name, value)
            headers[index + 1 :] = [entry for entry in headers[index + 1 :] if entry[0] != name]
            return
    if name.startswith(b":"):
        headers.insert(sum(key.startswith(b":") for key, _ in headers), (name, value))
    else:
        headers.append((name, value))


def add(headers: HeaderList, name: bytes, value: bytes, known: frozenset[bytes]) -> None:
    """Add a value of `name`: to its entry if it is one of the well-known headers `known`, in a new entry if
    not."""
    if name in known:
        for index, (key, before) in enumerate(headers):
            if key == name:
                headers[index] = (name, b",".join(filter(None, (before, value))))
                return
    headers.append((name, value))


def joined(entries: HeaderList, known: frozenset[bytes]) -> HeaderList:
    """`entries` as they come from the wire, as Envoy holds them."""
    if len({name for name, _ in entries}) == len(entries):
        return entries
    found: HeaderList = []
    for name, value in entries:
        add(found, name, value, known)
    return found
