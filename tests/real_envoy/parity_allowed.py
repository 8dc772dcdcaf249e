"""The differences between the fake proxy and real Envoy that are known, each with its reason.

A case may differ only where an entry says so, and must differ there unless the wire decides: a defect that is mended
fails its cases until its entry is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Side = Literal["fake", "envoy", "wire"]
"""Who departs: the fake (a defect, to be mended), Envoy (a defect of Envoy, not imitated), or neither: two things
happen at once, and neither order is wrong."""


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
        "leaving-doubles-the-body",
        "envoy",
        ("behaviour/leaves-request-open/fds/*",),
        ("upstream",),
        "The same happens where the EPP closes its stream when it has given back all of the request body but its end: "
        "Envoy 1.40 sends the body again, and no end. The fake sends it once, and no end either.",
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
        "body-after-100-continue",
        "wire",
        ("request/expect/streamed/http1",),
        ("messages",),
        "The client sends its body when 100 Continue has reached it; the EPP answers the request headers meanwhile. A "
        "body that comes first waits and is sent as one message; one that comes after the answer is sent as it is "
        "read, and its end as another message. Both data planes do both.",
    ),
)  # fmt: skip
