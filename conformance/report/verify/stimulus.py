"""Whether an exchange is the one that its scenario asks for: what the client sent, and what the EPP was told of it.

No report says what requests to its target look like (path, model, further headers and fields of the body): the first
exchange that shows it says it for all. The rest follows from the scenario, by the code that made the request.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

from google.protobuf.message import DecodeError

from conformance.planning.data_plane import MODES, DataPlaneChoice, ending_of, paced
from conformance.planning.injections import injected
from conformance.printable import plural
from conformance.report.document.blocks import Redaction
from conformance.report.verify import pacing
from conformance.report.verify.hidden import Hidden
from conformance.report.verify.hints import ANY, same
from conformance.report.verify.steps import short
from conformance.report.verify.told import Told
from conformance.scenario import references
from conformance.scenario.models import KNOWN, NOT_SERVED, UNKNOWN, asked_model
from conformance.scenario.schema import CHAT_PATH, BodySpec, ClientRequest, Exchange, Request
from conformance.targets.http_request import bodyless, http_request, stated_headers, stated_path, without
from conformance.targets.profile import Requests
from ext_proc.headers import plain_struct
from ext_proc.messages import HeaderMap, ProcessingRequest
from ext_proc.protocol import SUBSET
from ext_proc.record import (
    Entry,
    ExchangeOpened,
    Headers,
    UpstreamRequest,
)
from fake_proxy.client import DataArrives, HeadersArrive, HttpRequest, TrailersArrive, arrivals

Plane = Literal["fake", "envoy", "gateway"]
"""What carried the exchange: our proxy, a real Envoy, or the gateway under test."""

_PROMPT = ("model", "prompt", "messages")


class Learned:
    """What requests to the target look like: values, by what of a request they are; and the secrets in them."""

    def __init__(self, redactions: Sequence[Redaction] = ()) -> None:
        self._known: dict[Hashable, Any] = {}
        self.hidden = Hidden(redactions)

    def same(self, what: Hashable, value: Any) -> bool:
        """Whether `value` is what was seen before, if anything was."""
        return bool(self._known.setdefault(what, value) == value)

    def get(self, what: Hashable) -> Any:
        """What was seen; None if nothing was."""
        return self._known.get(what)


def problems(
    request: ClientRequest,
    opened: ExchangeOpened,
    entries: Sequence[Entry],
    told: Told,
    *,
    repeat: int,
    mode: str,
    source: Random,
    endpoints: Mapping[str, tuple[str, ...]],
    plane: Plane,
    choice: DataPlaneChoice,
    learned: Learned,
) -> Iterator[str]:
    """What speaks against `entries`, in which the EPP was `told` something, being those of repeat number `repeat` of
    `request`.

    `mode` is the body mode of the work, `source` gives the prompt, `endpoints` resolves references.
    """
    if isinstance(request, Exchange) and request.models:
        request = request.model_copy(update={"model": request.models[repeat % len(request.models)]})
    yield from _head(request, opened, endpoints, plane, learned)
    sent = _sent(request, opened, told, entries, source, learned, plane)
    if isinstance(request, Exchange):
        yield from _set_up(request, opened, repeat, mode, choice)
        if plane == "fake" and told.asked_again:
            yield "the EPP was asked again on another stream, and had not refused the one before"
        if plane == "fake" and request.reply.source != "refused":
            yield from _first_message(request, opened, told, sent, endpoints)
            yield from _messages(request, opened, told, sent, learned.hidden)
            yield from _injections(request, told)
        if plane == "fake" and sent is not None:
            yield from pacing.of_request(paced(request, sent), entries, told)
    if sent is None:
        return
    body = b"".join(chunk.data for chunk in sent.chunks)
    if plane == "gateway":
        if opened.note.get("unannounced") and not sent.unannounced:
            yield "its client left out the length of the body, which its scenario tells"
        written = request.written if isinstance(request, Request) else "ordinary"
        if (said := opened.note.get("written", "ordinary")) != written:
            yield f"its client wrote the request as {said}, by its scenario as {written}"
        yield from _subset_asked_for(request, opened, endpoints, learned)
        if not learned.hidden.in_body(opened.body, body):
            yield f"its client sent the body {short(opened.body)}, by its scenario {short(body)}"
        return
    pieces = b"".join(one.request_body.body for one in _bodies(request, told)[0])
    if not learned.hidden.in_body(pieces, body[: len(pieces)]):
        yield f"the EPP was told the body {short(pieces)}, by its scenario {short(body)}"


def _subset_asked_for(
    request: ClientRequest, opened: ExchangeOpened, endpoints: Mapping[str, tuple[str, ...]], learned: Learned
) -> Iterator[str]:
    """What judges are told of the subset hint that a request makes a gateway send."""
    wanted = None if request.subset is None else references.resolve(request.subset, endpoints)
    found, owed = opened.note.get("subset"), opened.note.get("subset_owed")
    if not (found is wanted if None in (found, wanted) else same(found, wanted)):
        yield f"its client asked for the subset hint {short(found)}, by its scenario for {short(wanted)}"
    if not learned.same(("subset owed", wanted is None), owed):
        yield f"whether its client makes the gateway send a subset hint is {owed}, in other exchanges the opposite"


# -- the client's request ----------------------------------------------------------------------------------------------


def _head(
    request: ClientRequest,
    opened: ExchangeOpened,
    endpoints: Mapping[str, tuple[str, ...]],
    plane: Plane,
    learned: Learned,
) -> Iterator[str]:
    stated = stated_path(request)
    path, _, query = (stated or "").partition("?")
    has, _, asked = opened.path.partition("?")
    if stated is None:
        right = learned.same("path", opened.path)
    else:
        right = asked == query and (learned.same("chat path", has) if path == CHAT_PATH else has == path)
    if not right:
        wanted = stated or learned.get("path")
        yield f"its evidence has the path {short(opened.path)}, its scenario {short(wanted)}"
    omitted = request.omit_headers if isinstance(request, Exchange) else ()
    given = stated_headers(references.resolve(request.headers, endpoints), request.filler_headers)
    given = tuple(one for one in given if one[0].lower().decode() not in omitted)
    headers = opened.headers
    if plane == "gateway":  # what tells requests from each other, and chooses their route, comes last
        marks = [number for number, (_, value) in enumerate(headers) if value == (opened.exchange or "").encode()]
        headers = headers[: marks[-1]] if marks else headers
    begin = len(headers) - len(given)
    own, rest = headers[: max(begin, 0)], headers[max(begin, 0) :]
    if not _same_headers(rest, given, learned.hidden):
        yield f"its client sent the headers {short(rest)}, by its scenario {short(given)}"
    overridden = frozenset(name.lower() for name, _ in given)
    kind = (request.sheddable, not bodyless(request), overridden, omitted)
    if not learned.same(("headers", kind), own):
        yield f"its client sent the headers {short(own)}, in other exchanges {short(learned.get(('headers', kind)))}"
    named = {name for name, _ in own} | overridden
    if not bodyless(request) and b"content-type" not in named and "content-type" not in omitted:
        yield "its client sent JSON without a content-type"


def _same_headers(found: Headers, wanted: Headers, hidden: Hidden) -> bool:
    def alike(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> bool:
        unknown = ANY.encode()[:1] in other[1]
        return one[0] == other[0] and (unknown or hidden.in_header(one[1], other[1]))

    return len(found) == len(wanted) and all(map(alike, found, wanted))


def _sent(
    request: ClientRequest,
    opened: ExchangeOpened,
    told: Told,
    entries: Sequence[Entry],
    source: Random,
    learned: Learned,
    plane: Plane,
) -> HttpRequest | None:
    """The whole request; None if nothing shows what those to this target look like."""
    found = (
        opened.body if plane == "gateway" else b"".join(one.request_body.body for one in told.of_kind("request_body"))
    )
    upstream = [one.event.body for one in entries if isinstance(one.event, UpstreamRequest)]
    requests = _requests(request, opened, found or (upstream or [b""])[0], learned)
    if requests is None:
        return None
    named = request.model_copy(update={"model": KNOWN}) if request.model in NOT_SERVED else request
    sent = dataclasses.replace(http_request(named, requests, source), headers=opened.headers, path=opened.path)
    return without(request.omit_headers if isinstance(request, Exchange) else (), sent)


def _requests(request: ClientRequest, opened: ExchangeOpened, body: bytes, learned: Learned) -> Requests | None:
    """What the target's requests look like, as far as this one shows it or others did."""
    spec = request.body if isinstance(request.body, BodySpec) else BodySpec()
    path = opened.path.partition("?")[0]
    made = spec.text is None and spec.base64 is None and "json_" not in spec.model_fields_set
    model, extras, chat = "", {}, path == learned.get("chat path")
    if not bodyless(request) and made:
        which, fields = ("model", request.model, request.sheddable), ("body", tuple(sorted(spec.fields)))
        _learn_nearly_known(request.model, which, learned)
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            model = content.get("model", "")
            chat = "messages" in content
            extras = {name: value for name, value in content.items() if name not in (*_PROMPT, *spec.fields)}
            known = (
                ("model" in spec.fields or learned.same(which, model))
                and learned.same(fields, extras)
                and ({"prompt", "messages"} & spec.fields.keys() or learned.same(("chat", path), chat))
            )
            if not known:
                model, extras, chat = learned.get(which) or model, learned.get(fields), learned.get(("chat", path))
        else:
            model, extras, chat = learned.get(which), learned.get(fields), learned.get(("chat", path))
            if None in (model, extras, chat):
                return None
    return Requests.model_construct(
        path=path,
        chat_path=path if chat else "",
        model=model,
        unknown_model=model,
        body=extras,
        headers={},
        secret_headers={},
    )


def _learn_nearly_known(said: str, which: Hashable, learned: Learned) -> None:
    """Of a name that a scenario makes of the known one: what it is follows from that, once it was seen."""
    known, unknown = (learned.get(("model", one, False)) for one in (KNOWN, UNKNOWN))
    if said in NOT_SERVED - {UNKNOWN} and isinstance(known, str) and isinstance(unknown, str):
        learned.same(which, asked_model(said, known, unknown))


# -- what the EPP was told ---------------------------------------------------------------------------------------------


def _set_up(
    request: Exchange, opened: ExchangeOpened, repeat: int, mode: str, choice: DataPlaneChoice
) -> Iterator[str]:
    of_request = request.mode or mode
    of_response = request.response_mode or of_request
    asked, back = MODES[of_request], MODES[of_response]  # type: ignore[index]
    wanted = (asked.name, choice.response_mode(asked, back).name)
    if (opened.request_body_mode, opened.response_body_mode) != wanted:
        found = f"{opened.request_body_mode} and {opened.response_body_mode}"
        yield f"its evidence has the body modes {short(found)}, its scenario {wanted[0]} and {wanted[1]}"
    ending = ending_of(request, repeat)
    if choice.variant is None and opened.ending != ending:
        yield f"its streams are ended by {short(opened.ending)}, by its scenario {ending}"


def _first_message(
    request: Exchange,
    opened: ExchangeOpened,
    told: Told,
    sent: HttpRequest | None,
    endpoints: Mapping[str, tuple[str, ...]],
) -> Iterator[str]:
    """The headers of the request, and what comes with them."""
    if not told.messages:
        return
    first = told.messages[0]
    if first.WhichOneof("request") != "request_headers":
        yield "the EPP was not told of the request's headers first"
        return
    if sent is not None:
        head = next(one for one in arrivals(sent) if isinstance(one, HeadersArrive))
        found = _pairs(first.request_headers.headers, request.header_field)
        loose = {b"x-request-id"} if sent.request_id is None and not _named(sent.headers, b"x-request-id") else set()
        wanted = _as_said(head.headers, request.header_field)
        if [n for n, _ in found] != [n for n, _ in wanted] or any(
            one != other for one, other in zip(found, wanted, strict=True) if one[0] not in loose
        ):
            yield f"the EPP was told the headers {short(found)}, by its scenario {short(wanted)}"
        if first.request_headers.end_of_stream != head.end:
            yield f"the EPP was told of a request that ends with its headers: {not head.end}, its scenario {head.end}"
    yield from _protocol_config(request, opened, first)
    metadata = {} if request.metadata_context == "absent" or request.hint_on == "body" else request.metadata
    wanted_metadata = references.resolve(metadata, endpoints)
    has = {name: plain_struct(one) for name, one in first.metadata_context.filter_metadata.items()}
    if not same(_without_hint(has), _without_hint(wanted_metadata)):
        yield f"the EPP was told the metadata {short(has)}, by its scenario {short(wanted_metadata)}"


def _without_hint(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The metadata but for subset hints, which `hints` compares."""
    left = {name: {key: value for key, value in one.items() if key != SUBSET} for name, one in metadata.items()}
    return {name: one for name, one in left.items() if one}


def _protocol_config(request: Exchange, opened: ExchangeOpened, first: ProcessingRequest) -> Iterator[str]:
    config, absent = first.protocol_config, request.protocol_config == "absent"
    if first.HasField("protocol_config") == absent:
        yield f"the EPP was told the body modes: {not absent}, by its scenario {absent}"
    elif not absent:
        modes = {mode.name: int(mode) for mode in MODES.values()}
        wanted = (modes.get(opened.request_body_mode), modes.get(opened.response_body_mode))
        if (config.request_body_mode, config.response_body_mode) != wanted:
            yield "the EPP was told other body modes than the exchange has"
        if config.send_body_without_waiting_for_header_response != (request.protocol_config == "not-waiting"):
            yield "the EPP was told otherwise than in its scenario whether bodies wait for the answer to the headers"


def _bodies(request: ClientRequest, told: Told) -> tuple[list[ProcessingRequest], bool]:
    """The pieces of the body, without an end that its scenario repeats; whether it came as often as that asks for."""
    bodies = told.of_kind("request_body")
    ended = bodies and bodies[-1].request_body.end_of_stream
    if not (ended and isinstance(request, Exchange) and "duplicate-end" in request.inject):
        return bodies, True
    twice = bodies[-1] in bodies[:-1]
    return (bodies[:-1] if twice else bodies), twice


def _messages(
    request: Exchange, opened: ExchangeOpened, told: Told, sent: HttpRequest | None, hidden: Hidden
) -> Iterator[str]:
    """The pieces of the body, and how it ends."""
    (bodies, twice), trailers = _bodies(request, told), told.of_kind("request_trailers")
    if not twice:
        yield "the EPP was told of the end of the body once, by its scenario twice"
    if sent is None:
        return
    coming = list(arrivals(sent))
    due = [one.data for one in coming if isinstance(one, DataArrives)]
    last = [one.trailers for one in coming if isinstance(one, TrailersArrive)]
    found = [_pairs(one.request_trailers.trailers, request.header_field) for one in trailers]
    wanted = [_as_said(one, request.header_field) for one in last]
    if found != wanted[: len(found)]:
        yield f"the EPP was told the trailers {short(found)}, by its scenario {short(wanted or 'none')}"
    ends = [number for number, one in enumerate(bodies, 1) if one.request_body.end_of_stream]
    if ends and (last or ends != [len(bodies)]):
        yield "the EPP was told of the end of the body where it was not"
    pieces = [one.request_body.body for one in bodies]
    whole = b"".join(pieces)
    ended = bool(ends or found)
    if ended and bodies and not hidden.in_body(whole, b"".join(due)):
        yield f"the EPP was told {plural(len(whole), 'byte')} of the body, by its scenario {sum(map(len, due))}"
    found_sizes, due_sizes = [*map(len, pieces)], [*map(len, due)]
    match opened.request_body_mode:
        case "NONE":
            right = not bodies
        case "BUFFERED":
            right = len(bodies) <= 1
        case "STREAMED":  # what came before the answer to the headers goes on in one piece
            right = {*itertools.accumulate(due_sizes)}.issuperset(itertools.accumulate(found_sizes))
        case _:
            right = found_sizes == due_sizes[: len(pieces)]
    if not right:
        yield f"the EPP was told the body in pieces of {short(found_sizes)}, by its scenario of {short(due_sizes)}"


def _injections(request: Exchange, told: Told) -> Iterator[str]:
    """What messages have beyond the ordinary, and what is sent between them: all leaves in one turn."""
    between = injected(request.inject)[1]
    added = [one for name in request.inject if (one := injected((name,))[0])]
    sent = [one.raw for one in told.sent]
    found, wanted = sent[1 : 1 + len(between)], [one.raw for one in between]
    if sent and found != wanted:
        yield f"the EPP was sent {short(found)} after the headers, by its scenario {short(wanted)}"
    messages = (*sent[:1], *sent[1 + len(between) :])
    if missing := next((one for one in added for raw in messages if not _has(raw, one)), None):
        yield f"the EPP was sent messages without {short(missing)}, which its scenario adds"


def _has(raw: bytes, added: bytes) -> bool:
    """Whether a message has it. One from which a secret was taken has its fields in another order."""
    return added in raw or _in_order(raw) == _in_order(raw + added)


def _in_order(raw: bytes) -> bytes:
    """A message with its maps in order, which is another in each process."""
    try:
        return ProcessingRequest.FromString(raw).SerializeToString(deterministic=True)
    except DecodeError:
        return raw


def _pairs(headers: HeaderMap, field: str) -> list[tuple[bytes, bytes]]:
    return [(one.key.encode(), one.value.encode() if field == "value" else one.raw_value) for one in headers.headers]


def _as_said(headers: Sequence[tuple[bytes, bytes]], field: str) -> list[tuple[bytes, bytes]]:
    said = field == "value"
    return [(name, value.decode("utf-8", "replace").encode() if said else value) for name, value in headers]


def _named(headers: Headers, name: bytes) -> bool:
    return any(one.lower() == name for one, _ in headers)
