"""What a scripted EPP does when, and for which requests.

Rule(match=Match(path="/v1/embeddings"), script=answers_immediately(503))
Rule(match=Match(nth=2), script=picks("10.0.0.1:8000", decides="end"))
Rule(script=does(request_headers=(Answer(), Answer())))      # one answer too many
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ext_proc.messages import HeaderValueOption
from ext_proc.record import Headers, values
from fake_epp.acts import Act, End, Immediate, Pick, Reset, SetHeader

MOMENTS = (
    "request_headers",
    "request_body",
    "request_trailers",
    "request_end",
    "response_headers",
    "response_body",
    "response_trailers",
    "response_end",
    "half_close",
)
"""When an EPP acts: on each message by its name; `request_end` and `response_end` on the one that completes its
direction, whatever its name; `half_close` when the data plane has ended its side of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One request as the EPP takes it.

    `acts` says what is done at a moment, in order; at all others the message is answered rightly. `decides`: the
    headers are answered at once, or only when the request is complete (full duplex: its body is held back till then).
    `edits` is what every answer to a body of the request has in place of a text: (old, new); `edits_response` likewise.
    One of another length is for full duplex. `tells_length`: where it so `decides` at the end, the answer to the
    headers sets the length that the body gets; and where the body comes BUFFERED, one of another length goes as well,
    with an answer that sets it.
    `clears`: every answer to a body of the request clears it (`clear_body`), which full duplex does not know. Where its
    length was told it stays.
    `replaces` are bodies by side that the answer to the headers puts in the place of what came, where that waits.
    `echoes`: the answers to headers set all of these again, and have the route chosen again.
    `modes` are the body modes (request, response) where the data plane does not tell them. `quiet`: nothing is answered
    but what is scripted.
    """

    pick: Pick | None = None
    decides: Literal["headers", "end"] = "headers"
    acts: Mapping[str, tuple[Act, ...]] = field(default_factory=dict)
    modes: tuple[str, str] = ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED")
    quiet: bool = False
    edits: tuple[bytes, bytes] | None = None
    edits_response: tuple[bytes, bytes] | None = None
    tells_length: bool = False
    clears: bool = False
    replaces: Mapping[str, bytes] = field(default_factory=dict)
    echoes: bool = False
    action: int | None = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    """The `append_action` of what is so set."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.acts) - set(MOMENTS))
        if unknown:
            raise ValueError(f"there is no moment {unknown[0]!r}; there are {', '.join(MOMENTS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests: all that is given must hold. `path` may have wildcards, header values too; `nth` counts the
    requests that the EPP was asked about, from 1."""

    method: str | None = None
    path: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    nth: int | None = None

    def holds(self, headers: Headers, number: int) -> bool:
        """Whether this is such a request."""
        return (
            (self.nth is None or self.nth == number)
            and (self.method is None or _has(headers, ":method", self.method))
            and (self.path is None or _has(headers, ":path", self.path))
            and all(_has(headers, name, pattern) for name, pattern in self.headers.items())
        )


def _has(headers: Headers, name: str, pattern: str) -> bool:
    found = values(headers, name.lower().encode())
    return any(fnmatch.fnmatchcase(value.decode("latin-1"), pattern) for value in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRule:
    """A script for the requests that match, `times` of them (None: all)."""

    script: Script
    match: Match = field(default_factory=Match)
    times: int | None = None


# -- scripts that are often wanted -------------------------------------------------------------------------------------


def picks(
    *endpoints: str,
    header: bool | str = True,
    metadata: bool | str = True,
    decides: Literal["headers", "end"] = "headers",
) -> Script:
    """A right EPP that names these endpoints, in this order."""
    return Script(pick=Pick(endpoints=endpoints, header=header, metadata=metadata), decides=decides)


def answers_immediately(
    code: int | None = 503, body: bytes = b"", headers: tuple[SetHeader, ...] = (), *, details: str = ""
) -> Script:
    """An ImmediateResponse to the headers, and nothing else."""
    act = Immediate(code=code, body=body, headers=headers, details=details)
    return Script(acts={"request_headers": (act,)}, quiet=True)


def closes(status: int = 0, message: str = "", *, at: str = "request_headers", pick: Pick | None = None) -> Script:
    """Ends the call with a gRPC status at a moment."""
    return Script(pick=pick, acts={at: (End(status=status, message=message),)})


def resets(code: int = 2, *, at: str = "request_headers", pick: Pick | None = None) -> Script:
    """Resets the stream at a moment."""
    return Script(pick=pick, acts={at: (Reset(code=code),)})


def stays_silent() -> Script:
    """Never answers."""
    return Script(quiet=True)


def does(*, pick: Pick | None = None, quiet: bool = False, **acts: tuple[Act, ...]) -> Script:
    """A script of acts by moment; all else is answered rightly, or not at all (`quiet`)."""
    return Script(pick=pick, acts=acts, quiet=quiet)
