"""What the scripted EPP does for a request that goes through a gateway under test."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from conformance.scenario.header_fields import HeaderName, HeaderPairs
from conformance.strict_yaml import FileModel


class LocalReply(FileModel):
    """An answer that the EPP gives to the client itself (ImmediateResponse)."""

    code: int = Field(503, ge=200, le=599, description="its HTTP status")
    body: str = Field("", description="its body")
    headers: HeaderPairs = Field((), description="its headers, as [name, value]")


class EppScript(FileModel):
    """What the scripted EPP does for a request: it names a destination, unless another key says otherwise."""

    pick: tuple[str, ...] = Field((), description="the destination, as the items of its list; empty: it names none")
    picks: tuple[tuple[str, ...], ...] = Field(
        (), description="destinations that the repeats of a request take in turn"
    )
    said_in: Literal["both", "header", "metadata"] = Field("both", description="where it says the destination")
    decides: Literal["headers", "end"] = Field("headers", description="at the request's headers or end (full duplex)")
    fallback: str | None = Field(None, description="the fallback endpoint of version 0.3.0")
    edits: tuple[str, str] | None = Field(
        None, description="a text in the body, and one in its place; one of another length in full duplex only"
    )
    edits_response: tuple[str, str] | None = Field(None, description="likewise, of the response")
    tells_length: bool = Field(
        False,
        description="where it `decides` at the end, or has a BUFFERED body, which then may get another length, too: it "
        "sets the content-length that the request's body gets",
    )
    replaces: str | None = Field(
        None, description="a body in the place of the request's, before that is told (CONTINUE_AND_REPLACE)"
    )
    replaces_response: str | None = Field(None, description="likewise, of the response")
    clears: bool = Field(
        False,
        description="it clears the request's body (clear_body), unless in full duplex or where its length was told",
    )
    action: Literal["overwrite", "unsaid"] = Field(
        "overwrite",
        description="the append_action of each header that it sets; unsaid: none, which overwrites as well in Envoy",
    )
    echoes: bool = Field(
        False, description="it sets each header that it is told again, of both, but content-length and the destination"
    )
    sets: HeaderPairs = Field((), description="headers that it sets, of the request and of the response")
    removes: tuple[HeaderName, ...] = Field((), description="headers that it removes, of both")
    immediate: LocalReply | None = Field(None, description="it answers the client itself")
    refuses_end: LocalReply | None = Field(
        None, description="it answers the client itself at the request's end, having answered all before that"
    )
    refuses_response: LocalReply | None = Field(
        None, description="it answers the client itself when it is told of the response"
    )
    fails: Literal["silent", "reset", "close", "error"] | None = Field(
        None, description="silent: no answer; reset: RST_STREAM; close: gRPC status 0 unasked; error: status 14"
    )
    fails_at: Literal["request-body", "request-end", "response-body"] | None = Field(
        None,
        description="where it does so, having answered all before that, and the request's end, too; "
        "default: where it `decides`, by nothing else",
    )
    delay: float = Field(0, ge=0, le=30, description="seconds before it answers the request's headers")

    @model_validator(mode="after")
    def _one_way(self) -> EppScript:
        if self.fails_at and not self.fails:
            raise ValueError("`failsAt` has no effect without `fails`")
        names = ("pick", "picks", "immediate", *(("fails",) if self.fails_at is None else ()))
        given = [name for name in names if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"an EPP does one thing: give `{'` or `'.join(given)}`")
        return self
