"""What a fleet tells its owner: scrapes as they start, requests as they arrive. Times are `time.monotonic_ns()`."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[bytes, bytes], ...]
"""Header list in wire order, names in the case in which they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeStarted:
    """A `GET /metrics` reached `pod` at `t` (ns). `outcome`: `ok`, or the kind of the fault that it meets."""

    pod: str
    t: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request (any but a scrape) arrived whole at `endpoint` of `pod` at `t` (ns), and is about to be answered.

    `body` is the beginning of the body, up to the fleet's limit; `body_size` and `body_sha256` are of all of it.
    `model` is the `model` of a JSON body, None if there is none. `status` is the status the answer will have;
    None if the connection will be reset instead. `answer_headers` and `answer_body` are those of the answer; no body
    (None) where it is not known before it is sent.
    """

    pod: str
    endpoint: str
    t: int
    method: str
    path: str
    headers: Headers
    trailers: Headers
    body: bytes
    body_size: int
    body_sha256: str
    model: str | None
    status: int | None
    answer_headers: Headers = ()
    answer_body: bytes | None = None
