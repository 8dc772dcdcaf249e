"""One direction of an exchange: the data plane's messages in it, and which of the EPP's answers belong to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.reading.conversation import BUFFERED, BUFFERED_MODES, DUPLEX, MODES, NONE
from conformance.reading.decoded_message import DecodedMessage
from ext_proc.messages import CommonResponse


@dataclass(slots=True, kw_only=True)
class StreamDirection:
    """One direction of the exchange: the data plane's messages, and the EPP's acceptable answers."""

    side: str
    mode: str | None
    headers: DecodedMessage | None = None
    headers_answer: DecodedMessage | None = None
    bodies: list[DecodedMessage] = field(default_factory=list)
    body_answers: list[DecodedMessage] = field(default_factory=list)
    cut: bool = False
    """Of some answer to a body the record has only a part, which need not tell whether it ends the stream."""
    trailers: DecodedMessage | None = None
    trailers_answer: DecodedMessage | None = None
    end: DecodedMessage | None = None
    """The data plane's message that completed the direction."""
    left: bool = False
    """The EPP closed the stream well before all was answered: what it had answered goes on as it is."""
    finish: DecodedMessage | None = None
    """The EPP's end of stream (full duplex only)."""

    @property
    def duplex(self) -> bool:
        """Whether bodies go in full duplex."""
        return self.mode == DUPLEX

    @property
    def due_bodies(self) -> list[DecodedMessage]:
        """The messages of the body, to its end. What follows that in full duplex is the data plane's mistake: there are
        Envoys that send the last piece twice (envoyproxy/envoy#46237)."""
        end = self.end if self.duplex else None
        return [one for one in self.bodies if end is None or one.seq <= end.seq]

    @property
    def header_only(self) -> bool:
        """Whether the headers were all there is."""
        return self.end is not None and self.end is self.headers

    @property
    def whole(self) -> bool:
        """Whether all of the body was shown: a BUFFERED one comes in one message, also where trailers are to follow."""
        return self.end is not None or (self.mode == BUFFERED and bool(self.bodies))

    @property
    def replaced(self) -> bool:
        """Whether the answer to the headers replaced the body: no body messages follow."""
        common = self.headers_answer.common if self.headers_answer else None
        return common is not None and common.status == CommonResponse.CONTINUE_AND_REPLACE

    def dropped(self, message: DecodedMessage) -> bool:
        """Whether a message that was sent before the answer that replaced the body is of no interest any more."""
        return self.replaced and self.headers_answer is not None and message.seq < self.headers_answer.seq

    @property
    def missing(self) -> str | None:
        """The first part that was sent and is not answered: `headers`, `body`, `trailers`, or None.

        A data plane that is not ours may leave out the headers.
        """
        if self.headers is not None and self.headers_answer is None:
            return "headers"
        if self.replaced or self.header_only:
            return None
        if self.duplex:
            if self.bodies and self.finish is None and self.trailers is None and not self.cut:
                return "body"
        elif len(self.body_answers) < len(self.bodies):
            return "body"
        return "trailers" if self.trailers is not None and self.trailers_answer is None else None

    @property
    def body_over(self) -> bool:
        """Whether the answers to the body have come to their end."""
        return self.finish is not None or self.trailers_answer is not None

    @property
    def held_by_trailers(self) -> bool:
        """Whether a buffered message still waits for the answer to its trailers."""
        return self.mode in BUFFERED_MODES and self.trailers is not None and self.trailers_answer is None

    @property
    def unclear(self) -> bool:
        """Whether it is unknown which answer releases the message: it has a body in a mode that is not known."""
        return self.mode not in MODES and not self.header_only

    @property
    def complete(self) -> bool:
        """Whether the data plane sent all of it that it shows, and all of it is answered. Of a body that goes in mode
        NONE it shows neither bytes nor their end."""
        over = self.end is not None or self.replaced or self.mode == NONE
        return self.headers is not None and self.missing is None and over

    @property
    def release(self) -> DecodedMessage | None:
        """The answer after which the direction goes on to the other side; in full duplex, that of the headers."""
        if self.mode not in BUFFERED_MODES or self.header_only or self.replaced:
            return self.headers_answer
        if self.body_answers:
            return self.body_answers[-1]
        if self.trailers_answer is not None and not self.bodies:
            return self.trailers_answer  # trailers without a body: the headers were held for it until then
        return self.headers_answer if self.left else None


def streams_end(message: DecodedMessage) -> bool:
    """Whether an answer to a body carries the end of stream of full duplex. `end_of_stream_without_message` is of the
    GRPC mode: Envoy 1.40 does not read it here, and goes on waiting."""
    common = message.common
    return common is not None and common.body_mutation.streamed_response.end_of_stream


def brings_forward(message: DecodedMessage) -> bool:
    """Whether the EPP brings the exchange forward with a message: not if that only asks for more time, or is an answer
    to a body that is a chunk of full duplex without any bytes."""
    common = message.common
    if common is None or message.partial or common.body_mutation.WhichOneof("mutation") != "streamed_response":
        return not message.only_timeout
    return bool(common.body_mutation.streamed_response.body)
