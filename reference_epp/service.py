"""The ext_proc service: reads messages off a gRPC stream, hands them to a conversation, writes what it answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

from ext_proc.messages import ProcessingRequest
from reference_epp.conversation import Conversation
from reference_epp.epp import Action, Close, Epp
from reference_epp.names import EXT_PROC_SERVICE

LOG = logging.getLogger(__name__)

TURNS = 10
"""Waits that make up our patience: where the machine stood still, only one of them was longer than it should be."""

STATUS = {code.value[0]: code for code in grpc.StatusCode}


class Service:
    """Serves `envoy.service.ext_proc.v3.ExternalProcessor/Process`: one conversation per stream."""

    def __init__(self, epp: Epp, conversation: type[Conversation] = Conversation) -> None:
        self.epp = epp
        self._conversation = conversation
        self._streams = 0
        self._connections: dict[str, int] = {}

    async def process(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        """One stream, from its first message until either side ends it.

        Envoy resets a stream as soon as it has what it needs. That is a normal end: gRPC cancels this coroutine.
        """
        conversation = self.open(context.peer())
        try:
            while (message := await self.read(context, conversation)) is not grpc.aio.EOF:
                for action in conversation.receive(message):
                    if isinstance(action, Close):
                        await self.close(context, action)
                        return
                    await self.send(context, action)
        finally:
            conversation.finished()

    def open(self, peer: str) -> Conversation:
        """A conversation for a stream from `peer`, a connection's address as gRPC writes it."""
        self._streams += 1
        connection = self._connections.setdefault(peer, len(self._connections) + 1)
        return self._conversation(self.epp, self._streams, connection)

    async def read(self, context: grpc.aio.ServicerContext, conversation: Conversation) -> Any:
        """The next message, or `grpc.aio.EOF`; a conversation that gets impatient meanwhile says its piece."""
        if not conversation.impatient:
            return await context.read()
        reading = asyncio.ensure_future(context.read())
        for _ in range(TURNS):
            await asyncio.wait({reading}, timeout=self.epp.patience / TURNS)
        if not reading.done():
            for action in conversation.patience_is_over():
                if isinstance(action, Close):
                    reading.cancel()
                    await self.close(context, action)
                    return grpc.aio.EOF
                await self.send(context, action)
        return await reading

    def parse(self, raw: bytes) -> ProcessingRequest:
        """The message in `raw`. Raises `DecodeError`, with which gRPC ends the stream."""
        return ProcessingRequest.FromString(raw)

    async def send(self, context: grpc.aio.ServicerContext, answer: Action) -> None:
        """Write one answer."""
        await context.write(answer)

    async def close(self, context: grpc.aio.ServicerContext, end: Close) -> None:
        """End the stream: in peace, or with a gRPC status."""
        if end.code:
            LOG.info("stream closed", extra={"code": end.code, "reason": end.message})
            await context.abort(STATUS[end.code], end.message)

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC calls for this service."""
        return grpc.method_handlers_generic_handler(
            EXT_PROC_SERVICE,
            {
                "Process": grpc.stream_stream_rpc_method_handler(
                    self.process, self.parse, lambda answer: answer.SerializeToString()
                )
            },
        )
