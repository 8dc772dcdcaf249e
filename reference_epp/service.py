"""The ext_proc service: reads messages off a gRPC stream, hands them to a conversation, writes what it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest
from ext_proc.record import Malformed, Message
from ext_proc.server import ServedStream
from reference_epp.conversation import Conversation
from reference_epp.epp import Action, Close, Epp

LOG = logging.getLogger(__name__)

TURNS = 10
"""Waits that make up our patience: where the machine stood still, only one of them was longer than it should be."""

INTERNAL = 13


class Service:
    """Serves `envoy.service.ext_proc.v3.ExternalProcessor/Process`: one conversation per stream."""

    def __init__(self, epp: Epp, conversation: type[Conversation] = Conversation) -> None:
        self.epp = epp
        self._conversation = conversation
        self._streams = 0

    async def process(self, stream: ServedStream) -> None:
        """One stream, from its first message until either side ends it.

        Envoy resets a stream as soon as it has what it needs. That is a normal end: there are no more messages.
        """
        self._streams += 1
        conversation = self._conversation(self.epp, self._streams, stream.transport.number)
        messages = aiter(stream)
        try:
            while (message := await self.read(stream, messages, conversation)) is not None:
                if not await self.send_all(stream, conversation.receive(message)):
                    return
        except Exception:
            LOG.exception("stream failed", extra=conversation.about())
            stream.end(INTERNAL, "internal error")
        finally:
            conversation.finished()

    async def read(
        self, stream: ServedStream, messages: AsyncIterator[object], conversation: Conversation
    ) -> ProcessingRequest | None:
        """The next message, None if no more will come; a conversation that gets impatient meanwhile says its piece."""
        if not conversation.impatient:
            event = await anext(messages, None)
        else:
            reading = asyncio.ensure_future(anext(messages, None))
            try:
                for _ in range(TURNS):
                    await asyncio.wait({reading}, timeout=self.epp.patience / TURNS)
                if not reading.done() and not await self.send_all(stream, conversation.patience_is_over()):
                    return None
                event = await reading
            finally:
                reading.cancel()
        if isinstance(event, Message):
            try:
                return self.parse(event.raw)
            except DecodeError as problem:
                stream.end(INTERNAL, f"not a ProcessingRequest: {problem}")
        elif isinstance(event, Malformed):
            stream.end(INTERNAL, event.reason)
        return None

    def parse(self, raw: bytes) -> ProcessingRequest:
        """The message in `raw`. Raises `DecodeError`, which ends the stream."""
        return ProcessingRequest.FromString(raw)

    async def send_all(self, stream: ServedStream, actions: list[Action]) -> bool:
        """Do what a conversation wants done; False once that has ended the stream."""
        for action in actions:
            if isinstance(action, Close):
                self.close(stream, action)
                return False
            await self.send(stream, action)
        return True

    async def send(self, stream: ServedStream, answer: Action) -> None:
        """Write one answer, as fast as the data plane takes it."""
        assert not isinstance(answer, Close)
        stream.send(answer.SerializeToString())
        await stream.drain()

    def close(self, stream: ServedStream, end: Close) -> None:
        """End the stream: in peace, or with a gRPC status."""
        if end.code:
            LOG.info("stream closed", extra={"code": end.code, "reason": end.message})
        stream.end(end.code, end.message)
