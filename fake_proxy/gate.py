"""What a filter holds back of one message, and how it is passed on: the part of Envoy's filter manager that matters.

Headers go first and once; held data and trailers follow when the gate opens; nothing follows the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fake_proxy.actions import HeaderList


class Next(Protocol):
    """What comes after the filter: the router for requests, the client for responses."""

    @property
    def headers(self) -> Callable[[HeaderList, bool], None]:
        """Takes the headers, and whether they are all."""

    @property
    def data(self) -> Callable[[bytes, bool], None]:
        """Takes a piece of body, and whether it is the last."""

    @property
    def trailers(self) -> Callable[[HeaderList], None]:
        """Takes the trailers, which end the message."""


class Gate:
    """One message between the filter and what follows."""

    __slots__ = ("_next", "_released", "buffer", "complete", "dead", "ended", "headers", "trailers")

    def __init__(self, following: Next) -> None:
        self._next = following
        self._released = False
        self.headers: HeaderList = []
        self.buffer: bytearray | None = None
        """Body held back; empty but not None where only the end of the body is to be passed on."""
        self.trailers: HeaderList | None = None
        self.complete = False
        """The codec has delivered everything."""
        self.ended = False
        """Everything has been passed on."""
        self.dead = False
        """Nothing may be passed on any more."""

    def hold(self, data: bytes) -> int:
        """Keep `data` back; how many bytes are held now."""
        if self.buffer is None:
            self.buffer = bytearray()
        self.buffer += data
        return len(self.buffer)

    def take(self) -> bytes:
        """The bytes held back, no longer held."""
        held, self.buffer = bytes(self.buffer or b""), None
        return held

    def leave_open(self) -> None:
        """A body of which a part has been passed on gets no end here: Envoy waits for it, unless trailers end it."""
        if self._released:
            self.buffer = None

    def open(self) -> None:
        """Pass on what is there, with the end of the message if it is complete."""
        self.pass_headers(self.complete and self.buffer is None and self.trailers is None)
        if self.buffer is not None:
            self._pass_data(self.take(), self.complete and self.trailers is None)
        if self.trailers is not None and not self.dead and not self.ended:
            self.ended = True
            self._next.trailers(self.trailers)

    def pass_body(self, data: bytes, end: bool) -> None:
        """Pass on one piece of body, after the headers and whatever is held back."""
        self.pass_headers(end=False)
        if self.buffer:
            data = self.take() + data
        self._pass_data(data, end)

    def pass_headers(self, end: bool) -> None:
        """Pass on the headers, unless that has happened."""
        if not self._released and not self.dead:
            self._released = True
            self.ended = end
            self._next.headers(self.headers, end)

    def _pass_data(self, data: bytes, end: bool) -> None:
        if (data or end) and not self.dead and not self.ended:
            self.ended = end
            self._next.data(data, end)
