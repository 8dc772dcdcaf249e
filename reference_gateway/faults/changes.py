"""Faults in what becomes of long bodies, and of what the EPP changes. Each is the right gateway otherwise."""

from __future__ import annotations

from ext_proc.messages import HttpBody, HttpHeaders, HttpStatus, HttpTrailers, ImmediateResponse
from reference_gateway.epp_client import Answered, Talk
from reference_gateway.fault import Fault
from reference_gateway.relay import Gateway

BUFFER = 32 * 1024
"""Bytes of a request's body for which there is room."""


class _SmallBufferTalk(Talk):
    """The EPP is told the headers, and then there is no room for the body that it is to have."""

    def _send(self, kind: str, part: HttpHeaders | HttpBody | HttpTrailers) -> None:
        if kind == "request_body" and isinstance(part, HttpBody) and len(part.body) > BUFFER:
            raise Answered(ImmediateResponse(status=HttpStatus(code=413), body=b"too long"))
        super()._send(kind, part)


class _SmallBuffer(Gateway):
    talk_type = _SmallBufferTalk


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="small-buffer",
        why="a body of more than 32 KiB gets 413 when the EPP has answered the headers",
        breaks="DP-EXTP-01",
        gateway=_SmallBuffer,
        settings={"mode": "BUFFERED"},
    ),
)
