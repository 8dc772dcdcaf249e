"""Faults in what is done with the EPP's answers, and without it. Each is the right gateway but for one thing."""
# fmt: off

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from ext_proc.record import header, values
from reference_gateway.changes import answering, changed, walking
from reference_gateway.epp_client import DESTINATION, Decision
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway, Settings

OPEN = {"failureMode": "open"}


def _others(listed: list[str], pool: Any) -> list[str]:
    return [one for one in pool.endpoints if one not in listed]


def _first_item(listed: list[str], decision: Decision, _: Any) -> list[str]:
    first = decision.destinations().partition(",")[0].strip()
    return [one for one in listed if one == first]


def _retrying(change: Callable[[GatewayRequest], GatewayRequest]) -> type[Gateway]:
    """Sends `change(request)` after the first attempt."""
    async def act(up: Any, _: Any, request: GatewayRequest, endpoints: Any, tried: list[str]) -> Any:
        first = await up(request, itertools.islice(endpoints, 1), tried)
        return await up(change(request), endpoints, tried) if first.failed else first

    return changed(Gateway, forward=act)


NO_BODY = _retrying(lambda request: dataclasses.replace(request, body=b""))

fault("cut-request-as-whole", "DP-EXTP-01",
      "what a client sent of a body before it went away is told and sent on as the whole",
      settings={"cut_is_whole": True})
fault("pick-ignored", "DP-DEST-01",
      "the gateway balances the load by itself, whatever the EPP says",
      walking(lambda listed, _, pool: [*_others(listed, pool), *listed]),
      also={"DP-DEST-02": "a list is ignored as well as a single endpoint"})


@fault("picks-mix-up", "DP-DEST-01",
       "of several requests at a time, all go where the EPP sent the one that it answered last")
class MixesUp(Gateway):
    _last: Decision

    async def through(self, pool: Any, talk: Any, request: GatewayRequest, *, before: Any) -> Any:
        assert before is None or before.failed
        own = self._last = await talk.ask(request)
        await asyncio.sleep(0.02)  # meanwhile others are answered
        released = dataclasses.replace(request, headers=own.headers, body=own.body, trailers=own.trailers)
        return await self.forward(released, self.walk(self._last, pool), [])


fault("retries-go-anywhere", "DP-DEST-02",
      "after the first endpoint of a list, retries go to others of the pool",
      walking(lambda listed, _, pool: [*listed[:1], *_others(listed, pool)]))
fault("retries-skip-one", "DP-DEST-02",
      "a retry passes over the next endpoint of the list",
      walking(lambda listed, *_: [*listed[:1], *listed[2:], *listed[1:2]]))
fault("retries-lose-the-query", "DP-EXTP-01",
      "a retry asks for the path without its query",
      _retrying(lambda request: dataclasses.replace(request, path=request.path.partition("?")[0])))
fault("retries-lose-the-body", "DP-EXTP-01",
      "a retry is sent without the body, which the first attempt took", NO_BODY)
fault("retries-lose-a-body-that-no-epp-sees", "DP-EXTP-01",
      "bodies are not sent to the EPP, and a retry is sent without one", NO_BODY, settings={"mode": "NONE"})
fault("retries-cut-the-body", "DP-EXTP-01",
      "a retry is sent with the first 64 KiB of the body",
      _retrying(lambda request: dataclasses.replace(request, body=request.body[: 64 * 1024])))
fault("first-item-only", "DP-DEST-02",
      "of a list only the first item is read, so that nothing is left where it is dead or no endpoint",
      walking(_first_item))
fault("last-first", "DP-DEST-02", "the list is walked from its end", walking(lambda listed, *_: listed[::-1]))


@fault("keeps-to-its-server", "DP-DEST-01", "all requests of a client's connection go where the first one went")
class KeepsToItsServer(Gateway):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._firsts: dict[int, str] = {}

    async def forward(self, request: GatewayRequest, endpoints: Any, tried: list[str]) -> Any:
        for endpoint in endpoints:
            first = self._firsts.setdefault(request.connection, endpoint)
            return await super().forward(request, itertools.chain((first,), endpoints), tried)
        return await super().forward(request, endpoints, tried)


fault("retries-off", "DP-DEST-02",
      "no attempt is made after the first, although retry is configured", settings={"retries": 0})
fault("fallback-ignored", "DP-DEST-03",
      "the fallback endpoint of 0.3.0 is not read",
      walking(lambda listed, decision, _: [one for one in listed if one != decision.fallback()]),
      effect="warn", version="0.3.0")

# -- the client's own destination


class ClientKept(Gateway):
    """The client's header stays on the request; what the EPP sets replaces it."""

    name = DESTINATION.encode()
    """The header in which it stays."""

    def admit(self, request: GatewayRequest) -> Any:
        admitted, subset = super().admit(request)
        own = tuple((self.name, value) for value in values(request.headers, DESTINATION.encode()))
        return dataclasses.replace(admitted, headers=(*admitted.headers, *own)), subset


class _ClientNames(ClientKept):
    name = b"x-named-by-the-client"

    def named(self, request: GatewayRequest) -> list[str]:
        """The first endpoint that the client named."""
        return [value.decode("latin-1") for value in values(request.headers, self.name)][:1]


fault("client-header-kept", "DP-DEST-04",
      "the client's destination header is not removed, and counts where the EPP gives none",
      ClientKept, effect="warn")


@fault("client-steers", "DP-DEST-04",
       "the client's destination header is followed before the EPP's answer", effect="warn",
       also={"DP-DEST-01": "what the EPP gave is not followed where the client names another endpoint"})
class ClientFirst(_ClientNames):
    async def through(self, pool: Any, talk: Any, request: GatewayRequest, *, before: Any) -> Any:
        if not (named := self.named(request)):
            return await super().through(pool, talk, request, before=before)
        await talk.ask(request)
        return await self.forward(request, iter(named), [])


@fault("client-steers-without-an-epp", "DP-DEST-04",
       "without an EPP requests are sent on, as configured, to where the client's destination header says",
       effect="warn", settings={"fails_open": True}, claims=OPEN)
class ClientSteersWithoutAnEpp(_ClientNames):
    async def without_epp(self, pool: Any, request: GatewayRequest, problem: str) -> GatewayResponse:
        if not (named := self.named(request)):
            return await super().without_epp(pool, request, problem)
        return (await self.forward(request, iter(named), [])).response


# -- refusals of the EPP


def _as_text(response: GatewayResponse, _: Any) -> dict[str, Any]:
    kept = [pair for pair in response.headers if pair[0] != b"content-type"]
    return {"headers": (*kept, (b"content-type", b"text/plain; charset=utf-8"))}  # as Go's `http.Error` does


def _length_unknown(request: GatewayRequest) -> bool:
    return bool(request.body) and header(request.headers, b"content-length") is None


async def _ignored(_: Any, gateway: Any, __: Any, pool: Any, request: GatewayRequest) -> Any:
    return (await gateway.forward(request, gateway.unsteered(pool), [])).response


async def _mirrored(up: Any, gateway: Any, answer: Any, pool: Any, request: GatewayRequest) -> Any:
    await gateway.forward(request, gateway.unsteered(pool), [])
    return await up(answer, pool, request)


ANOTHER = {"DP-DEST-01": "which may be another than the one that the EPP named before it refused"}

fault("error-as-500", "DP-ERR-01",
      "whatever the EPP refuses with, the client gets 500", answering(lambda *_: {"status": 500}))
fault("error-of-a-chunked-request-as-500", "DP-ERR-01",
      "whatever the EPP refuses with, the client gets 500 if it did not say the length of its body",
      answering(lambda _, request: {"status": 500} if _length_unknown(request) else {}))
fault("error-without-its-body", "DP-ERR-01",
      "the client gets an error page of the gateway in place of the EPP's words",
      answering(lambda *_: {"body": b"error"}))
fault("error-without-its-headers", "DP-ERR-01",
      "headers such as retry-after are lost on the way to the client", answering(lambda *_: {"headers": ()}))
fault("error-as-text", "DP-ERR-01",
      "whatever the EPP refuses with, its type is text/plain for the client", answering(_as_text))
fault("error-with-two-types", "DP-ERR-01",
      "what the EPP refuses with has its type for the client, and text/plain as well",
      answering(lambda response, _: {"headers": ((b"content-type", b"text/plain"), *response.headers)}))
fault("error-ignored", "DP-ERR-01",
      "a request that the EPP refuses is sent to a model server", changed(Gateway, answered=_ignored), also=ANOTHER)
fault("error-after-a-model-server", "DP-ERR-01",
      "the client gets the EPP's refusal, and a model server got the request all the same",
      changed(Gateway, answered=_mirrored), also=ANOTHER)

# -- without an EPP

fault("fails-open", "DP-FAIL-01",
      "without an EPP requests are sent on, although the gateway is to fail closed",
      also={"DP-DEST-01": "where an EPP fails after its pick, that is forgotten, too"},
      effect="warn", settings={"fails_open": True})
fault("fails-closed", "DP-FAIL-01",
      "without an EPP requests fail, although the gateway is to fail open", effect="warn", claims=OPEN)
