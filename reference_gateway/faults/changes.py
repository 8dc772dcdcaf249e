"""Faults in what becomes of long bodies, and of what the EPP changes. Each is the right gateway otherwise."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator

from ext_proc.messages import (
    HttpBody,
    HttpHeaders,
    HttpStatus,
    HttpTrailers,
    ImmediateResponse,
    ProcessingResponse,
)
from ext_proc.record import header
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import Answered, Decision, EppUnavailable, Talk
from reference_gateway.fault import Fault
from reference_gateway.faults.contents import mutations
from reference_gateway.faults.relay import ClientKept
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome

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


class _AddingTalk(Talk):
    """What the EPP sets is added to what is there."""

    unsaid_only = False

    async def _heard(self, side: str, part: str) -> None:
        before = self._decision.headers
        await super()._heard(side, part)
        kept = tuple(pair for pair in before if pair[0] in self._set)
        self._decision.headers = kept + self._decision.headers

    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        options = [option for mutation in mutations(answer) for option in mutation.set_headers]
        said = [option for option in options if not (self.unsaid_only and option.append_action)]
        self._set = {option.header.key.lower().encode() for option in said}
        return answer


class _AddingUnsaidTalk(_AddingTalk):
    unsaid_only = True


class _Adds(Gateway):
    talk_type = _AddingTalk


class _AddsWhereNothingIsSaid(Gateway):
    talk_type = _AddingUnsaidTalk


class _AddsToTheClients(ClientKept):
    """The client's destination header stays, and of two the first is read."""

    talk_type = _AddingUnsaidTalk

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        return super().walk(dataclasses.replace(decision, headers=decision.headers[::-1], metadata={}), pool)


class _ChokingTalk(Talk):
    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        names = [option.header.key for mutation in mutations(answer) for option in mutation.set_headers]
        if any(name.startswith(":") for name in names):
            raise EppUnavailable("a pseudo-header is set")
        return answer


class _ChokesOnPseudoHeaders(Gateway):
    talk_type = _ChokingTalk


class _OldLengthTalk(Talk):
    """Of a body whose length was told, as much goes on as came."""

    async def ask(self, request: GatewayRequest) -> Decision:
        decision = await super().ask(request)
        if header(request.headers, b"content-length") is not None:
            decision.body = decision.body[: len(request.body)]
        return decision


class _OldLengthOfResponsesTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        return dataclasses.replace(told, body=told.body[: len(response.body)])


class _TwoLengthsTalk(Talk):
    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        names = [option.header.key.lower() for mutation in mutations(answer) for option in mutation.set_headers]
        if "content-length" in names:
            raise EppUnavailable("two lengths of one body")
        return answer


class _OldLength(Gateway):
    talk_type = _OldLengthTalk


class _OldLengthOfResponses(Gateway):
    talk_type = _OldLengthOfResponsesTalk


class _TwoLengths(Gateway):
    talk_type = _TwoLengthsTalk


class _RetriesTheClients(Gateway):
    """What is kept for another attempt is what the client sent."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        assert before is None or before.failed
        made = await talk.ask(request)
        released = dataclasses.replace(request, headers=made.headers, body=made.body, trailers=made.trailers)
        endpoints, tried = self.walk(made, pool), list[str]()
        first = await self.forward(released, itertools.islice(endpoints, 1), tried)
        return await self.forward(request, endpoints, tried) if first.failed else first


class _PageTalk(Talk):
    """Errors of model servers get a page when the EPP has let them go."""

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        failed = endpoint is not None and response.status >= 400
        return dataclasses.replace(told, body=b"<h1>Something went wrong</h1>") if failed else told


class _Page(Gateway):
    talk_type = _PageTalk


class _OwnNameTalk(Talk):
    """The EPP is told the name of the pool in place of the request's authority."""

    async def ask(self, request: GatewayRequest) -> Decision:
        return await super().ask(dataclasses.replace(request, authority="pool.internal"))


class _OwnName(Gateway):
    talk_type = _OwnNameTalk


class _PutsArePosts(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        method = "POST" if request.method == "PUT" else request.method
        return await super().handle(dataclasses.replace(request, method=method))


class _ThroughFloats(Gateway):
    """Bodies are read and written as JavaScript does: each number is one of 64 bits with a point."""

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        return await super().attempt(endpoint, dataclasses.replace(request, body=_written_again(request.body)))


def _written_again(body: bytes) -> bytes:
    try:
        return json.dumps(json.loads(body, parse_int=lambda digits: int(float(digits)))).encode()
    except ValueError:
        return body


class _KnownMembers(Gateway):
    """Of a body in JSON only the members that the gateway knows go on."""

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        return await super().attempt(endpoint, dataclasses.replace(request, body=_known(request.body)))


def _known(body: bytes) -> bytes:
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if not isinstance(value, dict):
        return body
    return json.dumps({name: one for name, one in value.items() if not name.startswith("x_")}).encode()


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="tells-its-own-name",
        why="the EPP is told the name of the pool in place of the authority, with which the request goes on",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_OwnName,
    ),
    Fault(
        name="puts-are-posts",
        why="a request with PUT is one with POST for the EPP and the model server",
        breaks="DP-EXTP-01",
        gateway=_PutsArePosts,
    ),
    Fault(
        name="numbers-through-floats",
        why="a body in JSON is written again, with each whole number rounded to what a floating-point one holds",
        breaks="DP-EXTP-01",
        gateway=_ThroughFloats,
    ),
    Fault(
        name="known-members-only",
        why="of a body in JSON the members that the gateway does not know are lost",
        breaks="DP-EXTP-01",
        gateway=_KnownMembers,
    ),
    Fault(
        name="small-buffer",
        why="a body of more than 32 KiB gets 413 when the EPP has answered the headers",
        breaks="DP-EXTP-01",
        gateway=_SmallBuffer,
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="adds-what-the-epp-sets",
        why="headers that the EPP sets are added to those of the same name",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_Adds,
    ),
    Fault(
        name="takes-unsaid-for-append",
        why="so it is where the EPP does not say whether to overwrite, as most do not",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_AddsWhereNothingIsSaid,
    ),
    Fault(
        name="appends-the-destination",
        why="where the EPP says so little its destination comes after the client's, and the first is read",
        breaks="DP-DEST-01",
        also_breaks={
            "DP-DEST-04": "the client's is read where the EPP gives none, too",
            "DP-EXTP-01": "other headers are added to the client's as well",
        },
        gateway=_AddsToTheClients,
        claims={"follows": "header"},
    ),
    Fault(
        name="chokes-on-pseudo-headers",
        why="a request whose EPP sets :path, if only to what it is, gets 500",
        breaks="DP-DEST-01",
        gateway=_ChokesOnPseudoHeaders,
    ),
    Fault(
        name="keeps-the-old-length",
        why="a request goes on with the content-length that it came with, however long the EPP made its body",
        breaks="DP-EXTP-01",
        gateway=_OldLength,
    ),
    Fault(
        name="keeps-the-old-length-of-a-collected-body",
        why="so it is where the body is collected, and the EPP sets the length that it gives it",
        breaks="DP-EXTP-01",
        gateway=_OldLength,
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="keeps-the-old-length-of-responses",
        why="so does a response",
        breaks="DP-EXTP-01",
        gateway=_OldLengthOfResponses,
    ),
    Fault(
        name="chokes-on-a-length",
        why="a request whose EPP sets content-length gets 500, as then there are two",
        breaks="DP-DEST-01",
        gateway=_TwoLengths,
    ),
    Fault(
        name="retries-the-clients-own-request",
        why="a retry is sent what the client sent, and not what the EPP made of it",
        breaks="DP-EXTP-01",
        gateway=_RetriesTheClients,
    ),
    Fault(
        name="error-pages-for-model-servers",
        why="a page takes the place of what a model server says with an error, and what the EPP has let go",
        breaks="DP-EXTP-01",
        gateway=_Page,
    ),
)
