"""The ext_proc filter as one direction of an exchange sees it."""

from __future__ import annotations

from typing import Protocol

from fake_proxy.actions import Side


class Processor(Protocol):
    """What joins the two directions: the stream to the EPP, its timers, and its end."""

    @property
    def processing(self) -> bool:
        """False once the EPP plays no further part in the exchange."""

    @property
    def buffer_limit(self) -> int:
        """Bytes of a body that may be held back in BUFFERED."""

    def send(self, side: Side, kind: str, part: bytes, *, end: bool) -> None:
        """Send a message; `part` is its oneof, serialised."""

    def start_timer(self, side: Side) -> None:
        """An answer is awaited from now on."""

    def stop_timer(self, side: Side) -> None:
        """No answer is awaited any more."""

    def overflow(self, side: Side) -> None:
        """A body to be buffered is larger than the buffer."""
