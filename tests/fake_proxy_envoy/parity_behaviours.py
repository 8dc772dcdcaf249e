"""The EPP behaviours of the parity matrix, right ones and violations, by name."""

from __future__ import annotations

from collections.abc import Sequence

from parity_epp import (
    KEY,
    Behaviour,
    End,
    Garbage,
    Hook,
    Reset,
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
    Duration,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)

FDS, LOCKSTEP = "fds", "buffered streamed mixed"
FOUND: dict[str, Behaviour] = {}


def _add(name: str, *, modes: str = "fds buffered streamed mixed", fallback: bool = False, **hooks: Hook) -> None:
    assert name not in FOUND
    FOUND[name] = Behaviour(name, hooks, fallback=fallback, modes=modes)


def _headers(common: CommonResponse, **answer: object) -> Hook:
    """The right pick, with `common` beside it."""

    def hook(talk: Talk, _: ProcessingRequest) -> Sequence[Step]:
        copy = CommonResponse()
        copy.CopyFrom(common)
        found = picked(talk, common=copy)
        found.MergeFrom(ProcessingResponse(**answer))
        return [found]

    return hook


def _steps(*steps: Step) -> Hook:
    return lambda _, __: steps


def _nothing(_: Talk, __: ProcessingRequest) -> Sequence[Step]:
    return []


def _then(*steps: Step) -> Hook:
    """The right answer, then `steps`."""
    return lambda talk, message: [*right(talk, message), *steps]


def _set(name: str, value: str | bytes, **option: object) -> CommonResponse:
    return set_header(CommonResponse(), name, value, **option)


HEADERS = ProcessingResponse(request_headers=HeadersResponse())
RESPONSE_HEADERS = ProcessingResponse(response_headers=HeadersResponse())
BODY = ProcessingResponse(request_body=BodyResponse())
RESPONSE_BODY = ProcessingResponse(response_body=BodyResponse())
TRAILERS = ProcessingResponse(request_trailers=TrailersResponse())

# -- right ones --------------------------------------------------------------------------------------------------------

_add("right")


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


_add("merges-body", modes=FDS, request_body=_merge)
_add("splits-body", modes=FDS, request_body=_split)
_add("changes-body", request_body=_grow(b"new ", length=True))
_add("changes-body-not-length", request_body=_grow(b"new ", length=False))
_add("changes-response-body", modes=LOCKSTEP, response_body=_grow_response)
_add(
    "clears-body",
    modes=LOCKSTEP,
    request_body=_steps(
        ProcessingResponse(
            request_body=BodyResponse(response=CommonResponse(body_mutation=BodyMutation(clear_body=True)))
        )
    ),
)
_add("header-only", request_headers=lambda talk, _: [picked(talk, metadata=None)])
_add("metadata-only", request_headers=lambda talk, _: [picked(talk, header=None)])
_add("picks-nothing", fallback=True, request_headers=_steps(HEADERS))
_add("header-differs", request_headers=lambda talk, _: [picked(talk, header="127.0.0.1:1")])
_add("metadata-on-body", fallback=True, request_headers=_steps(HEADERS), request_body=_pick_on_body)
_add("header-on-body", fallback=True, request_headers=_steps(HEADERS), request_body=_header_on_body)
_add(
    "sets-headers",
    request_headers=_headers(set_header(set_header(_set("x-new", "1"), "X-Upper", "2"), "content-type", "text/x")),
)
_add("sets-twice", request_headers=_headers(set_header(_set("x-new", "1"), "x-new", "2")))
_add(
    "removes-headers",
    request_headers=_headers(CommonResponse(header_mutation={"remove_headers": ["accept", "x-none"]})),
)
_add("appends-own-header", request_headers=_headers(_set("x-case", "2", append={"value": True})))
_add("appends-header", request_headers=_headers(_set("accept", "b/c", append={"value": True})))
_add(
    "adds-if-absent",
    request_headers=_headers(set_header(_set("accept", "b/c", append_action=1), "x-new", "1", append_action=1)),
)
_add(
    "overwrites-if-exists",
    request_headers=_headers(set_header(_set("accept", "b/c", append_action=3), "x-new", "1", append_action=3)),
)
_add(
    "sets-response-headers",
    response_headers=_steps(
        ProcessingResponse(
            response_headers=HeadersResponse(response=set_header(_set("x-new", "1"), "content-type", "text/x"))
        )
    ),
)
_add(
    "sets-response-status",
    response_headers=_steps(ProcessingResponse(response_headers=HeadersResponse(response=_set(":status", "418")))),
)
_add(
    "removes-response-headers",
    response_headers=_steps(
        ProcessingResponse(
            response_headers=HeadersResponse(
                response=CommonResponse(header_mutation={"remove_headers": ["content-type"]})
            )
        )
    ),
)
_add(
    "sets-trailers",
    request_trailers=_steps(
        ProcessingResponse(request_trailers=TrailersResponse(header_mutation=_set("x-sum", "9").header_mutation))
    ),
)
_add("clears-route-cache", request_headers=_headers(CommonResponse(clear_route_cache=True)))
_add("sets-path", request_headers=_headers(_set(":path", "/other")))
_add(
    "extra-metadata",
    request_headers=_headers(
        CommonResponse(), dynamic_metadata=to_struct({"envoy.lb": {"x-more": 1.5, "x-list": ["a", {"b": None}]}})
    ),
)
_add(
    "metadata-on-response",
    response_headers=_steps(
        ProcessingResponse(response_headers=HeadersResponse(), dynamic_metadata=to_struct({"envoy.lb": {"x-cost": 3}}))
    ),
)

# -- refusals ----------------------------------------------------------------------------------------------------------

_add("immediate-503", request_headers=immediate(503, b"no endpoints", "empty_pool"))
_add("immediate-429-empty", request_headers=immediate(429))
_add(
    "immediate-with-headers",
    request_headers=immediate(
        429, b"{}", "shed", [("content-type", b"application/json"), ("retry-after", b"1"), ("x-new", b"1")]
    ),
)
_add("immediate-on-body", request_body=immediate(429, b"shed", "shed"))
_add("immediate-on-response", response_headers=immediate(503, b"bad", "refused"))
_add("immediate-on-response-body", response_body=immediate(503, b"bad", "refused"))
_add("immediate-without-status", request_headers=immediate(None, b"what"))
_add("immediate-100", request_headers=immediate(100, b"what"))
_add("immediate-999", request_headers=immediate(999, b"what"))
_add("immediate-bad-headers", request_headers=immediate(503, b"x", "", [("bad name", b"1"), ("x-new", b"1")]))
_add(
    "immediate-forbidden-headers",
    request_headers=immediate(
        503, b"xyz", "", [(":status", b"200"), ("host", b"a"), ("content-length", b"1"), ("x-new", b"1")]
    ),
)
_add(
    "immediate-twice",
    request_headers=lambda talk, message: [
        *immediate(503, b"first")(talk, message),
        *immediate(429, b"second")(talk, message),
    ],
)
_add(
    "immediate-grpc-status",
    request_headers=_steps(
        ProcessingResponse.FromString(
            ProcessingResponse(
                immediate_response={"status": {"code": 503}, "grpc_status": {"status": 8}}
            ).SerializeToString()
        )
    ),
)

# -- violations of the carrier -----------------------------------------------------------------------------------------

_add("wrong-oneof", request_headers=_steps(RESPONSE_HEADERS))
_add("body-for-headers", request_headers=_steps(BODY))
_add("trailers-for-headers", request_headers=_steps(TRAILERS))
_add("two-headers-answers", request_headers=_then(HEADERS))
_add(
    "body-first",
    modes=FDS,
    request_headers=_nothing,
    request_body=lambda talk, message: [*right(talk, message), picked(talk)],
)
_add("empty-answer", request_headers=_steps(ProcessingResponse()))
_add("garbage", request_headers=_steps(Garbage(b"\xff\xff\xff not protobuf")))
_add("unknown-field", request_headers=lambda talk, _: [Garbage(picked(talk).SerializeToString() + b"\xfa\x3f\x03abc")])
_add("plain-body-mutation", modes=FDS, request_body=_steps(ProcessingResponse(request_body=replaced(b"x"))))
_add("no-body-mutation", modes=FDS, request_body=_steps(BODY))
_add(
    "streamed-response",
    modes=LOCKSTEP,
    request_body=lambda _, message: [
        ProcessingResponse(request_body=streamed(message.request_body.body, end=message.request_body.end_of_stream))
    ],
)
_add(
    "extra-body-after-end",
    modes=FDS,
    request_body=lambda talk, message: [
        *right(talk, message),
        *([ProcessingResponse(request_body=streamed(b"more", end=True))] if message.request_body.end_of_stream else []),
    ],
)
_add("extra-body-answer", modes=LOCKSTEP, request_body=_then(BODY))
_add(
    "replaces-on-headers",
    request_headers=_headers(
        CommonResponse(status=CommonResponse.CONTINUE_AND_REPLACE, body_mutation=BodyMutation(body=b"replaced"))
    ),
)
_add("replaces-without-body", request_headers=_headers(CommonResponse(status=CommonResponse.CONTINUE_AND_REPLACE)))
_add("body-mutation-on-headers", request_headers=_headers(CommonResponse(body_mutation=BodyMutation(body=b"ignored"))))
_add("wrong-oneof-on-response", response_headers=_steps(HEADERS))
_add("body-before-response-headers", response_headers=_steps(RESPONSE_BODY))
_add("no-answer-to-response-headers", modes=LOCKSTEP, response_headers=_nothing)
_add("no-answer", modes=LOCKSTEP, request_headers=_nothing)
_add("no-answer-to-body", modes=LOCKSTEP, request_body=_nothing)
_add("silent-on-request", modes="", request_headers=_nothing)
_add("holds-body", modes="", request_body=_nothing)
_add("never-ends-body", modes="", request_body=_nothing)
_add(
    "overrides-timeout",
    modes=LOCKSTEP,
    request_headers=lambda talk, _: [ProcessingResponse(override_message_timeout=Duration(seconds=2)), picked(talk)],
)
_add(
    "mode-override",
    request_headers=_headers(CommonResponse(), mode_override=ProcessingMode(response_header_mode=ProcessingMode.SKIP)),
)

_ANSWERS = {
    "request_headers": HeadersResponse, "request_body": BodyResponse, "request_trailers": TrailersResponse,
    "response_headers": HeadersResponse, "response_body": BodyResponse, "response_trailers": TrailersResponse,
}  # fmt: skip
SWAPPED = {
    f"{said}-for-{asked}": Behaviour("swapped", {asked: _steps(ProcessingResponse(**{said: answer()}))}, fallback=True)
    for said, answer in _ANSWERS.items()
    for asked in _ANSWERS
    if said != asked
}
"""Every kind of answer to every other kind of message."""

# -- ends of the stream ------------------------------------------------------------------------------------------------

_add("closes-at-once", fallback=True, request_headers=_steps(End(0)))
_add("closes-after-headers", request_headers=_then(End(0)))
_add(
    "closes-after-body",
    request_body=lambda talk, message: [
        *right(talk, message),
        *([End(0)] if message.request_body.end_of_stream else []),
    ],
)
_add("closes-at-response", response_headers=_steps(End(0)))
_add("closes-in-response", response_body=_steps(End(0)))
_add("grpc-unavailable", request_headers=_steps(End(14, "down")))
_add("grpc-exhausted", request_headers=_steps(End(8, "full")))
_add("grpc-after-headers", request_headers=_then(End(13, "broke")))
_add("grpc-on-response", response_headers=_steps(End(14, "down")))
_add("resets", request_headers=_steps(Reset(8)))
_add("resets-after-headers", request_headers=_then(Reset(8)))
_add("resets-on-response", response_headers=_steps(Reset(8)))

# -- mutations that Envoy refuses --------------------------------------------------------------------------------------

_add(
    "value-not-raw",
    fallback=True,
    request_headers=_steps(
        ProcessingResponse(
            request_headers=HeadersResponse(
                response=CommonResponse(
                    header_mutation={
                        "set_headers": [HeaderValueOption(header=HeaderValue(key=KEY, value="127.0.0.1:1"))]
                    }
                )
            )
        )
    ),
)
_add(
    "unwrapped-metadata",
    fallback=True,
    request_headers=lambda talk, _: [
        ProcessingResponse(request_headers=HeadersResponse(), dynamic_metadata=to_struct({KEY: talk.pick}))
    ],
)
_add("metadata-list", fallback=True, request_headers=lambda talk, _: [picked(talk, header=None, metadata=[talk.pick])])
_add(
    "unknown-namespace",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header=None, namespace="envoy.other")],
)
_add(
    "unknown-endpoint",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header="127.0.0.9:9", metadata="127.0.0.9:9")],
)
_add(
    "endpoint-without-port",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header="127.0.0.1", metadata="127.0.0.1")],
)
_add("endpoint-garbage", fallback=True, request_headers=lambda talk, _: [picked(talk, header="a;b", metadata="a;b")])
_add(
    "unknown-then-known",
    request_headers=lambda talk, _: [
        picked(talk, header=f"127.0.0.9:9,{talk.pick}", metadata=f"127.0.0.9:9, {talk.pick}")
    ],
)
_add(
    "list-with-blanks",
    request_headers=lambda talk, _: [picked(talk, header=f",{talk.pick} ,,", metadata=f" , {talk.pick} , ")],
)
for _name, _value in {":method": "PUT", ":authority": "a", "host": "a", "x-envoy-new": "1", ":scheme": "https"}.items():
    _add(f"sets-{_name.strip(':')}", request_headers=_headers(_set(_name, _value)))
_add("sets-status-on-request", request_headers=_headers(_set(":status", "200")))
_add("removes-path", request_headers=_headers(CommonResponse(header_mutation={"remove_headers": [":path"]})))
_add("removes-host", request_headers=_headers(CommonResponse(header_mutation={"remove_headers": ["host"]})))
_add("removes-length", request_headers=_headers(CommonResponse(header_mutation={"remove_headers": ["content-length"]})))
_add("sets-length", request_headers=_headers(_set("content-length", "3")))
_add("sets-length-too-long", modes=LOCKSTEP, request_headers=_headers(_set("content-length", "300")))
_add("header-with-newline", request_headers=_headers(_set("x-new", b"a\r\nb")))
_add("header-with-nul", request_headers=_headers(_set("x-new", b"a\x00b")))
_add("header-with-high-bytes", request_headers=_headers(_set("x-new", b"caf\xc3\xa9\xff")))
_add("header-name-with-space", request_headers=_headers(_set("bad name", b"a")))
_add("header-without-name", fallback=True, request_headers=_headers(_set("", b"a")))
_add(
    "both-values",
    request_headers=_headers(
        CommonResponse(
            header_mutation={
                "set_headers": [HeaderValueOption(header=HeaderValue(key="x-new", value="1", raw_value=b"2"))]
            }
        )
    ),
)
_add("empty-value", request_headers=_headers(_set("x-new", b"")))
_add(
    "too-many-headers",
    request_headers=_headers(
        CommonResponse(
            header_mutation={
                "set_headers": [
                    HeaderValueOption(header=HeaderValue(key=f"x-{number}", raw_value=b"1")) for number in range(120)
                ]
            }
        )
    ),
)
_add(
    "bad-header-on-response",
    response_headers=_steps(ProcessingResponse(response_headers=HeadersResponse(response=_set("x-new", b"a\r\nb")))),
)
