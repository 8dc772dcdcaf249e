"""From a scenario's `Exchange` to what the fake proxy is asked: the HTTP request, the data plane, the deviations."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.planning.data_plane import MODES
from conformance.run.data_plane.malformed import MALFORMED
from conformance.scenario import references
from conformance.scenario.header_fields import on_the_wire
from conformance.scenario.schema import CHAT_PATH, BodySpec, ClientRequest, Exchange, Reply
from conformance.scenario.schema import BodyMode as ScenarioMode
from conformance.targets.profile import Profile, Requests
from ext_proc.headers import to_value
from ext_proc.messages import Any as TypedAny
from ext_proc.messages import Metadata, ProcessingRequest, Struct
from ext_proc.protocol import SUBSET
from ext_proc.record import Headers
from fake_proxy.client import Abort, Chunk, HttpRequest
from fake_proxy.config import Ending, ProtocolConfigForm, ProxyConfig
from fake_proxy.pace import PATIENCE
from fake_proxy.stimulus import Injection, ServedMetadata, Stimulus

ROTATION = (Ending.DRAIN, Ending.HALF_CLOSE, Ending.ENVOY)
"""Each class of stimulus runs at least once drained: what must be absent can only be seen there."""

UNKNOWN_FIELD = bytes.fromhex("c23e0373616d")
"""Field 1000, a string: legal for any protobuf peer, known to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One exchange, ready to be run."""

    request: HttpRequest
    config: ProxyConfig
    stimulus: Stimulus
    reply: Reply
    fail_first: int
    note: Mapping[str, Any]


def prepare(
    exchange: Exchange,
    *,
    index: int,
    mode: ScenarioMode,
    profile: Profile,
    endpoints: Mapping[str, tuple[str, ...]],
    pool: tuple[str, ...],
    rng: random.Random,
) -> Prepared:
    """The `index`th repeat of `exchange` in body mode `mode`.

    `endpoints` resolves references, `pool` has every endpoint of the data plane's cluster, `rng` gives fresh prompts.
    """
    exchange = exchange.model_copy(
        update={
            name: references.resolve(getattr(exchange, name), endpoints)
            for name in ("headers", "subset", "subsets", "hint", "metadata")
            if name in exchange.model_fields_set  # a hint that is not set differs from one that is null
        }
    )
    if exchange.subsets:
        exchange = exchange.model_copy(update={"subset": exchange.subsets[index % len(exchange.subsets)]})
    request = _without(exchange.omit_headers, http_request(exchange, profile.requests, rng))
    if exchange.lock_step or exchange.gap_seconds:
        chunks = [dataclasses.replace(one, after=exchange.gap_seconds) for one in request.chunks]
        chunks[:-1] = [dataclasses.replace(one, await_echo=exchange.lock_step) for one in chunks[:-1]]
        request = dataclasses.replace(request, body=tuple(chunks))
    return Prepared(
        request=request,
        config=_config(exchange, mode, profile, pool, index),
        stimulus=_stimulus(exchange, profile, endpoints),
        reply=exchange.reply,
        fail_first=exchange.fail_first,
        note=exchange.note,
    )


# -- the request -------------------------------------------------------------------------------------------------------


def http_request(exchange: ClientRequest, requests: Requests, rng: random.Random) -> HttpRequest:
    """The HTTP request that a scenario asks for; `requests` says what those to this target look like."""
    path = _path(exchange, requests)
    bodyless = exchange.body in ("none", "empty") or (exchange.body == "default" and exchange.method in ("GET", "HEAD"))
    body = b"" if bodyless else _body(exchange, requests, path, rng)
    trailers = on_the_wire(exchange.trailers) or (((b"x-end", b"1"),) if exchange.end == "trailers" else ())
    http = {"flag": 2, "empty": 1}.get(exchange.end, exchange.http)
    return HttpRequest(
        method=exchange.method,
        path=path,
        headers=_headers(exchange, requests, is_json=not bodyless and exchange.body != "empty"),
        body=_chunks(body, exchange.chunks),
        trailers=trailers,
        http=2 if http == 2 else 1,
        coalesced=exchange.coalesced,
        chunked=not exchange.content_length,
        abort=_ABORTS.get(exchange.abort or ""),
    )


def _without(names: Collection[str], request: HttpRequest) -> HttpRequest:
    """`request` without these headers; of them the data plane adds `x-request-id`."""
    if not names:
        return request
    left = tuple((name, value) for name, value in request.headers if name.lower().decode("latin-1") not in names)
    return dataclasses.replace(request, headers=left, request_id="" if "x-request-id" in names else request.request_id)


def _path(exchange: ClientRequest, requests: Requests) -> str:
    path, query, rest = (exchange.path or requests.path).partition("?")
    return (requests.chat_path if path == CHAT_PATH else path) + query + rest


_ABORTS = {
    "request-headers": Abort(at="request-headers"),
    "request-body": Abort(at="request-body", after=1),
    "destination": Abort(at="destination"),
    "response": Abort(at="response-body", after=1),
}


def _headers(exchange: ClientRequest, requests: Requests, *, is_json: bool) -> Headers:
    given = on_the_wire(exchange.headers)
    names = {name.lower() for name, _ in given}
    own = {**requests.headers, **requests.secret_headers}
    if is_json:
        own = {"content-type": "application/json", **own}
    if exchange.sheddable:
        own |= requests.sheddable.headers
    standard = [
        (name.lower().encode(), value.encode()) for name, value in own.items() if name.lower().encode() not in names
    ]
    filler = [(f"x-filler-{number}".encode(), b"filler") for number in range(exchange.filler_headers)]
    filler[:1] = [(name, value * 1500) for name, value in filler[:1]]  # 9,000 bytes
    return (*standard, *given, *filler)


def _body(exchange: ClientRequest, requests: Requests, path: str, rng: random.Random) -> bytes:
    spec = exchange.body if isinstance(exchange.body, BodySpec) else BodySpec()
    if spec.text is not None:
        return spec.text.encode()
    if spec.base64 is not None:
        return base64.b64decode(spec.base64)
    if "json_" in spec.model_fields_set:
        return _json(spec.json_)
    prompt = f"{rng.getrandbits(64):016x} tell me about it" if exchange.prompt == "fresh" else exchange.prompt
    content = _inference_request(exchange, requests, path, prompt)
    for name, value in spec.fields.items():
        content.pop(name, None)
        if value is not None or name not in ("model", "prompt", "messages"):
            content[name] = value  # of these three, null removes the field; elsewhere it is a value
    body = _json(content)
    if spec.size is not None and len(body) < spec.size:
        filler = (b"0123456789abcdef" * (spec.size // 16 + 1))[: spec.size - len(body)]
        body = body.replace(prompt.encode(), prompt.encode() + filler, 1)
    return body


def _inference_request(exchange: ClientRequest, requests: Requests, path: str, prompt: str) -> dict[str, Any]:
    models = {"known": requests.model, "unknown": requests.unknown_model}
    model = models.get(exchange.model, exchange.model)
    if exchange.sheddable and requests.sheddable.model is not None:
        model = requests.sheddable.model
    content: dict[str, Any] = {"model": model}
    if path.partition("?")[0] == requests.chat_path:
        content["messages"] = [{"role": "user", "content": prompt}]
    else:
        content["prompt"] = prompt
    return {**content, "max_tokens": 16, **requests.body}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ")).encode()


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


# -- the data plane ----------------------------------------------------------------------------------------------------


def _config(exchange: Exchange, mode: ScenarioMode, profile: Profile, pool: tuple[str, ...], index: int) -> ProxyConfig:
    forms = {"absent": ProtocolConfigForm.ABSENT}
    hinted = _hint_namespace(exchange, profile)
    namespaces = dict.fromkeys((profile.metadata.destination, profile.metadata.subset, hinted, *exchange.metadata))
    ending = ROTATION[index % len(ROTATION)] if exchange.ending == "rotate" else Ending(exchange.ending)
    return ProxyConfig(
        request_body_mode=MODES[exchange.mode or mode],
        response_body_mode=MODES[exchange.response_mode or exchange.mode or mode],
        send_body_without_waiting=exchange.protocol_config == "not-waiting",
        forwarding_namespaces=tuple(namespaces),
        receiving_namespaces=(profile.metadata.destination,),
        destination_namespace=profile.metadata.destination,
        subset_namespace=profile.metadata.subset,
        pool=pool,
        protocol_config=forms.get(exchange.protocol_config, ProtocolConfigForm.MODES),
        header_value_field=exchange.header_field,
        refused_with=exchange.reply.status if exchange.reply.source == "refused" else None,
        ending=ending,
        message_timeout=2 * PATIENCE * profile.timeouts.answer,  # that of the exchange comes first, and is recorded
    )


def _stimulus(exchange: Exchange, profile: Profile, endpoints: Mapping[str, tuple[str, ...]]) -> Stimulus:
    metadata: dict[str, dict[str, Any]] = {name: dict(values) for name, values in exchange.metadata.items()}
    hint = _hint(exchange, endpoints)
    if hint is not None:
        metadata.setdefault(_hint_namespace(exchange, profile), {})[SUBSET] = hint[0]
    append = b""
    inject: list[Injection] = []
    for one in exchange.inject:
        match one:
            case "unknown-field":
                append += UNKNOWN_FIELD
            case "typed-metadata":
                typed = {"example.typed": TypedAny(type_url="type.googleapis.com/google.protobuf.Empty")}
                append += ProcessingRequest(metadata_context=Metadata(typed_filter_metadata=typed)).SerializeToString()
            case "attributes":
                attributes = Struct(fields={"request.path": to_value("/v1"), "request.size": to_value(12)})
                request = ProcessingRequest(attributes={"envoy.filters.http.ext_proc": attributes})
                append += request.SerializeToString()
            case "unknown-message":
                inject.append(Injection(after="request_headers", raw=UNKNOWN_FIELD))
            case "duplicate-end":
                pass
            case spoilt:
                inject.append(MALFORMED[spoilt])
    return Stimulus(
        metadata=metadata,
        metadata_on="none" if exchange.metadata_context == "absent" else exchange.hint_on,
        served=_served(exchange, endpoints),
        append=append,
        inject=tuple(inject),
        duplicate_end="duplicate-end" in exchange.inject,
    )


def _hint_namespace(exchange: Exchange, profile: Profile) -> str:
    return exchange.hint_namespace or profile.metadata.subset


def _hint(exchange: Exchange, endpoints: Mapping[str, tuple[str, ...]]) -> tuple[Any] | None:
    """The subset hint in a tuple of one (it may be null), or None if there is none."""
    if exchange.subset is not None:
        address, _, port = endpoints[references.NOBODY][0].rpartition(":")
        ports = (f"{address}:{(int(port) + number) % 60_000 + 1000}" for number in itertools.count(1))
        taken = {one for own in endpoints.values() for one in own}  # where pods share one address
        filler = list(itertools.islice((one for one in ports if one not in taken), exchange.hint_filler))
        return ([*filler, *exchange.subset],)
    return (exchange.hint,) if "hint" in exchange.model_fields_set else None


def _served(exchange: Exchange, endpoints: Mapping[str, tuple[str, ...]]) -> Any:
    nobody = endpoints[references.NOBODY][0]
    match exchange.served:
        case "default":
            return ServedMetadata.ACTUAL
        case "absent":
            return ServedMetadata.ABSENT
        case "unknown":
            return nobody
        case "other":
            return next((own[-1] for name, own in endpoints.items() if name != references.NOBODY), nobody)
        case "ipv6":
            return "[::1]:8000"
        case "number":
            return to_value(8000)
        case "list":
            return to_value([nobody])
        case "empty":
            return ""
