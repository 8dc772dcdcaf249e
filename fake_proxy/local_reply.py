"""Replies that Envoy makes up itself: for errors, and for an ImmediateResponse."""

from __future__ import annotations

import contextlib
import re

from ext_proc.headers import is_grpc
from ext_proc.messages import HeaderMutation
from fake_proxy.actions import HeaderList
from fake_proxy.answer_errors import RejectedError
from fake_proxy.config import ProxyConfig
from fake_proxy.header_map import RESPONSE, get, put, remove
from fake_proxy.mutations import HeaderRules, apply_headers

_GRPC_STATUS = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
_NOT_PLAIN = re.compile(rb"[^ -$&-~]")
"""Bytes that are percent-encoded in `grpc-message`."""
_BLANKS = str.maketrans(dict.fromkeys(" \t\n\v\f\r", "_"))


def response_code_details(said: str) -> str:
    """`said` as Envoy has it in RESPONSE_CODE_DETAILS: each blank is an underscore."""
    return said.translate(_BLANKS)


def local_reply(
    request: HeaderList,
    status: int,
    body: bytes,
    config: ProxyConfig,
    *,
    mutation: HeaderMutation | None = None,
    grpc_status: int | None = None,
) -> tuple[HeaderList, bytes]:
    """Headers and body of a local reply to `request`.

    `mutation` changes the headers, but for the status and the framing; where it can't be applied the rest of it is left
    out, and the reply stays.

    A gRPC client gets status 200 and its error in `grpc-status` (that of `mutation`, else `grpc_status`, else derived
    from `status`), without a body.
    """
    headers: HeaderList = [(b":status", b"%d" % status)]
    if mutation is not None:
        rules = HeaderRules(max_count=config.max_header_count, max_bytes=config.max_header_bytes, known=RESPONSE)
        with contextlib.suppress(RejectedError):
            apply_headers(mutation, headers, rules)
        put(headers, b":status", b"%d" % status)
    if is_grpc(get(request, b"content-type")):
        code = _GRPC_STATUS.get(status, 2) if grpc_status is None else grpc_status
        put(headers, b":status", b"200")
        put(headers, b"content-type", b"application/grpc")
        if not get(headers, b"grpc-status"):
            put(headers, b"grpc-status", b"%d" % code)
        if body:
            put(headers, b"grpc-message", _NOT_PLAIN.sub(lambda found: b"%%%02X" % found[0][0], body))
        remove(headers, b"content-length")
        return headers, b""
    if not body:
        remove(headers, b"content-length")
        remove(headers, b"content-type")
        return headers, b""
    put(headers, b"content-length", b"%d" % len(body))
    if get(headers, b"content-type") is None:
        headers.append((b"content-type", b"text/plain"))
    return headers, b"" if get(request, b":method") == b"HEAD" else body
