"""What is kept of live traffic: no bodies, no credentials, unless somebody asks for them.

Unlike a run, where the profile says what the secrets are, live traffic is redacted by name: the values of headers,
metadata and attributes that are called like a credential, and the query of every path. Each becomes a placeholder with
a fingerprint under a key that nobody keeps: what was equal stays equal, what differed stays different.

Bodies are cut out of the messages that carry them. Such a message is marked as shortened, with the size and digest of
the whole, so that rules about bodies are not applied to it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.message import DecodeError

from conformance.evidence.redaction import SENSITIVE_HEADERS
from ext_proc.messages import HeaderMap, HeaderMutation, HeaderValue, ProcessingRequest, ProcessingResponse, Struct
from ext_proc.record import Author, Event, Headers, Malformed, Message, StreamEnded, StreamOpened

SENSITIVE = re.compile(
    r"authorization|cookie|token|secret|passw(or)?d|credential|signature|(api|access|private|session)[-_]?key",
    re.IGNORECASE,
)
"""Names that are taken for those of credentials."""

_PATH = re.compile(r"(^|[-_.:])(path|query|uri|url)$", re.IGNORECASE)
"""Names whose values may carry a query."""

_PREFIX = 5
"""Bytes kept of what is no message: the prefix tells what is wrong with it."""


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
        try:
            if event.author is Author.DATA_PLANE:
                request = ProcessingRequest.FromString(event.raw)
                changed, cut = self._request(request), _cut_request(request, self.body)
                raw = request.SerializeToString() if changed or cut else event.raw
            else:
                response = ProcessingResponse.FromString(event.raw)
                changed, cut = self._response(response), _cut_response(response, self.body)
                raw = response.SerializeToString() if changed or cut else event.raw
        except (DecodeError, UnicodeDecodeError) as problem:
            return self._undecodable(event, problem)
        if not cut:
            return replace(event, raw=raw) if changed else event
        return replace(event, raw=raw, size=len(event.raw), sha256=hashlib.sha256(event.raw).hexdigest())

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

    def _request(self, request: ProcessingRequest) -> bool:
        changed = False
        match request.WhichOneof("request"):
            case "request_headers" | "response_headers" as kind:
                changed = self._header_map(getattr(request, kind).headers)
            case "request_trailers" | "response_trailers" as kind:
                changed = self._header_map(getattr(request, kind).trailers)
        for struct in (*request.attributes.values(), *request.metadata_context.filter_metadata.values()):
            changed |= self._struct(struct)
        for packed in request.metadata_context.typed_filter_metadata.values():
            if packed.value and self.secrets:
                packed.value, changed = b"", True
        return changed

    def _response(self, response: ProcessingResponse) -> bool:
        changed = False
        match response.WhichOneof("response"):
            case "request_headers" | "response_headers" | "request_body" | "response_body" as kind:
                common = getattr(response, kind).response
                changed = self._mutation(common.header_mutation)
            case "request_trailers" | "response_trailers" as kind:
                changed = self._mutation(getattr(response, kind).header_mutation)
            case "immediate_response":
                immediate = response.immediate_response
                changed = self._mutation(immediate.headers)
                if len(immediate.body) > self.body:
                    kept = immediate.body[: self.body]
                    immediate.body = kept + b"*" * (len(immediate.body) - len(kept))
                    changed = True
            case "streamed_immediate_response":
                changed = self._header_map(response.streamed_immediate_response.headers_response.headers)
        return self._struct(response.dynamic_metadata) or changed

    # -- names and values ----------------------------------------------------------------------------------------------

    def _headers(self, headers: Headers) -> Headers:
        if not any(self._secret(name.decode("latin-1")) for name, _ in headers):
            return headers
        return tuple((name, self._value(name.decode("latin-1"), value)) for name, value in headers)

    def _header_map(self, headers: HeaderMap) -> bool:
        return sum(self._header(one) for one in headers.headers) > 0

    def _mutation(self, mutation: HeaderMutation) -> bool:
        return sum(self._header(one.header) for one in mutation.set_headers) > 0

    def _header(self, one: HeaderValue) -> bool:
        changed = False
        if one.raw_value and (value := self._value(one.key, one.raw_value)) != one.raw_value:
            one.raw_value, changed = value, True
        if one.value and (text := self._value(one.key, one.value.encode()).decode()) != one.value:
            one.value, changed = text, True
        return changed

    def _struct(self, struct: Struct) -> bool:
        return sum(self._plain(name, value) for name, value in struct.fields.items()) > 0

    def _plain(self, name: str, value: Any) -> bool:
        match value.WhichOneof("kind"):
            case "string_value":
                text = self._value(name, value.string_value.encode()).decode()
                if text == value.string_value:
                    return False
                value.string_value = text
                return True
            case "struct_value":
                return sum(self._plain(f"{name}.{key}", one) for key, one in value.struct_value.fields.items()) > 0
            case "list_value":
                return sum(self._plain(name, one) for one in value.list_value.values) > 0
            case _:
                return False

    def _secret(self, name: str) -> bool:
        if not self.secrets:
            return False
        lower = name.lower()
        return lower in SENSITIVE_HEADERS or lower in self.headers or SENSITIVE.search(lower) is not None

    def _value(self, name: str, value: bytes) -> bytes:
        if not value:
            return value
        if self._secret(name):
            return self._placeholder(value)
        path, mark, query = value.partition(b"?")
        if query and self.secrets and _PATH.search(name):
            return path + mark + self._placeholder(query)
        return value

    def _placeholder(self, value: bytes) -> bytes:
        return f"[redacted:{hmac.digest(self.key, value, 'sha256').hex()[:12]}]".encode()


def secret_names(names: Iterable[str]) -> frozenset[str]:
    """Header names as `LiveRedaction.headers` has them."""
    return frozenset(name.strip().lower() for name in names)


# -- bodies ------------------------------------------------------------------------------------------------------------


def _cut_request(request: ProcessingRequest, keep: int) -> bool:
    kind = request.WhichOneof("request")
    if kind not in ("request_body", "response_body"):
        return False
    body = getattr(request, kind)
    if len(body.body) <= keep:
        return False
    body.body = body.body[:keep]
    return True


def _cut_response(response: ProcessingResponse, keep: int) -> bool:
    kind = response.WhichOneof("response")
    if kind == "streamed_immediate_response":
        streamed = response.streamed_immediate_response
        if len(streamed.body_response.body) <= keep:
            return False
        streamed.body_response.body = streamed.body_response.body[:keep]
        return True
    if kind not in ("request_headers", "request_body", "response_headers", "response_body"):
        return False
    common = getattr(response, kind).response
    mutation = common.body_mutation
    match mutation.WhichOneof("mutation"):
        case "body" if len(mutation.body) > keep:
            mutation.body = mutation.body[:keep]
        case "streamed_response" if len(mutation.streamed_response.body) > keep:
            mutation.streamed_response.body = mutation.streamed_response.body[:keep]
        case _:
            return False
    return True
