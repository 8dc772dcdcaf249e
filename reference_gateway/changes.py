"""Changes of the gateway and of its conversation with an EPP, of which deviations are made.

A function that replaces a method is called with the method that it replaces, bound, before `self`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeVar, cast

from ext_proc.record import Headers
from reference_gateway.epp_client import Talk
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway

T = TypeVar("T")
Act = Callable[..., Any]


def changed(part: type[T], **own: Any) -> type[T]:
    """`part` with other methods, which are functions as above, and other attributes."""
    made = type(part.__name__, (part,), {name: one for name, one in own.items() if not isinstance(one, FunctionType)})
    for name, act in own.items():
        if isinstance(act, FunctionType):
            setattr(made, name, _method(made, name, act))
    return cast("type[T]", made)


def _method(cls: type, name: str, act: Act) -> Act:
    @functools.wraps(act)
    def method(self: Any, *given: Any, **named: Any) -> Any:
        return act(getattr(super(cls, self), name), self, *given, **named)

    return method


def fields(change: Act) -> Act:
    """Makes of `change`, which gives fields by name, a function that gives its first argument with these fields."""
    return lambda one, *given: dataclasses.replace(one, **change(one, *given))


# -- the gateway


def sending(change: Act) -> type[Gateway]:
    """Sends requests to model servers with the fields `change(request)`."""
    return changed(Gateway, attempt=lambda up, _, endpoint, request: up(endpoint, fields(change)(request)))


def receiving(change: Act) -> type[Gateway]:
    """Takes `change(response, request)` for the response of a model server."""

    async def act(up: Act, _: Any, endpoint: str, request: GatewayRequest) -> Any:
        got = await up(endpoint, request)
        return got if got is None else change(got, request)

    return changed(Gateway, attempt=act)


def responding(change: Act) -> type[Gateway]:
    """Gives the client `change(response, request)`."""

    async def act(up: Act, _: Any, request: GatewayRequest) -> GatewayResponse:
        response: GatewayResponse = change(await up(request), request)
        return response

    return changed(Gateway, handle=act)


def refusing(status: int, when: Act, headers: Headers = (), body: bytes = b"") -> type[Gateway]:
    """Answers requests for which `when(request)` is true at once."""
    refusal = GatewayResponse(status=status, headers=headers, body=body)

    async def act(up: Act, _: Any, request: GatewayRequest) -> GatewayResponse:
        response: GatewayResponse = refusal if when(request) else await up(request)
        return response

    return changed(Gateway, handle=act)


def unasked(when: Act) -> type[Gateway]:
    """Does not ask the EPP about requests for which `when(request)` is true."""
    return changed(Gateway, asks=lambda up, _, request: not when(request) and up(request))


def answering(change: Act) -> type[Gateway]:
    """Gives the client the fields `change(response, request)` where the EPP answered itself."""

    async def act(up: Act, _: Any, answer: Any, pool: Any, request: GatewayRequest) -> GatewayResponse:
        response: GatewayResponse = fields(change)(await up(answer, pool, request), request)
        return response

    return changed(Gateway, answered=act)


def walking(change: Act) -> type[Gateway]:
    """Tries the endpoints `change(listed, decision, pool)`; `listed` are the right ones."""
    return changed(Gateway, walk=lambda up, _, decision, pool: iter(change([*up(decision, pool)], decision, pool)))


# -- the conversation with an EPP


def telling(change: Act) -> type[Talk]:
    """Tells the EPP of requests with the fields `change(request)`."""
    return changed(Talk, ask=lambda up, _, request: up(fields(change)(request)))


def taking(change: Act) -> type[Talk]:
    """Takes `change(told, response, endpoint)` for a response that the EPP was told of."""

    async def act(
        up: Act, _: Any, response: GatewayResponse, endpoint: str | None, tried: list[str]
    ) -> GatewayResponse:
        taken: GatewayResponse = change(await up(response, endpoint, tried), response, endpoint)
        return taken

    return changed(Talk, tell=act)


def tampering(change: Act) -> type[Talk]:
    """Calls `change(message)` with each message to the EPP; sends what it gives, or else the message."""

    def act(up: Act, _: Any, message: Any, *, first: bool) -> Iterable[Any]:
        for one in up(message, first=first):
            yield from change(one) or (one,)

    return changed(Talk, tamper=act)


def hearing(change: Act) -> type[Talk]:
    """Calls `change(answer)` with each answer of the EPP before it is looked at."""

    async def act(up: Act, _: Any) -> Any:
        answer = await up()
        if answer is not None:
            change(answer)
        return answer

    return changed(Talk, _receive=act)


def mutations(answer: Any) -> list[Any]:
    """The mutation of headers in an answer to headers, as a list of one or none."""
    kind = answer.WhichOneof("response")
    return [getattr(answer, kind).response.header_mutation] if kind in ("request_headers", "response_headers") else []
