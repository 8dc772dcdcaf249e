"""Faults in what is said to the EPP. Each is the right gateway but for one thing, which its `Fault` below tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from ext_proc.messages import HttpHeaders, ProcessingRequest
from ext_proc.record import header
from reference_gateway.epp_client import NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE, Decision, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome


def _saying(talk: type[Talk]) -> type[Gateway]:
    return type(talk.__name__, (Gateway,), {"talk_type": talk})


class _DecodedPath(Talk):
    async def ask(self, request: GatewayRequest) -> Decision:
        return await super().ask(dataclasses.replace(request, path=unquote(request.path)))


class _AsText(Talk):
    """The body is read as text, in which other bytes are replaced, and told so."""

    async def ask(self, request: GatewayRequest) -> Decision:
        told = request.body.decode("utf-8", errors="replace").encode()
        decision = await super().ask(dataclasses.replace(request, body=told))
        if told != request.body:
            decision.body = request.body
        return decision


class _UpperCase(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        for one in message.request_headers.headers.headers if first else ():
            one.key = one.key.title()
        return (message,)


class _NoEnd(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if not first and message.HasField("request_body"):
            message.request_body.end_of_stream = False
        return (message,)


class _EndTwice(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if not first and message.request_body.end_of_stream:
            return (message, message)
        return (message,)


class _EarlyEnd(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if first:
            message.request_headers.end_of_stream = True
        return (message,)


class _AlwaysConfigured(Talk):
    _config: ProcessingRequest

    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if first:
            self._config = message
        else:
            message.protocol_config.CopyFrom(self._config.protocol_config)
        return (message,)


class _RefusalComesBack(Gateway):
    """The local reply of an ImmediateResponse goes through the filter again."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        try:
            return await super().through(pool, talk, request, before=before)
        except Exception as answer:
            response = getattr(answer, "response", None)
            if response is not None:
                status = str(response.status.code).encode()
                head = HttpHeaders(end_of_stream=True)
                head.headers.headers.add(key=":status", raw_value=status)
                talk._send("response_headers", head)  # noqa: SLF001 - a fault of this very conversation
            raise


class _AskedOncePerConnection(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        seen = self.__dict__.setdefault("seen", set())
        known = request.connection in seen
        seen.add(request.connection)
        return not known


class _GetUnasked(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        return request.method != "GET"


class _ExpectUnasked(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        return header(request.headers, b"expect") is None


class _AbsoluteFormUnasked(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        return request.written != "absolute-form"


class _Http10Unasked(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        return request.written != "http-1.0"


class _RangeUnasked(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        return header(request.headers, b"range") is None


class _HintAsText(Talk):
    def hint(self, subset: list[str]) -> dict[str, Any]:
        return {SUBSET_NAMESPACE: {SUBSET: ",".join(subset)}}


class _HintElsewhere(Talk):
    def hint(self, subset: list[str]) -> dict[str, Any]:
        return {NAMESPACE: {SUBSET: subset}}


class _HintWithoutPorts(Talk):
    def hint(self, subset: list[str]) -> dict[str, Any]:
        return {SUBSET_NAMESPACE: {SUBSET: [one.rpartition(":")[0] for one in subset]}}


class _OtherHintOnBodies(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if not first and message.HasField("request_body"):
            del message.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields[SUBSET].list_value.values[:]
        return (message,)


class _WholePoolHinted(Gateway):
    def open(self, pool: BackendPool, subset: list[str] | None, *, before: PoolOutcome | None) -> Talk:
        return super().open(pool, subset and list(pool.endpoints), before=before)


class _NoHint(Talk):
    def hint(self, subset: list[str]) -> dict[str, Any]:
        assert subset is not None
        return {}


class _NothingServed(Talk):
    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        assert endpoint in tried
        return {}


class _FirstServed(Talk):
    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        assert endpoint in tried
        return {NAMESPACE: {SERVED: tried[0]}}


class _ServedAsList(Talk):
    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        assert endpoint in tried
        return {NAMESPACE: {SERVED: [endpoint]}}


class _OtherServedOnBodies(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if not first and message.HasField("response_body"):
            message.metadata_context.filter_metadata[NAMESPACE].fields[SERVED].string_value = "192.0.2.1:8000"
        return (message,)


class _ServedAfterTheHeaders(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        if not first and message.HasField("response_headers") and not message.response_headers.end_of_stream:
            message.metadata_context.filter_metadata.pop(NAMESPACE, None)
        return (message,)


class _ServedElsewhere(Talk):
    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        assert endpoint in tried
        return {"envoy.lb.served": {SERVED: endpoint}}


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="upper-case-names",
        why="names of headers go to the EPP in the case in which HTTP/1 clients like to write them",
        breaks="DP-EXTP-01",
        gateway=_saying(_UpperCase),
    ),
    Fault(
        name="body-told-as-text",
        why="the EPP gets the request body as text, in which what is no UTF-8 is replaced",
        breaks="DP-EXTP-01",
        gateway=_saying(_AsText),
    ),
    Fault(
        name="no-end-of-stream",
        why="no message says that the request body is complete",
        breaks="DP-EXTP-01",
        gateway=_saying(_NoEnd),
        settings={"mode": "STREAMED"},
    ),
    Fault(
        name="end-of-stream-twice",
        why="the message that ends the request body is sent twice",
        breaks="DP-EXTP-01",
        gateway=_saying(_EndTwice),
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="end-of-stream-on-headers",
        why="the headers say that there is no body, and then one comes",
        breaks="DP-EXTP-01",
        gateway=_saying(_EarlyEnd),
    ),
    Fault(
        name="path-told-decoded",
        why="the EPP is told the path without its escapes, with which it goes on to the model server",
        breaks="DP-EXTP-01",
        gateway=_saying(_DecodedPath),
    ),
    Fault(
        name="protocol-config-on-every-message",
        why="the body modes are told again and again",
        breaks="DP-EXTP-01",
        gateway=_saying(_AlwaysConfigured),
    ),
    Fault(
        name="refusal-comes-back",
        why="an ImmediateResponse is sent to the EPP as a response to be processed",
        breaks="DP-EXTP-01",
        gateway=_RefusalComesBack,
    ),
    Fault(
        name="asks-once-per-connection",
        why="only the first request of a connection is put to the EPP; the others are balanced",
        breaks="DP-EXTP-01",
        gateway=_AskedOncePerConnection,
    ),
    Fault(
        name="get-unasked",
        why="requests without a body are sent on without asking the EPP",
        breaks="DP-EXTP-01",
        also_breaks={"DP-FAIL-01": "what is never asked about does not fail without an EPP either"},
        gateway=_GetUnasked,
    ),
    Fault(
        name="expect-unasked",
        why="requests whose client expects 100 Continue are sent on without asking the EPP",
        breaks="DP-EXTP-01",
        gateway=_ExpectUnasked,
    ),
    Fault(
        name="absolute-form-unasked",
        why="requests with the whole URL in their first line are sent on without asking the EPP",
        breaks="DP-EXTP-01",
        gateway=_AbsoluteFormUnasked,
    ),
    Fault(
        name="http-1.0-unasked",
        why="requests of HTTP/1.0 are sent on without asking the EPP",
        breaks="DP-EXTP-01",
        gateway=_Http10Unasked,
    ),
    Fault(
        name="range-unasked",
        why="requests for a part of a response are sent on without asking the EPP, as to a cache",
        breaks="DP-EXTP-01",
        gateway=_RangeUnasked,
    ),
    Fault(
        name="hint-as-text",
        why="the subset is one string with commas in place of a list",
        breaks="DP-SUB-01",
        gateway=_saying(_HintAsText),
    ),
    Fault(
        name="hint-elsewhere",
        why="the subset is in the namespace of the destination",
        breaks="DP-SUB-01",
        gateway=_saying(_HintElsewhere),
    ),
    Fault(
        name="hint-without-ports",
        why="the subset has addresses in place of endpoints",
        breaks="DP-SUB-01",
        gateway=_saying(_HintWithoutPorts),
    ),
    Fault(
        name="hint-changes",
        why="the messages of the body have an empty subset, whatever the headers have",
        breaks="DP-SUB-01",
        gateway=_saying(_OtherHintOnBodies),
    ),
    Fault(
        name="hint-is-the-pool",
        why="the subset has all of the pool, whatever it is to be made of",
        breaks="DP-SUB-01",
        gateway=_WholePoolHinted,
    ),
    Fault(
        name="hint-not-sent",
        why="the subset that the gateway was told to send does not reach the EPP",
        breaks="DP-SUB-01",
        gateway=_saying(_NoHint),
    ),
    Fault(
        name="served-not-reported",
        why="the EPP does not learn who served",
        breaks="DP-SRVD-01",
        gateway=_saying(_NothingServed),
    ),
    Fault(
        name="served-is-the-first-attempt",
        why="after a retry, the endpoint that failed is reported",
        breaks="DP-SRVD-01",
        gateway=_saying(_FirstServed),
    ),
    Fault(
        name="served-as-a-list",
        why="the endpoint that served is reported in a list",
        breaks="DP-SRVD-01",
        gateway=_saying(_ServedAsList),
    ),
    Fault(
        name="served-changes",
        why="the messages of the body report another endpoint than the headers of the response",
        breaks="DP-SRVD-01",
        gateway=_saying(_OtherServedOnBodies),
    ),
    Fault(
        name="served-after-the-headers",
        why="the endpoint that served is reported with the body of the response, and not with its headers",
        breaks="DP-SRVD-01",
        effect="warn",
        gateway=_saying(_ServedAfterTheHeaders),
    ),
    Fault(
        name="served-elsewhere",
        why="the endpoint that served is reported in a namespace of the gateway's own",
        breaks="DP-SRVD-01",
        gateway=_saying(_ServedElsewhere),
    ),
)
