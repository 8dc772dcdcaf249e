"""From a scenario's request to the HTTP request that a client sends.

The run sends it, and `report verify` compares what was sent.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Collection
from typing import Any

from conformance.scenario.header_fields import HeaderPairs, on_the_wire
from conformance.scenario.models import KNOWN, asked_model
from conformance.scenario.replies import FILLER
from conformance.scenario.schema import CHAT_PATH, BodySpec, ClientRequest, Exchange
from conformance.targets.profile import Requests
from ext_proc.record import Headers
from fake_proxy.client import Abort, Chunk, HttpRequest

WIDE = "🌍".encode()
"""What a wide body is filled up with: cut before every fourth byte only, it is text."""


def http_request(exchange: ClientRequest, requests: Requests, rng: random.Random) -> HttpRequest:
    """The HTTP request that a scenario asks for; `requests` says what those to this target look like."""
    path = _path(exchange, requests)
    body = b"" if bodyless(exchange) else _body(exchange, requests, path, rng)
    trailers = on_the_wire(exchange.trailers) or (((b"x-end", b"1"),) if exchange.end == "trailers" else ())
    http = {"flag": 2, "empty": 1}.get(exchange.end, exchange.http)
    request = HttpRequest(
        method=exchange.method,
        path=path,
        headers=_headers(exchange, requests),
        body=_chunks(body, exchange.chunks),
        trailers=trailers,
        http=2 if http == 2 else 1,
        coalesced=exchange.coalesced,
        chunked=not exchange.content_length,
        abort=_ABORTS.get(exchange.abort or ""),
    )
    return dataclasses.replace(request, authority=exchange.authority) if isinstance(exchange, Exchange) else request


def bodyless(request: ClientRequest) -> bool:
    """Whether a request has no byte of a body; others say that theirs is JSON, unless they are told otherwise."""
    return request.body in ("none", "empty") or (request.body == "default" and request.method in ("GET", "HEAD"))


def stated_path(request: ClientRequest) -> str | None:
    """The path that a scenario states, with its query; None if that is the profile's."""
    return request.path and request.path + "x" * request.query_filler


def stated_headers(headers: HeaderPairs, filler: int) -> Headers:
    """The headers that a scenario states, and so many fillers, the first of 9,000 bytes. They are a request's last."""
    fillers = [(f"x-filler-{number}".encode(), b"filler") for number in range(filler)]
    fillers[:1] = [(name, value * 1500) for name, value in fillers[:1]]
    return (*on_the_wire(headers), *fillers)


def without(names: Collection[str], request: HttpRequest) -> HttpRequest:
    """`request` without these headers; of them the data plane adds `x-request-id`."""
    if not names:
        return request
    left = tuple((name, value) for name, value in request.headers if name.lower().decode("latin-1") not in names)
    return dataclasses.replace(request, headers=left, request_id="" if "x-request-id" in names else request.request_id)


def _path(exchange: ClientRequest, requests: Requests) -> str:
    path, query, rest = (stated_path(exchange) or requests.path).partition("?")
    return (requests.chat_path if path == CHAT_PATH else path) + query + rest


_ABORTS = {
    "request-headers": Abort(at="request-headers"),
    "request-body": Abort(at="request-body", after=1),
    "destination": Abort(at="destination"),
    "response": Abort(at="response-body", after=1),
}


def _headers(exchange: ClientRequest, requests: Requests) -> Headers:
    given = stated_headers(exchange.headers, exchange.filler_headers)
    names = {name.lower() for name, _ in given}
    own = {**requests.headers, **requests.secret_headers}
    if not bodyless(exchange):
        own = {"content-type": "application/json", **own}
    if exchange.sheddable:
        own |= requests.sheddable.headers
    standard = [
        (name.lower().encode(), value.encode()) for name, value in own.items() if name.lower().encode() not in names
    ]
    return (*standard, *given)


def _body(exchange: ClientRequest, requests: Requests, path: str, rng: random.Random) -> bytes:
    spec = exchange.body if isinstance(exchange.body, BodySpec) else BodySpec()
    if spec.text is not None:
        return spec.text.encode()
    if spec.base64 is not None:
        return base64.b64decode(spec.base64)
    if "json_" in spec.model_fields_set:
        return _json(spec.json_, spec.written)
    prompt = f"{rng.getrandbits(64):016x} tell me about it" if exchange.prompt == "fresh" else exchange.prompt
    content = _inference_request(exchange, requests, path, prompt)
    for name, value in spec.fields.items():
        content.pop(name, None)
        if value is not None or name not in ("model", "prompt", "messages"):
            content[name] = value  # of these three, null removes the field; elsewhere it is a value
    body = _json(content, spec.written)
    if spec.size is not None and len(body) < spec.size:
        filler = WIDE if spec.wide else FILLER
        room = spec.size - len(body)
        filler = (filler * (room // len(filler) + 1))[: room - room % 4 if spec.wide else room]
        body = body.replace(prompt.encode(), prompt.encode() + filler, 1)
    return body


def _inference_request(exchange: ClientRequest, requests: Requests, path: str, prompt: str) -> dict[str, Any]:
    model = asked_model(exchange.model, requests.model, requests.unknown_model)
    if exchange.sheddable and exchange.model == KNOWN and requests.sheddable.model is not None:
        model = requests.sheddable.model
    content: dict[str, Any] = {"model": model}
    if path.partition("?")[0] == requests.chat_path:
        content["messages"] = [{"role": "user", "content": prompt}]
    else:
        content["prompt"] = prompt
    return {**content, "max_tokens": 16, **requests.body}


def _json(value: Any, written: str) -> bytes:
    between = {"compact": (",", ":"), "indented": (",", ": ")}.get(written, (", ", ": "))
    indent = 2 if written == "indented" else None
    text = json.dumps(value, ensure_ascii=written == "escaped", indent=indent, separators=between)
    return (f"\n{text}\n" if written == "indented" else text).encode()


def _chunks(body: bytes, chunks: int | tuple[int, ...]) -> bytes | tuple[Chunk, ...]:
    """The body as the client flushes it: so many equal pieces, or pieces of these sizes and the rest."""
    if not body or chunks == 1:
        return body
    sizes = chunks if isinstance(chunks, tuple) else (-(-len(body) // chunks),) * (chunks - 1)
    pieces: list[Chunk] = []
    rest = body
    for size in sizes:
        if len(rest) > size:
            pieces.append(Chunk(data=rest[:size]))
            rest = rest[size:]
    return (*pieces, Chunk(data=rest))
