"""One stream, played by a script."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from ext_proc import grpc
from ext_proc.headers import pairs_of
from ext_proc.messages import ProcessingMode, ProcessingRequest
from ext_proc.protocol import DESTINATION
from ext_proc.record import HalfClosed, Headers, Malformed, Message, header
from ext_proc.server import ServedStream
from fake_epp import answers
from fake_epp.acts import (
    Act,
    Answer,
    BreakConnection,
    Bytes,
    Delay,
    End,
    EndWithoutTrailers,
    GoAway,
    HttpAnswer,
    Immediate,
    Pick,
    Raw,
    Reset,
    SetHeader,
)
from fake_epp.script import Script

RIGHT = (Answer(),)
DUPLEX, BUFFERED = "FULL_DUPLEX_STREAMED", "BUFFERED"
_OWN = (b"content-length", DESTINATION.encode())
"""Headers that no EPP says again, as it has another value for them."""


class Player:
    """Plays `script` on `stream`, until the stream is over. `sleep` lets so many seconds pass."""

    def __init__(
        self, stream: ServedStream, script: Script, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._stream = stream
        self._sleep = sleep
        self._script = script
        self._modes = dict(zip(("request", "response"), script.modes, strict=True))
        self._held: list[tuple[str, bytes, bool]] = []  # the request, as long as it is not decided: kind, body, end
        self._decided = script.decides == "headers"
        self._hasty = False  # bodies come before their headers are answered, also outside of full duplex
        self._clears = script.clears
        self._told: dict[str, Headers] = {}  # headers, by the message that told them
        self._length: int | None = None  # of the request's body as it goes on, where that is known before its headers

    async def play(self, first: bytes) -> None:
        """Take the first message, then all that follows."""
        await self._take(first)
        async for event in self._stream:
            await self._sleep(0)  # however many messages came at a time, other streams have their turn
            match event:
                case Message(raw=raw):
                    await self._take(raw)
                case HalfClosed():
                    await self._perform(self._script.acts.get("half_close", ()), "half_close", b"", end=False)
                    return
                case Malformed():
                    self._stream.end(grpc.INTERNAL, event.reason)
                    return
                case _:
                    return

    # -- messages ------------------------------------------------------------------------------------------------------

    async def _take(self, raw: bytes) -> None:
        try:
            message = ProcessingRequest.FromString(raw)
        except DecodeError as problem:
            self._stream.end(grpc.INTERNAL, str(problem))
            return
        if message.HasField("protocol_config"):
            config = message.protocol_config
            self._modes = {
                "request": ProcessingMode.BodySendMode.Name(config.request_body_mode),
                "response": ProcessingMode.BodySendMode.Name(config.response_body_mode),
            }
            self._hasty = config.send_body_without_waiting_for_header_response
        kind = message.WhichOneof("request")
        if kind is None:
            return
        part = getattr(message, kind)
        if kind == "request_headers" and header(pairs_of(part.headers), b"content-length") is not None:
            self._clears = False  # Envoy refuses a body that has not the length that it was told
        if kind.endswith("_headers"):
            self._told[kind] = pairs_of(part.headers)
        body = part.body if kind.endswith("_body") else b""
        end = kind.endswith("_trailers") or part.end_of_stream
        side = kind.partition("_")[0]
        last = end or self._modes[side] == "NONE"  # then nothing follows the headers
        acts = self._script.acts.get(f"{side}_end") if last else None
        acts = acts if acts is not None else self._script.acts.get(kind)
        if acts is not None:
            await self._perform(acts, kind, body, end=end)
        elif not self._script.quiet:
            await self._answer_rightly(kind, side, body, end)

    async def _answer_rightly(self, kind: str, side: str, body: bytes, end: bool) -> None:
        if side == "response" or self._decided:
            await self._perform(self._right(kind, body), kind, body, end=end)
            return
        self._held.append((kind, body, end))
        # Only in full duplex does the rest of a request come before its headers are answered.
        if end or self._modes["request"] != DUPLEX:
            self._decided = True
            held, self._held = _merged(self._held), []
            whole = b"".join(one[1] for one in held)
            if whole and self._script.tells_length and self._modes["request"] == DUPLEX:
                self._length = len(whole.replace(*edits) if (edits := self._script.edits) is not None else whole)
            for one in held:
                await self._perform(self._right(one[0], one[1]), one[0], one[1], end=one[2])

    def _right(self, kind: str, body: bytes) -> tuple[Act, ...]:
        """The right answer, with what the script makes of a body."""
        side, _, part = kind.partition("_")
        written = self._script.replaces.get(side) if part == "headers" else None
        if written is not None and self._modes[side] != DUPLEX and not self._hasty:
            return (Answer(body=written, replaces=True),)
        if self._clears and kind == "request_body" and self._modes[side] != DUPLEX:
            return (Answer(form="clear"),)
        edits = {"request_body": self._script.edits, "response_body": self._script.edits_response}.get(kind)
        if edits is None or edits[0] not in body:
            return RIGHT
        edited = body.replace(*edits)
        if self._modes[side] == DUPLEX or len(edited) == len(body):
            return (Answer(body=edited),)
        if side == "response" or self._modes[side] != BUFFERED or not self._script.tells_length:
            return RIGHT  # Envoy wants a body of the length that it was told
        return (Answer(body=edited, set_headers=(self._content_length(len(edited)),)),)

    def _content_length(self, length: int) -> SetHeader:
        return SetHeader(name="Content-Length", value=b"%d" % length, action=self._script.action)

    # -- acts ----------------------------------------------------------------------------------------------------------

    async def _perform(self, acts: tuple[Act, ...], kind: str, body: bytes, *, end: bool) -> None:
        for act in acts:
            if self._stream.ended is not None:
                return
            await self._do(act, kind, body, end)

    async def _do(self, act: Act, kind: str, body: bytes, end: bool) -> None:
        stream = self._stream
        match act:
            case Answer():
                self._answer(act, kind, body, end)
            case Immediate():
                stream.send(answers.immediate(act))
            case Raw(message=message):
                stream.send(message)
            case Bytes(data=data):
                stream.send_data(data)
            case Delay(seconds=seconds):
                await stream.drain()
                await self._sleep(seconds)
            case End(status=status, message=text, metadata=metadata):
                stream.end(status, text, metadata)
            case EndWithoutTrailers():
                stream.end_without_trailers()
            case Reset(code=code):
                stream.reset(code)
            case HttpAnswer(status=status, headers=headers, body=content):
                stream.respond_http(status, headers, content)
            case GoAway(code=code, debug=debug):
                stream.transport.goaway(code, debug=debug)
            case BreakConnection():
                stream.transport.abort()

    def _answer(self, act: Answer, kind: str, body: bytes, end: bool) -> None:
        asked = act.to or kind
        side = asked.partition("_")[0]
        duplex = self._modes.get(side) == DUPLEX
        if self._script.echoes and kind in self._told:
            again = tuple(
                SetHeader(name=name.decode("latin-1"), value=value, action=self._script.action)
                for name, value in dict(self._told[kind]).items()
                if name not in _OWN
            )
            act = dataclasses.replace(act, set_headers=(*again, *act.set_headers), clear_route_cache=True)
        if kind == "request_headers" and self._length is not None:
            act = dataclasses.replace(act, set_headers=(*act.set_headers, self._content_length(self._length)))
        for raw in answers.answer(kind, act, body=body, ends=end, duplex=duplex, pick=self._pick(act, asked)):
            self._stream.send(raw)

    def _pick(self, act: Answer, asked: str) -> Pick | None:
        if isinstance(act.picks, Pick):
            return act.picks
        decides = asked == "request_headers" if act.picks is None else act.picks
        return self._script.pick if decides else None


def _merged(held: list[tuple[str, bytes, bool]]) -> list[tuple[str, bytes, bool]]:
    """The bodies among what was held back, as one."""
    bodies = [one for one in held if one[0] == "request_body"]
    if not bodies:
        return held
    whole = ("request_body", b"".join(body for _, body, _ in bodies), bodies[-1][2])
    merged = [one for one in held if one[0] == "request_headers"]
    return [*merged, whole, *(one for one in held if one[0] == "request_trailers")]
