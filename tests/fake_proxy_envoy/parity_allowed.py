"""The differences between the fake proxy and real Envoy that are known, each with its reason.

A case may differ only where an entry says so, and must differ there unless the wire decides: a defect that is mended
fails its cases until its entry is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Side = Literal["fake", "envoy", "wire"]
"""Who departs: the fake (a defect, to be mended), Envoy (a defect of Envoy, not imitated), or nobody: the exchange ends
while bytes are on their way, and neither order is wrong."""


@dataclass(frozen=True)
class Allowed:
    """Cases whose id matches one of `cases` (shell patterns) may differ in the `fields` of the observation."""

    name: str
    side: Side
    cases: tuple[str, ...]
    fields: tuple[str, ...]
    reason: str

    def covers(self, case: str) -> bool:
        """Whether this entry speaks of the case."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases)


def stale(case: str, differing: set[str]) -> list[str]:
    """Names of the entries that say that the case differs, where it does not."""
    return [one.name for one in ALLOWED if one.side != "wire" and one.covers(case) and not differing & set(one.fields)]


def allowed_fields(case: str) -> set[str]:
    """The fields in which the case may differ."""
    return {field for entry in ALLOWED if entry.covers(case) for field in entry.fields}


ALLOWED = (
    Allowed(
        "trailers-double-the-body",
        "envoy",
        (
            "request/trailers/fds/*",
            "request/paced-trailers/*",
            "config/[!hb]*/trailers/*",
            "config/by-*/trailers/*",
            "behaviour/sets-trailers/fds/*",
            "retry/503-first/fds/trailers",
        ),
        ("upstream",),
        "Envoy 1.40 sends the request body twice to the model server when the request has trailers, its body has "
        "already passed the EPP, and the route retries: the copy kept for the retry is passed on again with the "
        "trailers. Without retries it does not happen. The fake sends the body once.",
    ),
    Allowed(
        "http2-buffer-limit",
        "fake",
        ("request/large*/buffered/http2", "request/large*/mixed/http2", "reply/large/buffered/http2"),
        ("messages", "ending", "upstream", "client"),
        "For an HTTP/2 client Envoy buffers up to the stream's window, 16 MiB by default, before it answers 413 or "
        "500; the fake has one `buffer_limit` of 1 MiB for both protocols.",
    ),
    Allowed(
        "upstream-error-text",
        "fake",
        (
            "reply/reset/*",
            "retry/reset-all/*",
            "retry/dead-only/*",
            "retry/reset-first/no-retry", "retry/dead-first/no-retry",
        ),
        ("messages", "client"),
        "Envoy's reply reads `reset reason: connection termination` (with blanks), and after a retry `retried and the "
        "latest reset reason: …`; the fake writes `connection_termination`, and never speaks of the retry.",
    ),
    Allowed(
        "cut-before-the-client-got-headers",
        "fake",
        ("reply/reset-after-head/*", "reply/reset-after-one/buffered/*"),
        ("client",),
        "A response that breaks before its headers have left for the client becomes a 502 with `… reset reason: "
        "protocol error`, of which the EPP sees nothing; the fake cuts the client's connection.",
    ),
    Allowed(
        "early-response-has-no-service-time",
        "fake",
        ("reply/early/*",),
        ("messages", "client"),
        "Envoy adds `x-envoy-upstream-service-time` only when the whole request has gone; the fake adds it always.",
    ),
    Allowed(
        "inline-headers-are-joined",
        "fake",
        ("behaviour/appends-header/*",),
        ("upstream",),
        "Appending to one of Envoy's well-known headers (here `accept`) gives one entry, `a,b`; others get a second "
        "entry. The fake always adds an entry.",
    ),
    Allowed(
        "append-action-is-ignored",
        "fake",
        ("behaviour/adds-if-absent/*", "behaviour/overwrites-if-exists/*"),
        ("upstream",),
        "ext_proc in Envoy 1.40 reads only the deprecated `append`: whatever `append_action` says, the header is set. "
        "The fake honours ADD_IF_ABSENT and OVERWRITE_IF_EXISTS.",
    ),
    Allowed(
        "both-values",
        "fake",
        ("behaviour/both-values/*",),
        ("messages", "upstream", "client"),
        "A HeaderValue with `value` and `raw_value` is taken by its `raw_value`; the fake fails the request.",
    ),
    Allowed(
        "header-without-name",
        "fake",
        ("behaviour/header-without-name/*",),
        ("messages", "client"),
        "Envoy lets an empty header name pass, and the model server refuses the request; the fake fails it at once.",
    ),
    Allowed(
        "length-never-reached",
        "fake",
        (
            "behaviour/sets-length-too-long/buffered/*",
            "behaviour/sets-length-too-long/mixed/*",
        ),
        ("messages", "ending", "upstream", "client"),
        "With a content-length above the body's, Envoy waits for the model server until the client or the route's "
        "limit ends it; the fake closes the connection, which becomes a reset and is retried.",
    ),
    Allowed(
        "unknown-attributes",
        "fake",
        ("config/attributes/*",),
        ("messages",),
        "Envoy leaves out attributes that do not exist or have no value (`request.useragent` without that header) and "
        "gives an empty `request.query`; the fake says `NULL` for all three.",
    ),
    Allowed(
        "original-destination",
        "fake",
        ("config/dial-*/pick-*",),
        ("messages", "upstream", "client"),
        "An ORIGINAL_DST cluster takes the whole value as one address, so that a list is `no healthy upstream`; it "
        "retries the same address, and says nothing of an endpoint that it could not reach. The fake with an empty "
        "pool walks lists as it does with a pool.",
    ),
    Allowed(
        "fail-open-in-full-duplex",
        "wire",
        ("down/fds/down-open/post",),
        ("upstream", "client"),
        "The EPP is down. failure_mode_allow applies only until the body has reached the filter: in Envoy the body and "
        "the refused connection race, 200 or 500. In the fake the refusal always comes first, 200.",
    ),
    Allowed(
        "messages-in-the-same-turn",
        "wire",
        (
            "behaviour/two-headers-answers/buffered/*",
            "behaviour/two-headers-answers/streamed/*",
            "behaviour/two-headers-answers/mixed/*",
            "behaviour/closes-after-headers/buffered/*",
            "behaviour/closes-after-headers/streamed/*",
            "behaviour/closes-after-headers/mixed/*",
            "open/two-headers-answers/buffered/post",
            "open/two-headers-answers/streamed/post",
            "open/two-headers-answers/mixed/post",
        ),
        ("messages",),
        "Two answers in one read: Envoy resets the stream before the message that the first one caused has left. The "
        "fake's message has left.",
    ),
    Allowed(
        "pooled-connections",
        "wire",
        (
            "behaviour/extra-body-*",
            "behaviour/replaces-*/fds/*",
            "behaviour/trailers-for-headers/fds/*",
        ),
        ("upstream",),
        "The exchange fails right after the request was passed on: Envoy has an idle connection to the model server, "
        "and the request is there already; the fake dials for each attempt, and gives up before it is connected.",
    ),
)  # fmt: skip
