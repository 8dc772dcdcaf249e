"""Faults in the last step of a response, to the client, and in the first of a request, to the EPP, and a variant. Each
is the right gateway otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ext_proc.messages import HeaderValue, ProcessingRequest
from reference_gateway.epp_client import Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway

PAGE = b"<html><body><h1>Something went wrong</h1></body></html>"


class _ErrorPageTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        if endpoint is None or told.status < 500:
            return told
        return dataclasses.replace(told, headers=((b"content-type", b"text/html"),), body=PAGE, trailers=())


class _ErrorPages(Gateway):
    """An error of a model server is shown as the gateway shows errors, when the EPP has let it go."""

    talk_type = _ErrorPageTalk


class _HeadWithBody(Gateway):
    """HEAD is answered as GET is."""

    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        response = await super().handle(request)
        if request.method != "HEAD":
            return response
        return dataclasses.replace(response, body=response.body or PAGE, uncalled_for=True)


class _AnonymousTalk(Talk):
    """The EPP is not told the authority of the request, nor its scheme."""

    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        for one in super().tamper(message, first=first):
            if one.HasField("request_headers"):
                fields = one.request_headers.headers.headers
                kept = [*self.named(fields)]
                del fields[:]
                fields.extend(kept)
            yield one

    def named(self, fields: Iterable[HeaderValue]) -> Iterator[HeaderValue]:
        """Those of the headers that are told."""
        return (one for one in fields if one.key not in (":authority", ":scheme"))


class _TellsNoAuthority(Gateway):
    talk_type = _AnonymousTalk


class _HostTalk(_AnonymousTalk):
    def named(self, fields: Iterable[HeaderValue]) -> Iterator[HeaderValue]:
        for one in fields:
            if one.key == ":authority":
                one.key = "host"
            if one.key != ":scheme":
                yield one


class _TellsTheHost(Gateway):
    """The EPP is told the authority as HTTP/1.1 has it, and no scheme."""

    talk_type = _HostTalk


class _PortTalk(_AnonymousTalk):
    def named(self, fields: Iterable[HeaderValue]) -> Iterator[HeaderValue]:
        for one in fields:
            if one.key == ":authority":
                one.raw_value = one.raw_value.rpartition(b":")[0] + b":80"
            yield one


class _TellsAnotherPort(Gateway):
    """The EPP is told the authority with the port by which the gateway knows its listener."""

    talk_type = _PortTalk


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="error-pages",
        why="a 5xx of a model server, which the EPP let go, has the gateway's page for its body at the client",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_ErrorPages,
    ),
    Fault(
        name="head-with-body",
        why="over HTTP/2 the response to HEAD has a body",
        breaks="DP-EXTP-01",
        gateway=_HeadWithBody,
    ),
    Fault(
        name="tells-no-authority",
        why="the EPP is told neither the authority of a request nor its host",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_TellsNoAuthority,
    ),
)

VARIANTS: tuple[Fault, ...] = (
    Fault(
        name="tells-the-host",
        why="the EPP is told the host of a request in place of its authority, and no scheme",
        gateway=_TellsTheHost,
    ),
    Fault(
        name="tells-another-port",
        why="the EPP is told the authority with a port of the gateway's own, as where its address is mapped to another",
        gateway=_TellsAnotherPort,
    ),
)
