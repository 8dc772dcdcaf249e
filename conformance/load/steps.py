"""What can happen to an exchange, and what is to be done upon it: the edges and the nodes of the memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

EXCHANGE, STREAM = "exchange", "s1"
"""The names in the record: every exchange has its own record."""


class Ended(NamedTuple):
    """The stream ended other than by ourselves; the fields are those of `StreamEnded`."""

    how: Literal["status", "reset", "refused", "lost", "malformed"]
    status: int | None = None
    message: str = ""
    code: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    opened: bool = True
    """False if there was never a stream, as the target could not be reached."""


class NotAMessage(NamedTuple):
    """Bytes of the EPP that are no gRPC message."""

    raw: bytes
    reason: str


class DueStep(NamedTuple):
    """A wait is over: the model server's (`upstream`), that for what is due from the EPP (`deadline`, after `seconds`),
    or that for the end of the stream (`ending`). `silent`: the part of those seconds in which no answer came, in
    tenths; less than 1 where the target still answered and only the exchange as a whole took too long."""

    what: Literal["upstream", "deadline", "ending"]
    seconds: float = 0.0
    silent: float = 1.0


Step: TypeAlias = bytes | Ended | NotAMessage | DueStep
"""What can happen to an exchange: a message of the EPP (without its prefix), or one of the others."""


@dataclass(frozen=True, slots=True)  # read several times for each message: faster than a named tuple
class Turn:
    """What is to be done now. All fields but the first two are the state after it.

    `sends`: what leaves, each as bytes of a DATA frame's payload. `closing`: `half-close` or `reset` the stream, in
    this order if both. `finished`: nothing is awaited any more. `decided`: the request has an endpoint or an error.
    `responding`: the client has got its first byte. `upstream`: the number of the model server's wait that runs, 0 if
    none; `upstream_in` its seconds. `quiet`: seconds without anything from the EPP until `DueStep("ending")`; 0: it
    does not run. `forward`: an answer of the EPP brought it forward. `size`: bytes of `sends` together.
    """

    sends: tuple[bytes, ...]
    closing: tuple[Literal["half-close", "reset"], ...]
    finished: bool
    decided: bool
    responding: bool
    upstream: int
    upstream_in: float
    quiet: float
    forward: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(map(len, self.sends)))
