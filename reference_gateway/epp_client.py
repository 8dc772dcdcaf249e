"""The conversation of a gateway with one EPP about one request: what is said, and what the EPP makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from ext_proc.channel import Channel
from ext_proc.headers import header_map, plain_struct, to_struct, value_of
from ext_proc.http2.errors import ConnectFailed
from ext_proc.messages import (
    BodyMutation,
    CommonResponse,
    HeaderMutation,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ImmediateResponse,
    Metadata,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
)
from ext_proc.record import Headers, header
from ext_proc.stream import ProcessStream
from reference_gateway.http import FRAMING, GatewayRequest, GatewayResponse

NAMESPACE, SUBSET_NAMESPACE = "envoy.lb", "envoy.lb.subset_hint"
DESTINATION = "x-gateway-destination-endpoint"
FALLBACK, SERVED, SUBSET = f"{DESTINATION}-fallback", f"{DESTINATION}-served", f"{DESTINATION}-subset"

CHUNK = 64 * 1024
PATIENCE = 4.0
"""Seconds that the EPP has for each answer, unless a gateway is less patient."""


class EppUnavailable(Exception):  # noqa: N818 - a condition, not a defect
    """The EPP can't be reached, fails, or does not answer."""


class Answered(Exception):  # noqa: N818 - the EPP's own answer to the client
    """The EPP answered the request itself."""

    def __init__(self, response: ImmediateResponse) -> None:
        super().__init__(response.status.code)
        self.response = response


@dataclass(slots=True)
class Decision:
    """What the EPP said about the request. `metadata` is what its answers had in `dynamic_metadata`."""

    headers: Headers
    body: bytes
    trailers: Headers
    metadata: dict[str, Any] = field(default_factory=dict)

    def destinations(self) -> str:
        """The list of endpoints, from the metadata, or else from the header; empty if there is none."""
        found = self.metadata.get(NAMESPACE, {})
        text = found.get(DESTINATION, "") if isinstance(found, dict) else ""
        return text or (header(self.headers, DESTINATION.encode()) or b"").decode("latin-1")

    def fallback(self) -> str:
        """The fallback endpoint of version 0.3.0; empty if there is none."""
        found = self.metadata.get(NAMESPACE, {})
        return str(found.get(FALLBACK, "")) if isinstance(found, dict) else ""


class Talk:
    """One stream. `mode` is the body mode in both directions, by its name in `ProcessingMode`."""

    patience = PATIENCE
    in_step = False
    """Whether bodies come when the headers are answered in full duplex, too."""

    def __init__(self, channel: Channel, mode: str, *, subset: list[str] | None) -> None:
        self._channel = channel
        self._mode = mode
        self._metadata: dict[str, Any] = {} if subset is None else self.hint(subset)
        self._stream: ProcessStream | None = None
        self._first = True
        self._replaced = False
        """The answer to the headers of a direction had its body: nothing more is told of it."""
        self._decision = Decision((), b"", ())

    # -- what faults change --------------------------------------------------------------------------------------------

    def hint(self, subset: list[str]) -> dict[str, Any]:
        """The metadata that says which endpoints may be picked."""
        return {SUBSET_NAMESPACE: {SUBSET: subset}}

    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        """The metadata that says which endpoint served, after `tried` had been tried (itself included)."""
        assert tried
        return {NAMESPACE: {SERVED: endpoint}}

    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        """What is sent in place of `message`."""
        assert first or not message.HasField("protocol_config")
        return (message,)

    # -- the request ---------------------------------------------------------------------------------------------------

    async def ask(self, request: GatewayRequest) -> Decision:
        """Tell the EPP of the request, and hear what it wants.

        Raises `Answered` or `EppUnavailable`. An EPP that just leaves wants nothing.
        """
        self._decision = Decision(request.headers, request.body, request.trailers)
        try:
            self._stream = await self._channel.open()
        except ConnectFailed as problem:
            raise EppUnavailable(str(problem)) from problem
        pseudo = ((b":method", request.method), (b":path", request.path), (b":authority", request.authority))
        pairs = [*((name, text.encode("latin-1")) for name, text in pseudo), (b":scheme", b"http"), *request.headers]
        head = HttpHeaders(headers=header_map(pairs), end_of_stream=request.bodyless)
        await self._say("request", head, request.body, request.trailers, http=request.http)
        return self._decision

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        """Tell the EPP of the response that `endpoint` gave (None: the gateway's own); what becomes of it."""
        if self._stream is None or self._stream.ended is not None:
            return response
        if endpoint is not None:
            for namespace, fields in self.report(endpoint, tried).items():
                self._metadata[namespace] = {**self._metadata.get(namespace, {}), **fields}
        self._decision = Decision(response.headers, response.body, response.trailers)
        pairs = [(b":status", b"%d" % response.status), *response.headers]
        bodyless = not response.body and not response.trailers
        head = HttpHeaders(headers=header_map(pairs), end_of_stream=bodyless)
        try:
            await self._say("response", head, response.body, response.trailers, http=1)
        except Answered as answer:
            return local_reply(answer.response)
        except EppUnavailable:
            return response
        said = self._decision
        return GatewayResponse(status=response.status, headers=said.headers, body=said.body, trailers=said.trailers)

    def close(self) -> None:
        """The stream is over, as Envoy ends it."""
        if self._stream is not None:
            self._stream.reset()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _say(self, side: str, head: HttpHeaders, body: bytes, trailers: Headers, *, http: int) -> None:
        duplex = self._mode == "FULL_DUPLEX_STREAMED"
        waits = self.in_step or not duplex
        self._replaced = False
        self._send(f"{side}_headers", head)
        if waits:
            await self._heard(side, "headers")
        if head.end_of_stream or self._mode == "NONE" or self._replaced:
            if not waits:
                await self._heard(side, "headers")
            return
        for data, end in _pieces(body, self._mode, http=http, trailers=bool(trailers)):
            self._send(f"{side}_body", HttpBody(body=data, end_of_stream=end))
            if not duplex:
                await self._heard(side, "body")
        if trailers:
            self._send(f"{side}_trailers", HttpTrailers(trailers=header_map(trailers)))
        if duplex:
            if not waits:
                await self._heard(side, "headers")
            await self._streamed(side, trailers=bool(trailers))
        elif trailers:
            await self._heard(side, "trailers")

    async def _streamed(self, side: str, *, trailers: bool) -> None:
        """In full duplex: all answers to a body; it is what they say."""
        body = bytearray()
        while (answer := await self._receive()) is not None:
            kind = answer.WhichOneof("response")
            if kind == f"{side}_trailers":
                break
            if kind != f"{side}_body":
                raise EppUnavailable(f"{kind} in place of the {side} body")
            piece = answer.response_body if side == "response" else answer.request_body
            streamed = piece.response.body_mutation.streamed_response
            body += streamed.body
            if streamed.end_of_stream and not trailers:
                break
        else:
            return
        self._decision.body = bytes(body)

    async def _heard(self, side: str, part: str) -> None:
        """The answer to headers, a body (outside of full duplex) or trailers, applied."""
        answer = await self._receive()
        if answer is None:
            return
        kind = answer.WhichOneof("response")
        if kind != f"{side}_{part}":
            raise EppUnavailable(f"{kind} in place of {side}_{part}")
        if part == "trailers":
            return
        common = getattr(answer, kind).response
        self._decision.headers = _mutated(self._decision.headers, common.header_mutation)
        self._replaced = part == "headers" and common.status == CommonResponse.CONTINUE_AND_REPLACE
        if self._replaced:
            self._decision.trailers = ()
        if (part == "body" or self._replaced) and common.HasField("body_mutation"):
            self._decision.body = _replaced(self._decision.body, common.body_mutation)

    async def _receive(self) -> ProcessingResponse | None:
        """The next answer; None if the EPP has left. Raises `Answered` or `EppUnavailable`."""
        assert self._stream is not None
        try:
            async with asyncio.timeout(self.patience):
                raw = await self._stream.recv()
        except TimeoutError:
            raise EppUnavailable("no answer") from None
        if raw is None:
            ended = self._stream.ended
            if ended is not None and ended.how == "status" and ended.status == 0:
                return None
            raise EppUnavailable(f"the stream ended: {ended}")
        try:
            answer = ProcessingResponse.FromString(raw)
        except DecodeError as problem:
            raise EppUnavailable("bytes that are no message") from problem
        if answer.HasField("immediate_response"):
            raise Answered(answer.immediate_response)
        for namespace, fields in plain_struct(answer.dynamic_metadata).items():
            if isinstance(fields, dict):
                self._decision.metadata[namespace] = {**self._decision.metadata.get(namespace, {}), **fields}
        return answer

    def _send(self, kind: str, part: HttpHeaders | HttpBody | HttpTrailers) -> None:
        assert self._stream is not None
        context = Metadata(filter_metadata={name: to_struct(fields) for name, fields in self._metadata.items()})
        message = ProcessingRequest(metadata_context=context)
        getattr(message, kind).CopyFrom(part)
        if self._first:
            mode = ProcessingMode.BodySendMode.Value(self._mode)
            message.protocol_config.CopyFrom(ProtocolConfiguration(request_body_mode=mode, response_body_mode=mode))
        for one in self.tamper(message, first=self._first):
            self._stream.send(one.SerializeToString())
        self._first = False


def local_reply(answer: ImmediateResponse) -> GatewayResponse:
    """The EPP's own answer as a response."""
    pairs: list[tuple[bytes, bytes]] = []
    for option in answer.headers.set_headers:
        pair = (option.header.key.lower().encode(), value_of(option.header))
        if not pair[0].startswith(b":") and pair[0] not in FRAMING:
            pairs.append(pair)
    return GatewayResponse(status=answer.status.code or 200, headers=tuple(pairs), body=answer.body)


def _pieces(body: bytes, mode: str, *, http: int, trailers: bool) -> list[tuple[bytes, bool]]:
    """Pieces of a body with their end of stream: after HTTP/1.1 a separate empty one, after HTTP/2 on the last."""
    if mode == "BUFFERED":
        return [(body, not trailers)]
    pieces = [(body[at : at + CHUNK], False) for at in range(0, len(body), CHUNK)]
    if trailers:
        return pieces
    if http == 2 and pieces:
        return [*pieces[:-1], (pieces[-1][0], True)]
    return [*pieces, (b"", True)]


def _mutated(headers: Headers, mutation: HeaderMutation) -> Headers:
    removed = {name.lower().encode() for name in mutation.remove_headers}
    found = [pair for pair in headers if pair[0] not in removed]
    for option in mutation.set_headers:
        name, value = option.header.key.lower().encode(), value_of(option.header)
        if not name.startswith(b":"):
            found = [*(pair for pair in found if pair[0] != name), (name, value)]
    return tuple(found)


def _replaced(body: bytes, mutation: BodyMutation) -> bytes:
    match mutation.WhichOneof("mutation"):
        case "body":
            return bytes(mutation.body)
        case "clear_body":
            return b""
        case _:
            return body
