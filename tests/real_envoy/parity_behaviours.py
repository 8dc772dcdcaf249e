"""The EPP behaviours of the parity matrix that keep the protocol, and what all behaviours are made with."""

from __future__ import annotations

from collections.abc import Sequence

from parity_epp import (
    KEY,
    Behaviour,
    End,
    Hook,
    Step,
    Talk,
    immediate,
    picked,
    replaced,
    right,
    set_header,
    streamed,
)

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMap,
    HeadersResponse,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    StreamedImmediateResponse,
    TrailersResponse,
)

FDS, LOCKSTEP = "fds", "buffered streamed mixed"
FOUND: dict[str, Behaviour] = {}


def add(name: str, *, modes: str = "fds buffered streamed mixed", fallback: bool = False, **hooks: Hook) -> None:
    assert name not in FOUND
    FOUND[name] = Behaviour(name, hooks, fallback=fallback, modes=modes)


def picking(common: CommonResponse, **answer: object) -> Hook:
    """The right pick, with `common` beside it."""

    def hook(talk: Talk, _: ProcessingRequest) -> Sequence[Step]:
        copy = CommonResponse()
        copy.CopyFrom(common)
        found = picked(talk, common=copy)
        found.MergeFrom(ProcessingResponse(**answer))
        return [found]

    return hook


def steps(*said: Step) -> Hook:
    """Always the same."""
    return lambda _, __: said


def nothing(_: Talk, __: ProcessingRequest) -> Sequence[Step]:
    return []


def then(*more: Step) -> Hook:
    """The right answer, then `more`."""
    return lambda talk, message: [*right(talk, message), *more]


def setting(name: str, value: str | bytes, **option: object) -> CommonResponse:
    return set_header(CommonResponse(), name, value, **option)


HEADERS = ProcessingResponse(request_headers=HeadersResponse())
RESPONSE_HEADERS = ProcessingResponse(response_headers=HeadersResponse())
BODY = ProcessingResponse(request_body=BodyResponse())
RESPONSE_BODY = ProcessingResponse(response_body=BodyResponse())
TRAILERS = ProcessingResponse(request_trailers=TrailersResponse())

# -- right ones --------------------------------------------------------------------------------------------------------

add("right")


def _merge(talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
    """Keep the body back and give it as one piece at its end."""
    body = message.request_body
    kept = talk.notes.setdefault("body", bytearray())
    kept += body.body
    if not body.end_of_stream:
        return []
    return [ProcessingResponse(request_body=streamed(bytes(kept), end=True))]


def _split(_: Talk, message: ProcessingRequest) -> Sequence[Step]:
    body = message.request_body
    parts = [
        ProcessingResponse(request_body=streamed(body.body[at : at + 5], end=False))
        for at in range(0, len(body.body), 5)
    ]
    return [*parts, ProcessingResponse(request_body=streamed(b"", end=True))] if body.end_of_stream else parts


def _pick_on_body(talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
    answer = right(talk, message)[0]
    answer.dynamic_metadata.CopyFrom(to_struct({"envoy.lb": {KEY: talk.pick}}))
    return [answer]


def _header_on_body(talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
    answer = right(talk, message)[0]
    set_header(answer.request_body.response, KEY, talk.pick)
    return [answer]


def _grow(prefix: bytes, *, length: bool) -> Hook:
    """Replace the body by a longer one; with `length`, set the content-length too."""

    def hook(talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
        body = message.request_body
        if talk.full_duplex:
            return [
                ProcessingResponse(
                    request_body=streamed(prefix + body.body if body.body else b"", end=body.end_of_stream)
                )
            ]
        answer = replaced(prefix + body.body)
        if length:
            set_header(answer.response, "content-length", str(len(prefix + body.body)))
        return [ProcessingResponse(request_body=answer)]

    return hook


def _grow_response(_: Talk, message: ProcessingRequest) -> Sequence[Step]:
    body = message.response_body
    return [ProcessingResponse(response_body=replaced(b"[" + body.body + b"]"))]


add("merges-body", modes=FDS, request_body=_merge)
add("splits-body", modes=FDS, request_body=_split)
add("changes-body", request_body=_grow(b"new ", length=True))
add("changes-body-not-length", request_body=_grow(b"new ", length=False))
add("changes-response-body", modes=LOCKSTEP, response_body=_grow_response)
add(
    "clears-body",
    modes=LOCKSTEP,
    request_body=steps(
        ProcessingResponse(
            request_body=BodyResponse(response=CommonResponse(body_mutation=BodyMutation(clear_body=True)))
        )
    ),
)
add("header-only", request_headers=lambda talk, _: [picked(talk, metadata=None)])
add("metadata-only", request_headers=lambda talk, _: [picked(talk, header=None)])
add("picks-nothing", fallback=True, request_headers=steps(HEADERS))
add("header-differs", request_headers=lambda talk, _: [picked(talk, header="127.0.0.1:1")])
add("metadata-on-body", fallback=True, request_headers=steps(HEADERS), request_body=_pick_on_body)
add("header-on-body", fallback=True, request_headers=steps(HEADERS), request_body=_header_on_body)
add(
    "sets-headers",
    request_headers=picking(set_header(set_header(setting("x-new", "1"), "X-Upper", "2"), "content-type", "text/x")),
)
add("sets-twice", request_headers=picking(set_header(setting("x-new", "1"), "x-new", "2")))
add(
    "removes-headers",
    request_headers=picking(CommonResponse(header_mutation={"remove_headers": ["accept", "x-none"]})),
)
add("appends-own-header", request_headers=picking(setting("x-case", "2", append={"value": True})))
add("appends-header", request_headers=picking(setting("accept", "b/c", append={"value": True})))
add(
    "adds-if-absent",
    request_headers=picking(set_header(setting("accept", "b/c", append_action=1), "x-new", "1", append_action=1)),
)
add(
    "overwrites-if-exists",
    request_headers=picking(set_header(setting("accept", "b/c", append_action=3), "x-new", "1", append_action=3)),
)
add(
    "sets-response-headers",
    response_headers=steps(
        ProcessingResponse(
            response_headers=HeadersResponse(response=set_header(setting("x-new", "1"), "content-type", "text/x"))
        )
    ),
)
for _name, _value in {"empty": "", "text": "abc", "99": "99", "150": "150", "999": "999"}.items():
    add(
        f"sets-response-status-{_name}",
        response_headers=steps(
            ProcessingResponse(response_headers=HeadersResponse(response=setting(":status", _value)))
        ),
    )
add(
    "sets-response-status",
    response_headers=steps(ProcessingResponse(response_headers=HeadersResponse(response=setting(":status", "418")))),
)
add(
    "removes-response-headers",
    response_headers=steps(
        ProcessingResponse(
            response_headers=HeadersResponse(
                response=CommonResponse(header_mutation={"remove_headers": ["content-type"]})
            )
        )
    ),
)
add(
    "sets-trailers",
    request_trailers=steps(
        ProcessingResponse(request_trailers=TrailersResponse(header_mutation=setting("x-sum", "9").header_mutation))
    ),
)
add("clears-route-cache", request_headers=picking(CommonResponse(clear_route_cache=True)))
add("sets-path", request_headers=picking(setting(":path", "/other")))
add(
    "extra-metadata",
    request_headers=picking(
        CommonResponse(), dynamic_metadata=to_struct({"envoy.lb": {"x-more": 1.5, "x-list": ["a", {"b": None}]}})
    ),
)
add(
    "metadata-on-response",
    response_headers=steps(
        ProcessingResponse(response_headers=HeadersResponse(), dynamic_metadata=to_struct({"envoy.lb": {"x-cost": 3}}))
    ),
)

# -- refusals ----------------------------------------------------------------------------------------------------------

add("immediate-503", request_headers=immediate(503, b"no endpoints", "empty_pool"))
add("immediate-blank-details", request_headers=immediate(503, b"busy", " no  endpoints\tat\nall "))
add("immediate-429-empty", request_headers=immediate(429))
add(
    "immediate-with-headers",
    request_headers=immediate(
        429, b"{}", "shed", [("content-type", b"application/json"), ("retry-after", b"1"), ("x-new", b"1")]
    ),
)
add("immediate-on-body", request_body=immediate(429, b"shed", "shed"))
add("immediate-on-response", response_headers=immediate(503, b"bad", "refused"))
add("immediate-on-response-body", response_body=immediate(503, b"bad", "refused"))
add("immediate-without-status", request_headers=immediate(None, b"what"))
add("immediate-100", request_headers=immediate(100, b"what"))
add("immediate-999", request_headers=immediate(999, b"what"))
add(
    "immediate-bad-headers",
    request_headers=immediate(503, b"x", "", [("x-old", b"1"), ("bad name", b"1"), ("x-new", b"1")]),
)
add(
    "immediate-forbidden-headers",
    request_headers=immediate(
        503, b"xyz", "", [(":status", b"200"), ("host", b"a"), ("content-length", b"1"), ("x-new", b"1")]
    ),
)
add(
    "immediate-twice",
    request_headers=lambda talk, message: [
        *immediate(503, b"first")(talk, message),
        *immediate(429, b"second")(talk, message),
    ],
)
for _name, _code, _status in (
    ("immediate-grpc-status", 503, 8),
    ("immediate-200-grpc-status", 200, 8),
    ("immediate-grpc-ok", 503, 0),
):
    add(
        _name,
        request_headers=steps(
            ProcessingResponse.FromString(
                ProcessingResponse(
                    immediate_response={"status": {"code": _code}, "body": b"no", "grpc_status": {"status": _status}}
                ).SerializeToString()
            )
        ),
    )
add("immediate-odd-text", request_headers=immediate(503, "no\r\n 50 % é\x7f".encode(), "", [("grpc-status", b"")]))
add("immediate-grpc-header", request_headers=immediate(200, b"no", "", [("grpc-status", b"8"), ("x-new", b"1")]))


# -- replies in pieces -------------------------------------------------------------------------------------------------


def _reply(status: str | None, *, end: bool, headers: Sequence[tuple[str, str]] = ()) -> ProcessingResponse:
    said = HttpHeaders(end_of_stream=end)
    for name, value in ((":status", status), *headers):
        if value is not None:
            said.headers.headers.add(key=name, raw_value=value.encode())
    return ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(headers_response=said))


def _piece(body: bytes, *, end: bool) -> ProcessingResponse:
    piece = StreamedBodyResponse(body=body, end_of_stream=end)
    return ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(body_response=piece))


def _reply_trailers(**values: str) -> ProcessingResponse:
    trailers = HeaderMap()
    for name, value in values.items():
        trailers.headers.add(key=name, raw_value=value.encode())
    return ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(trailers_response=trailers))


_TYPED = [("content-type", "text/plain"), ("x-new", "1")]
add("reply-head", request_headers=steps(_reply("400", end=True, headers=_TYPED)))
add("reply-empty-body", request_headers=steps(_reply("400", end=False), _piece(b"", end=True)))
add("reply-body", request_headers=steps(_reply("429", end=False, headers=_TYPED), _piece(b"busy", end=True)))
add(
    "reply-two-pieces",
    request_headers=steps(_reply("200", end=False), _piece(b"one", end=False), _piece(b"two", end=True)),
)
add(
    "reply-trailers",
    request_headers=steps(_reply("400", end=False), _piece(b"busy", end=False), _reply_trailers(sum="1")),
)
add("reply-trailers-only", request_headers=steps(_reply("400", end=False), _reply_trailers(sum="1")))
add("reply-open", modes="", request_headers=steps(_reply("429", end=False), _piece(b"busy", end=False)))
add("reply-without-status", request_headers=steps(_reply(None, end=True)))
add("reply-status-99", request_headers=steps(_reply("99", end=True)))
add("reply-status-text", request_headers=steps(_reply("abc", end=True)))
add("reply-status-999", request_headers=steps(_reply("999", end=True)))
add("reply-body-first", request_headers=steps(_piece(b"busy", end=True)))
add("reply-trailers-first", request_headers=steps(_reply_trailers(sum="1")))
add("reply-twice", request_headers=steps(_reply("400", end=False), _reply("400", end=True)))
add("reply-more-after-end", request_headers=steps(_reply("400", end=True), _piece(b"busy", end=True)))
add("reply-unknown", request_headers=steps(ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse())))
add("reply-after-headers", request_headers=then(_reply("400", end=True)))
add("reply-on-body", request_body=steps(_reply("400", end=True)))
add("reply-on-response", response_headers=steps(_reply("503", end=False), _piece(b"busy", end=True)))
add("reply-on-response-body", response_body=steps(_reply("503", end=True)))
add("reply-then-headers", request_headers=steps(_reply("400", end=False), HEADERS))
add("reply-then-immediate", request_headers=lambda t, m: [_reply("400", end=False), *immediate(503, b"x")(t, m)])
add("reply-bad-header", request_headers=steps(_reply("400", end=True, headers=[("bad name", "1"), ("x-new", "1")])))
add(
    "reply-length",
    request_headers=steps(_reply("400", end=False, headers=[("content-length", "4")]), _piece(b"busy", end=True)),
)
add("reply-status-150", request_headers=steps(_reply("150", end=True)))
add(
    "reply-doubled",
    request_headers=steps(_reply("400", end=True, headers=[("x-a", "1"), ("x-a", "2"), ("vary", "a"), ("vary", "b")])),
)
add(
    "reply-forbidden",
    request_headers=steps(_reply("400", end=True, headers=[("host", "a"), ("x-envoy-a", "1"), ("X-Upper", "1")])),
)
add("reply-then-closes", request_headers=steps(_reply("400", end=False), _piece(b"busy", end=False), End(0)))
add("reply-then-breaks", request_headers=steps(_reply("400", end=False), _piece(b"busy", end=False), End(14, "down")))
