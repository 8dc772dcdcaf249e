"""The EPP behaviours of the parity matrix that break the protocol, or that Envoy refuses. Importing adds them."""

from __future__ import annotations

from collections.abc import Sequence

from parity_behaviours import (
    BODY,
    FDS,
    HEADERS,
    LOCKSTEP,
    RESPONSE_BODY,
    RESPONSE_HEADERS,
    TRAILERS,
    add,
    nothing,
    picking,
    setting,
    steps,
    then,
)
from parity_epp import (
    KEY,
    Behaviour,
    End,
    Garbage,
    Hook,
    Reset,
    Step,
    Talk,
    picked,
    replaced,
    right,
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

# -- violations of the carrier -----------------------------------------------------------------------------------------

add("wrong-oneof", request_headers=steps(RESPONSE_HEADERS))
add("body-for-headers", request_headers=steps(BODY))
add("trailers-for-headers", request_headers=steps(TRAILERS))
add("two-headers-answers", request_headers=then(HEADERS))
add(
    "body-first",
    modes=FDS,
    request_headers=nothing,
    request_body=lambda talk, message: [*right(talk, message), picked(talk)],
)
add("empty-answer", request_headers=steps(ProcessingResponse()))
add("garbage", request_headers=steps(Garbage(b"\xff\xff\xff not protobuf")))
add("unknown-field", request_headers=lambda talk, _: [Garbage(picked(talk).SerializeToString() + b"\xfa\x3f\x03abc")])
add("plain-body-mutation", modes=FDS, request_body=steps(ProcessingResponse(request_body=replaced(b"x"))))
add("no-body-mutation", modes=FDS, request_body=steps(BODY))
add(
    "streamed-response",
    modes=LOCKSTEP,
    request_body=lambda _, message: [
        ProcessingResponse(request_body=streamed(message.request_body.body, end=message.request_body.end_of_stream))
    ],
)
add(
    "extra-body-after-end",
    modes=FDS,
    request_body=lambda talk, message: [
        *right(talk, message),
        *([ProcessingResponse(request_body=streamed(b"more", end=True))] if message.request_body.end_of_stream else []),
    ],
)


def _with_its_end(*more: Step, side: str = "request_body", first: bool = False) -> Hook:
    """The right answer, with `more` beside the one to the end of the body."""

    def hook(talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
        said = right(talk, message)
        if not getattr(message, side).end_of_stream:
            return said
        return [*more, *said] if first else [*said, *more]

    return hook


_RESPONSE_TRAILERS = ProcessingResponse(response_trailers=TrailersResponse())
add("trailers-after-body", modes=FDS, request_body=_with_its_end(TRAILERS))
add("trailers-before-the-end", modes=FDS, request_body=_with_its_end(TRAILERS, first=True))
add("trailers-after-headers", modes=FDS, request_headers=then(TRAILERS))
add(
    "response-trailers-after-body",
    modes=FDS,
    response_body=_with_its_end(_RESPONSE_TRAILERS, side="response_body"),
)
add(
    "response-trailers-before-the-end",
    modes=FDS,
    response_body=_with_its_end(_RESPONSE_TRAILERS, side="response_body", first=True),
)
add("response-trailers-before-response", modes=FDS, request_headers=then(_RESPONSE_TRAILERS))
add("extra-body-answer", modes=LOCKSTEP, request_body=then(BODY))
add(
    "replaces-on-headers",
    request_headers=picking(
        CommonResponse(status=CommonResponse.CONTINUE_AND_REPLACE, body_mutation=BodyMutation(body=b"replaced"))
    ),
)
add("replaces-without-body", request_headers=picking(CommonResponse(status=CommonResponse.CONTINUE_AND_REPLACE)))
add(
    "body-mutation-on-headers",
    request_headers=picking(CommonResponse(body_mutation=BodyMutation(body=b"ignored"))),
)
add("wrong-oneof-on-response", response_headers=steps(HEADERS))
add("body-before-response-headers", response_headers=steps(RESPONSE_BODY))
add("no-answer-to-response-headers", modes=LOCKSTEP, response_headers=nothing)
add("no-answer", modes=LOCKSTEP, request_headers=nothing)
add("no-answer-to-body", modes=LOCKSTEP, request_body=nothing)
add("silent-on-request", modes="", request_headers=nothing)
add("holds-body", modes="", request_body=nothing)
add("never-ends-body", modes="", request_body=nothing)
add(
    "overrides-timeout",
    modes=LOCKSTEP,
    request_headers=lambda talk, _: [ProcessingResponse(override_message_timeout=Duration(seconds=2)), picked(talk)],
)
add(
    "mode-override",
    request_headers=picking(CommonResponse(), mode_override=ProcessingMode(response_header_mode=ProcessingMode.SKIP)),
)

_ANSWERS = {
    "request_headers": HeadersResponse, "request_body": BodyResponse, "request_trailers": TrailersResponse,
    "response_headers": HeadersResponse, "response_body": BodyResponse, "response_trailers": TrailersResponse,
}  # fmt: skip
SWAPPED = {
    f"{said}-for-{asked}": Behaviour("swapped", {asked: steps(ProcessingResponse(**{said: answer()}))}, fallback=True)
    for said, answer in _ANSWERS.items()
    for asked in _ANSWERS
    if said != asked
}
"""Every kind of answer to every other kind of message."""

# -- ends of the stream ------------------------------------------------------------------------------------------------

add("closes-at-once", fallback=True, request_headers=steps(End(0)))
add("closes-after-headers", request_headers=then(End(0)))
add(
    "closes-after-body",
    request_body=lambda talk, message: [
        *right(talk, message),
        *([End(0)] if message.request_body.end_of_stream else []),
    ],
)
add("closes-at-response", response_headers=steps(End(0)))
add("closes-in-response", response_body=steps(End(0)))


def _without_its_end(side: str) -> Hook:
    """The bytes of a body, and the end of the stream where its end is due."""

    def hook(_: Talk, message: ProcessingRequest) -> Sequence[Step]:
        body = getattr(message, side)
        piece = ProcessingResponse(**{side: streamed(body.body, end=False)})
        return [piece, *([End(0)] if body.end_of_stream else [])]

    return hook


add("leaves-open", modes=FDS, response_body=_without_its_end("response_body"))
add("leaves-request-open", modes=FDS, request_body=_without_its_end("request_body"))
add("grpc-unavailable", request_headers=steps(End(14, "down")))
add("grpc-exhausted", request_headers=steps(End(8, "full")))
add("grpc-after-headers", request_headers=then(End(13, "broke")))
add("grpc-on-response", response_headers=steps(End(14, "down")))
add("resets", request_headers=steps(Reset(8)))
add("resets-after-headers", request_headers=then(Reset(8)))
add("resets-on-response", response_headers=steps(Reset(8)))

# -- mutations that Envoy refuses --------------------------------------------------------------------------------------

add(
    "value-not-raw",
    fallback=True,
    request_headers=steps(
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
add(
    "unwrapped-metadata",
    fallback=True,
    request_headers=lambda talk, _: [
        ProcessingResponse(request_headers=HeadersResponse(), dynamic_metadata=to_struct({KEY: talk.pick}))
    ],
)
add("metadata-list", fallback=True, request_headers=lambda talk, _: [picked(talk, header=None, metadata=[talk.pick])])
add(
    "unknown-namespace",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header=None, namespace="envoy.other")],
)
add(
    "unknown-endpoint",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header="127.0.0.9:9", metadata="127.0.0.9:9")],
)
add(
    "endpoint-without-port",
    fallback=True,
    request_headers=lambda talk, _: [picked(talk, header="127.0.0.1", metadata="127.0.0.1")],
)
add("endpoint-garbage", fallback=True, request_headers=lambda talk, _: [picked(talk, header="a;b", metadata="a;b")])
add(
    "unknown-then-known",
    request_headers=lambda talk, _: [
        picked(talk, header=f"127.0.0.9:9,{talk.pick}", metadata=f"127.0.0.9:9, {talk.pick}")
    ],
)
add(
    "list-with-blanks",
    request_headers=lambda talk, _: [picked(talk, header=f",{talk.pick} ,,", metadata=f" , {talk.pick} , ")],
)
for _name, _value in {":method": "PUT", ":authority": "a", "host": "a", "x-envoy-new": "1", ":scheme": "https"}.items():
    add(f"sets-{_name.strip(':')}", request_headers=picking(setting(_name, _value)))
add("sets-status-on-request", request_headers=picking(setting(":status", "200")))
add("removes-path", request_headers=picking(CommonResponse(header_mutation={"remove_headers": [":path"]})))
add("removes-host", request_headers=picking(CommonResponse(header_mutation={"remove_headers": ["host"]})))
add(
    "removes-length",
    request_headers=picking(CommonResponse(header_mutation={"remove_headers": ["content-length"]})),
)
add("sets-length", request_headers=picking(setting("content-length", "3")))
add("sets-length-illegal", request_headers=picking(setting("content-length", b"3\n")))
add("sets-length-too-long", modes=LOCKSTEP, request_headers=picking(setting("content-length", "300")))
add("header-with-newline", request_headers=picking(setting("x-new", b"a\r\nb")))
add("header-with-nul", request_headers=picking(setting("x-new", b"a\x00b")))
add("header-with-high-bytes", request_headers=picking(setting("x-new", b"caf\xc3\xa9\xff")))
add("header-name-with-space", request_headers=picking(setting("bad name", b"a")))
add("header-without-name", fallback=True, request_headers=picking(setting("", b"a")))
add(
    "both-values",
    request_headers=picking(
        CommonResponse(
            header_mutation={
                "set_headers": [HeaderValueOption(header=HeaderValue(key="x-new", value="1", raw_value=b"2"))]
            }
        )
    ),
)
add("empty-value", request_headers=picking(setting("x-new", b"")))
add(
    "too-many-headers",
    request_headers=picking(
        CommonResponse(
            header_mutation={
                "set_headers": [
                    HeaderValueOption(header=HeaderValue(key=f"x-{number}", raw_value=b"1")) for number in range(120)
                ]
            }
        )
    ),
)
add(
    "bad-header-on-response",
    response_headers=steps(ProcessingResponse(response_headers=HeadersResponse(response=setting("x-new", b"a\r\nb")))),
)
