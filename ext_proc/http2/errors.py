"""Why a connection could not be made. Each error says what happened, where, and what to do about it.

ConnectFailed
├── BadAddress            not `host:port` or `unix:/path`, no socket, or a name that does not resolve
├── ConnectionRefused     nothing listens there, or the network refuses
├── ConnectTimedOut       no answer in time (TCP, TLS or HTTP/2, `what` says which)
├── TlsFailed             the handshake failed
│   ├── UnusableFiles         our own CA, certificate or key can't be read
│   ├── CertificateRejected   the peer's certificate does not verify
│   └── PeerSpeaksPlaintext   we started TLS, the peer does not speak it
├── PeerSpeaksTls         we spoke plaintext, the peer wants TLS
└── NotHttp2              something listens, but it does not speak HTTP/2
"""

from __future__ import annotations


class ConnectFailed(Exception):  # noqa: N818 - the name says what happened
    """Root: `where` is the address, `what` went wrong, `hint` is the next step."""

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(f"{where}: {what}. {hint}")
        self.where = where
        self.what = what
        self.hint = hint


class BadAddress(ConnectFailed):
    """The address can't be used."""


class ConnectionRefused(ConnectFailed):
    """Nothing listens, or the network is unreachable."""


class ConnectTimedOut(ConnectFailed):
    """The peer did not answer within `seconds`."""

    def __init__(self, where: str, what: str, hint: str, seconds: float) -> None:
        super().__init__(where, what, hint)
        self.seconds = seconds


class TlsFailed(ConnectFailed):
    """The TLS handshake failed."""


class UnusableFiles(TlsFailed):
    """Our own CA, certificate or key can't be read: nothing was asked of the peer."""


class CertificateRejected(TlsFailed):
    """The peer's certificate does not verify."""


class PeerSpeaksPlaintext(TlsFailed):
    """We started TLS and the peer answered in plaintext."""


class PeerSpeaksTls(ConnectFailed):
    """We spoke plaintext and the peer expects TLS."""


class NotHttp2(ConnectFailed):
    """The peer does not speak HTTP/2."""
