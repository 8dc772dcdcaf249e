"""The client's side of an exchange: the response as it leaves the data plane."""

from __future__ import annotations

from collections.abc import Callable

from fake_proxy.actions import Action, ClientData, ClientHeaders, ClientReset, ClientTrailers, HeaderList

_HOP_BY_HOP = (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")


class Downstream:
    """Takes the response from its direction (`gate.Next`); `ended` is called when the client has all it will get."""

    __slots__ = ("_emit", "_ended", "begun")

    def __init__(self, emit: Callable[[Action], None], ended: Callable[[], None]) -> None:
        self._emit = emit
        self._ended = ended
        self.begun = False
        """Whether the client has got headers."""

    def headers(self, headers: HeaderList, end: bool) -> None:
        """The response begins."""
        self.begun = True
        self._emit(ClientHeaders([entry for entry in headers if entry[0] not in _HOP_BY_HOP], end))
        if end:
            self._ended()

    def data(self, data: bytes, end: bool) -> None:
        """More body."""
        self._emit(ClientData(data, end))
        if end:
            self._ended()

    def trailers(self, trailers: HeaderList) -> None:
        """The end, with trailers."""
        self._emit(ClientTrailers(trailers))
        self._ended()

    def cut(self) -> None:
        """The response has begun and can't be completed."""
        self._emit(ClientReset())
        self._ended()
