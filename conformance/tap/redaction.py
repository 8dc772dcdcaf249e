"""What is kept of live traffic: no bodies, no credentials, unless somebody asks for them.

Unlike a run, where the profile says what the secrets are, live traffic is redacted by name: the values of headers,
metadata and attributes that are called like a credential, and the query of every path. Each becomes a placeholder with
a fingerprint under a key that no one keeps: what was equal stays equal, what differed stays different.

Bodies are cut out of the messages that carry them. Such a message is marked as shortened, with the size and digest of
the whole, so that rules about bodies are not applied to it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from google.protobuf.message import DecodeError

from conformance.evidence.redaction import SENSITIVE_HEADERS
from conformance.evidence.rewrite import Place, rewrite
from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.record import Author, Event, Headers, Malformed, Message, StreamEnded, StreamOpened

SENSITIVE = re.compile(
    r"authorization|cookie|token|secret|passw(or)?d|credential|signature|(api|access|private|session)[-_]?key",
    re.IGNORECASE,
)
"""Names that are taken for those of credentials."""

_PATH = re.compile(r"(^|[-_.:])(path|query|uri|url)$", re.IGNORECASE)
"""Names whose values may carry a query."""

_BODIES = {("HttpBody", "body"), ("BodyMutation", "body"), ("StreamedBodyResponse", "body")}
"""Message types and fields that carry a body."""

_PREFIX = 5
"""Bytes kept of what is no message: the prefix tells what is wrong with it."""


@functools.lru_cache(maxsize=4096)
def _sensitive(lower: str) -> bool:
    return lower in SENSITIVE_HEADERS or SENSITIVE.search(lower) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRedaction:
    """A function of events for `Recording.capture`.

    `headers` are further header names whose values are secret. `body` is how many bytes are kept of each body in a
    message. `secrets` off keeps every header as it is.
    """

    headers: frozenset[str] = frozenset()
    body: int = 0
    secrets: bool = True
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def __call__(self, event: Event) -> Event:
        """`event` as it may be kept. Raises nothing for any bytes on the wire."""
        match event:
            case Message():
                return self._message(event)
            case Malformed():
                return replace(event, raw=event.raw[: max(self.body, _PREFIX)])
            case StreamOpened():
                return replace(event, headers=self._headers(event.headers))
            case StreamEnded():
                return replace(event, headers=self._headers(event.headers), trailers=self._headers(event.trailers))
            case _:
                return event

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self, event: Message) -> Event:
        kind = ProcessingRequest if event.author is Author.DATA_PLANE else ProcessingResponse
        cut = False

        def policy(place: Place, value: bytes) -> bytes:
            nonlocal cut
            if (place.type, place.field) in _BODIES:
                cut = cut or len(value) > self.body
                return value[: self.body]
            return self._at(place, value)

        try:
            message = kind.FromString(event.raw)
            raw = message.SerializeToString() if rewrite(message, policy) else event.raw
        except (DecodeError, UnicodeDecodeError) as problem:
            return self._undecodable(event, problem)
        if not cut:
            return event if raw == event.raw else replace(event, raw=raw)
        return replace(event, raw=raw, size=len(event.raw), sha256=hashlib.sha256(event.raw).hexdigest())

    def _at(self, place: Place, value: bytes) -> bytes:
        """What a value that is no body becomes, by where it stands and by its name."""
        if (place.type, place.field) == ("ImmediateResponse", "body"):
            return value[: self.body] + b"*" * (len(value) - self.body)
        if (place.type, place.field) == ("Any", "value"):
            return b"" if self.secrets else value
        if place.key or place.field == "key" or not place.name:
            return value
        return self._value(place.name, value)

    def _undecodable(self, event: Message, problem: Exception) -> Event:
        """Bytes that are no message of ext_proc, of which nothing can be told apart: only that they are none."""
        if self.body >= len(event.raw):
            return event
        kind = "ProcessingRequest" if event.author is Author.DATA_PLANE else "ProcessingResponse"
        reason = f"{len(event.raw)} bytes that are no {kind}: {str(problem).rpartition(': ')[2] or 'not decodable'}"
        return Malformed(
            exchange=event.exchange,
            stream=event.stream,
            author=event.author,
            raw=event.raw[: self.body],
            reason=reason,
        )

    # -- names and values ----------------------------------------------------------------------------------------------

    def _headers(self, headers: Headers) -> Headers:
        if not any(self._secret(name.decode("latin-1")) for name, _ in headers):
            return headers
        return tuple((name, self._value(name.decode("latin-1"), value)) for name, value in headers)

    def _secret(self, name: str) -> bool:
        if not self.secrets:
            return False
        lower = name.lower()
        return lower in self.headers or _sensitive(lower)

    def _value(self, name: str, value: bytes) -> bytes:
        if not value:
            return value
        if self._secret(name):
            return self._placeholder(value)
        if self.secrets and b"?" in value and _PATH.search(name):
            path, mark, query = value.partition(b"?")
            return path + mark + self._placeholder(query) if query else value
        return value

    def _placeholder(self, value: bytes) -> bytes:
        return f"[redacted:{hmac.digest(self.key, value, 'sha256').hex()[:12]}]".encode()


def secret_names(names: Iterable[str]) -> frozenset[str]:
    """Header names as `LiveRedaction.headers` has them."""
    return frozenset(name.strip().lower() for name in names)
