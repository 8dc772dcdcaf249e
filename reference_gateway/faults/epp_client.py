"""Faults in what is said to the EPP. Each is the right gateway but for one thing."""
# fmt: off

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import unquote

from ext_proc.messages import HttpHeaders
from ext_proc.record import header
from reference_gateway.changes import changed, tampering, telling, unasked
from reference_gateway.epp_client import NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE, Decision, Talk
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import Gateway

# -- messages


async def _as_text(up: Any, _: Any, request: GatewayRequest) -> Decision:
    told = request.body.decode("utf-8", errors="replace").encode()
    decision: Decision = await up(dataclasses.replace(request, body=told))
    if told != request.body:
        decision.body = request.body
    return decision


def _title_case(message: Any) -> None:
    for one in message.request_headers.headers.headers:
        one.key = one.key.title()


def _no_end(message: Any) -> None:
    if message.HasField("request_body"):
        message.request_body.end_of_stream = False


def _end_twice(message: Any) -> Any:
    return (message, message) if message.request_body.end_of_stream else None


def _early_end(message: Any) -> None:
    if message.HasField("request_headers"):
        message.request_headers.end_of_stream = True


@fault("protocol-config-on-every-message", "DP-EXTP-01", "the body modes are told again and again")
class AlwaysConfigured(Talk):
    _config: Any

    def tamper(self, message: Any, *, first: bool) -> Any:
        if first:
            self._config = message
        else:
            message.protocol_config.CopyFrom(self._config.protocol_config)
        return (message,)


@fault("refusal-comes-back", "DP-EXTP-01",
       "an ImmediateResponse is sent to the EPP as a response to be processed")
class RefusalComesBack(Gateway):
    async def through(self, pool: Any, talk: Any, request: GatewayRequest, *, before: Any) -> Any:
        try:
            return await super().through(pool, talk, request, before=before)
        except Exception as answer:
            response = getattr(answer, "response", None)
            if response is not None:
                head = HttpHeaders(end_of_stream=True)
                head.headers.headers.add(key=":status", raw_value=b"%d" % response.status.code)
                talk._send("response_headers", head)  # noqa: SLF001 - a fault of this very conversation
            raise


fault("upper-case-names", "DP-EXTP-01",
      "names of headers go to the EPP in the case in which HTTP/1 clients like to write them",
      tampering(_title_case))
fault("body-told-as-text", "DP-EXTP-01",
      "the EPP gets the request body as text, in which what is no UTF-8 is replaced", changed(Talk, ask=_as_text))
fault("no-end-of-stream", "DP-EXTP-01",
      "no message says that the request body is complete", tampering(_no_end), settings={"mode": "STREAMED"})
fault("end-of-stream-twice", "DP-EXTP-01",
      "the message that ends the request body is sent twice", tampering(_end_twice), settings={"mode": "BUFFERED"})
fault("end-of-stream-on-headers", "DP-EXTP-01",
      "the headers say that there is no body, and then one comes", tampering(_early_end))
fault("path-told-decoded", "DP-EXTP-01",
      "the EPP is told the path without its escapes, with which it goes on to the model server",
      telling(lambda request: {"path": unquote(request.path)}))

# -- not asked


@fault("asks-once-per-connection", "DP-EXTP-01",
       "only the first request of a connection is put to the EPP; the others are balanced")
class AskedOncePerConnection(Gateway):
    def asks(self, request: GatewayRequest) -> bool:
        seen = self.__dict__.setdefault("seen", set())
        known = request.connection in seen
        seen.add(request.connection)
        return not known


fault("get-unasked", "DP-EXTP-01",
      "requests without a body are sent on without asking the EPP", unasked(lambda request: request.method == "GET"),
      also={"DP-FAIL-01": "what is never asked about does not fail without an EPP either"})
fault("expect-unasked", "DP-EXTP-01",
      "requests whose client expects 100 Continue are sent on without asking the EPP",
      unasked(lambda request: header(request.headers, b"expect") is not None))
fault("absolute-form-unasked", "DP-EXTP-01",
      "requests with the whole URL in their first line are sent on without asking the EPP",
      unasked(lambda request: request.written == "absolute-form"))
fault("http-1.0-unasked", "DP-EXTP-01",
      "requests of HTTP/1.0 are sent on without asking the EPP",
      unasked(lambda request: request.written == "http-1.0"))
fault("range-unasked", "DP-EXTP-01",
      "requests for a part of a response are sent on without asking the EPP, as to a cache",
      unasked(lambda request: header(request.headers, b"range") is not None))

# -- the subset


def _hint(made: Any) -> type[Talk]:
    """Sends the metadata `made(subset)` for a subset."""
    return changed(Talk, hint=lambda _, __, subset: made(subset))


def _empty_on_bodies(message: Any) -> None:
    if message.HasField("request_body"):
        del message.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields[SUBSET].list_value.values[:]


fault("hint-as-text", "DP-SUB-01",
      "the subset is one string with commas in place of a list",
      _hint(lambda subset: {SUBSET_NAMESPACE: {SUBSET: ",".join(subset)}}))
fault("hint-elsewhere", "DP-SUB-01",
      "the subset is in the namespace of the destination", _hint(lambda subset: {NAMESPACE: {SUBSET: subset}}))
fault("hint-without-ports", "DP-SUB-01",
      "the subset has addresses in place of endpoints",
      _hint(lambda subset: {SUBSET_NAMESPACE: {SUBSET: [one.rpartition(":")[0] for one in subset]}}))
fault("hint-changes", "DP-SUB-01",
      "the messages of the body have an empty subset, whatever the headers have", tampering(_empty_on_bodies))
fault("hint-is-the-pool", "DP-SUB-01",
      "the subset has all of the pool, whatever it is to be made of",
      changed(Gateway, open=lambda up, _, pool, subset, before: up(
          pool, subset and list(pool.endpoints), before=before)))
fault("hint-not-sent", "DP-SUB-01",
      "the subset that the gateway was told to send does not reach the EPP", _hint(lambda _: {}))

# -- the endpoint that served


def _report(made: Any) -> type[Talk]:
    """Reports the metadata `made(endpoint, tried)`."""
    return changed(Talk, report=lambda _, __, endpoint, tried: made(endpoint, tried))


def _another_on_bodies(message: Any) -> None:
    if message.HasField("response_body"):
        message.metadata_context.filter_metadata[NAMESPACE].fields[SERVED].string_value = "192.0.2.1:8000"


def _after_the_headers(message: Any) -> None:
    if message.HasField("response_headers") and not message.response_headers.end_of_stream:
        message.metadata_context.filter_metadata.pop(NAMESPACE, None)


fault("served-not-reported", "DP-SRVD-01",
      "the EPP does not learn who served", _report(lambda *_: {}))
fault("served-is-the-first-attempt", "DP-SRVD-01",
      "after a retry, the endpoint that failed is reported",
      _report(lambda _, tried: {NAMESPACE: {SERVED: tried[0]}}))
fault("served-as-a-list", "DP-SRVD-01",
      "the endpoint that served is reported in a list", _report(lambda endpoint, _: {NAMESPACE: {SERVED: [endpoint]}}))
fault("served-changes", "DP-SRVD-01",
      "the messages of the body report another endpoint than the headers of the response",
      tampering(_another_on_bodies))
fault("served-after-the-headers", "DP-SRVD-01",
      "the endpoint that served is reported with the body of the response, and not with its headers",
      tampering(_after_the_headers), effect="warn")
fault("served-elsewhere", "DP-SRVD-01",
      "the endpoint that served is reported in a namespace of the gateway's own",
      _report(lambda endpoint, _: {"envoy.lb.served": {SERVED: endpoint}}))
