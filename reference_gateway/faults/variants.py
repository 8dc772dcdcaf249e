"""Gateways that are odd, or configured otherwise, and right."""

from __future__ import annotations

from reference_gateway.epp_client import Talk
from reference_gateway.fault import Fault
from reference_gateway.relay import Gateway


class _ImpatientTalk(Talk):
    patience = 0.2


class _Impatient(Gateway):
    talk_type = _ImpatientTalk


VARIANTS: tuple[Fault, ...] = (
    Fault(name="full-duplex", why="bodies in full duplex, all sent before an answer is awaited"),
    Fault(name="buffered", why="a body in one piece, when the headers are answered", settings={"mode": "BUFFERED"}),
    Fault(name="streamed", why="a body piece by piece, each answered", settings={"mode": "STREAMED"}),
    Fault(name="headers-only", why="bodies are not sent to the EPP", settings={"mode": "NONE"}),
    Fault(
        name="open",
        why="without an EPP requests are sent on, as configured",
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
    Fault(
        name="without-retries",
        why="one attempt, as configured",
        settings={"retries": 0},
        claims={"retries": 0},
    ),
    Fault(name="impatient", why="an EPP that has not answered in 0.2 s is as good as none", gateway=_Impatient),
    Fault(name="http1-only", why="clients speak HTTP/1.1, as none need speak another", settings={"http2": False}),
    Fault(name="fallback", why="the fallback endpoint of 0.3.0", version="0.3.0"),
    Fault(name="two-pools", why="a second pool with its own EPP, for when the first fails", version="next", pools=2),
)
