"""Model servers that do what a scenario says, without a network: any response, early, in pieces, broken, or none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ext_proc.record import Headers
from fake_proxy.actions import HeaderList, OpenUpstream
from fake_proxy.upstream import Attempt, UpstreamEvents, attempt_task


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamReply:
    """What one endpoint does with a request.

    `body` are the pieces that are flushed one by one; several pieces, an empty one or trailers make the response
    chunked, one piece announces its length, and a response of no piece ends with its headers. `fail` replaces the
    response (`connect-failed`, `reset`, `never`: no answer at all), `reset_after` cuts it after that many pieces,
    `early` sends it before the request is complete. `coalesced`: the last piece carries the end, as over HTTP/2.
    """

    status: int = 200
    headers: Headers = ()
    body: tuple[bytes, ...] = ()
    trailers: Headers = ()
    early: bool = False
    coalesced: bool = False
    reset_after: int | None = None
    fail: Literal["connect-failed", "reset", "never"] | None = None

    @property
    def header_list(self) -> HeaderList:
        """Status, headers and framing as a model server would send them; HTTP/2 has no transfer-encoding."""
        framing = [] if self.coalesced else [(b"transfer-encoding", b"chunked")]
        if len(self.body) <= 1 and b"" not in self.body and not self.trailers:
            framing = [(b"content-length", b"%d" % sum(map(len, self.body)))]
        return [(b":status", b"%d" % self.status), *((name.lower(), value) for name, value in self.headers), *framing]

    @property
    def bodyless(self) -> bool:
        """Whether the headers end the response."""
        return not self.body and not self.trailers

    @property
    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        """What is flushed after the headers, piece by piece, and whether it ends the response."""
        pieces = [piece for piece in self.body[: self.reset_after] if piece]
        whole = self.reset_after is None and not self.trailers
        last = pieces.pop() if whole and self.coalesced and pieces else b""
        yield from ((piece, False) for piece in pieces)
        if whole:
            yield last, True


def json_reply(document: Any, *, status: int = 200) -> UpstreamReply:
    """A JSON response with a content-length."""
    return UpstreamReply(
        status=status, headers=((b"content-type", b"application/json"),), body=(json.dumps(document).encode(),)
    )


def sse_reply(*events: bytes) -> UpstreamReply:
    """A stream of server-sent events, one piece each; `events` are the data lines' contents."""
    return UpstreamReply(
        headers=((b"content-type", b"text/event-stream"),), body=tuple(b"data: " + event + b"\n\n" for event in events)
    )


class ScriptedUpstream:
    """Answers attempts by `script`: a reply for all, replies by endpoint, or a function of the attempt."""

    def __init__(
        self, script: UpstreamReply | Mapping[str, UpstreamReply] | Callable[[OpenUpstream], UpstreamReply]
    ) -> None:
        self._script = script

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Play the reply; an endpoint that the script does not know refuses the connection."""
        match self._script:
            case UpstreamReply() as reply:
                pass
            case Mapping() as replies:
                reply = replies.get(opening.endpoint, UpstreamReply(fail="connect-failed"))
            case function:
                reply = function(opening)
        return _ScriptedAttempt(opening, events, reply)


class _ScriptedAttempt:
    def __init__(self, opening: OpenUpstream, events: UpstreamEvents, reply: UpstreamReply) -> None:
        self._number = opening.attempt
        self._events = events
        self._reply = reply
        self._complete = asyncio.Event()
        if opening.end or reply.early:
            self._complete.set()
        self._head = (b":method", b"HEAD") in opening.headers
        self._task = attempt_task(self._play(), events)

    def data(self, data: bytes, end: bool) -> None:  # noqa: ARG002 - only the end matters to a script
        """More request body."""
        if end:
            self._complete.set()

    def trailers(self, trailers: HeaderList) -> None:  # noqa: ARG002
        """The request ends."""
        self._complete.set()

    @property
    def unsent(self) -> int:
        """Nothing: a script takes all."""
        return 0

    async def drain(self) -> None:
        """There is nothing to wait for."""

    def abort(self) -> None:
        """Stop playing."""
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is played any more."""
        await asyncio.wait([self._task])

    async def _play(self) -> None:
        reply, events, number = self._reply, self._events, self._number
        if reply.fail == "connect-failed":
            await events.failed(number, "connect-failed")
            return
        await self._complete.wait()
        if reply.fail == "never":
            return
        if reply.fail == "reset":
            await events.failed(number, "reset")
            return
        bodyless = self._head or reply.bodyless
        await events.headers(number, reply.header_list, bodyless)
        if bodyless:
            return
        for piece, end in reply.pieces:
            await events.data(number, piece, end)
        if reply.reset_after is not None:
            await events.failed(number, "protocol-error")
        elif reply.trailers:
            await events.trailers(number, [(name.lower(), value) for name, value in reply.trailers])
