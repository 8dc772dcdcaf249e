"""Faults in the last step of a response, to the client, and in the first of a request, to the EPP, and variants."""
# fmt: off

from __future__ import annotations

import dataclasses
from typing import Any

from ext_proc.messages import ProcessingRequest
from reference_gateway.changes import responding, taking, tampering
from reference_gateway.fault import fault, variant

PAGE = b"<html><body><h1>Something went wrong</h1></body></html>"


def _page(told: Any, _: Any, endpoint: str | None) -> Any:
    if endpoint is None or told.status < 500:
        return told
    return dataclasses.replace(told, headers=((b"content-type", b"text/html"),), body=PAGE, trailers=())


def _with_body(response: Any, request: Any) -> Any:
    if request.method != "HEAD":
        return response
    return dataclasses.replace(response, body=response.body or PAGE, uncalled_for=True)


def _without(*names: str) -> Any:
    """Withholds these headers from the EPP."""
    def change(message: ProcessingRequest) -> None:
        kept = [one for one in message.request_headers.headers.headers if one.key not in names]
        if message.HasField("request_headers"):
            del message.request_headers.headers.headers[:]
            message.request_headers.headers.headers.extend(kept)

    return change


def _host(message: ProcessingRequest) -> None:
    _without(":scheme")(message)
    for one in message.request_headers.headers.headers:
        one.key = "host" if one.key == ":authority" else one.key


def _another_port(message: ProcessingRequest) -> None:
    for one in message.request_headers.headers.headers:
        if one.key == ":authority":
            one.raw_value = one.raw_value.rpartition(b":")[0] + b":80"


fault("error-pages", "DP-EXTP-01",
      "a 5xx of a model server, which the EPP let go, has the gateway's page for its body at the client",
      taking(_page), effect="warn")
fault("head-with-body", "DP-EXTP-01",
      "over HTTP/2 the response to HEAD has a body", responding(_with_body))
fault("tells-no-authority", "DP-EXTP-01",
      "the EPP is told neither the authority of a request nor its host",
      tampering(_without(":authority", ":scheme")), effect="warn")

variant("tells-the-host",
        "the EPP is told the host of a request in place of its authority, and no scheme", tampering(_host))
variant("tells-another-port",
        "the EPP is told the authority with a port of the gateway's own, as behind a mapped address",
        tampering(_another_port))
