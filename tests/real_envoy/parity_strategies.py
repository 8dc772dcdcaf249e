"""Generated cases of the parity matrix: any request, EPP and model servers, as long as nothing is left to chance.

What chance would decide is left out: bodies in several pieces before an EPP that breaks the protocol, endpoints behind
the end of the EPP's list, and answers that never come where no time limit ends the wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st
from parity_cases import REPLIES
from parity_epp import Behaviour, End, Garbage, Reset, Step, Talk, right
from parity_gateways import GATEWAYS
from parity_model_server import Raw
from parity_stack import Case

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    BoolValue,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)
from fake_proxy.client import HttpRequest
from fake_proxy.config import BodyMode
from fake_proxy.scripted import UpstreamReply

Kind = Literal["right", "twice", "immediate", "nothing", "wrong", "end", "reset", "garbage"]
_KINDS = {
    "request_headers": HeadersResponse, "request_body": BodyResponse, "request_trailers": TrailersResponse,
    "response_headers": HeadersResponse, "response_body": BodyResponse, "response_trailers": TrailersResponse,
}  # fmt: skip


@dataclass(frozen=True)
class Says:
    """What the EPP says to one kind of message. `mutation` and `common` are serialised, to be shown in full."""

    kind: Kind = "right"
    mutation: bytes = b""
    """HeaderMutation."""
    common: bytes = b""
    """CommonResponse, without the header mutation."""
    answer: bytes = b""
    """ProcessingResponse: what goes with the oneof, or in its place."""
    code: int = 0

    def __call__(self, talk: Talk, message: ProcessingRequest) -> Sequence[Step]:
        answer = right(talk, message)[0]
        kind = answer.WhichOneof("response")
        assert kind is not None
        part = getattr(answer, kind)
        mutation = HeaderMutation.FromString(self.mutation)
        if kind.endswith("trailers"):
            part.header_mutation.MergeFrom(mutation)
        else:
            part.response.header_mutation.MergeFrom(mutation)
            part.response.MergeFrom(CommonResponse.FromString(self.common))
        match self.kind:
            case "right":
                answer.MergeFrom(ProcessingResponse.FromString(self.answer))
                return [answer]
            case "twice":
                return [answer, answer]
            case "immediate" | "wrong":
                return [ProcessingResponse.FromString(self.answer)]
            case "end":
                return [answer, End(self.code)] if self.common else [End(self.code, "why")]
            case "reset":
                return [Reset(self.code)]
            case "garbage":
                return [Garbage(self.answer + b"\xff")]
            case _:
                return []


# -- what clients send -------------------------------------------------------------------------------------------------

_NAMES = (
    b"accept", b"x-a", b"X-A", b"x-b", b"cookie", b"user-agent", b"authorization", b"x-envoy-peer-metadata",
    b"x-request-id", b"content-type", b"x-gateway-destination-endpoint", b"via", b"expect",
)  # fmt: skip
_VALUES = (b"", b"1", b"a/b", b"a,b", "café".encode(), b"application/grpc", b"100-continue")
_client_header = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES)) | st.just(
    (b"x-forwarded-proto", b"https")
)
_client_headers = st.lists(_client_header, max_size=5).map(tuple)
_trailers = st.lists(st.tuples(st.sampled_from((b"x-sum", b"X-Sum", b"grpc-status")), st.just(b"1")), max_size=2)

requests = st.builds(
    HttpRequest,
    method=st.sampled_from(("POST", "POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")),
    path=st.sampled_from(("/v1/chat/completions", "/v1/models?a=b", "/")),
    headers=_client_headers,
    body=st.sampled_from((b"", b'{"model": "m"}', b"x" * 5000)),
    trailers=_trailers.map(tuple),
    http=st.sampled_from((1, 2)),
    chunked=st.booleans(),
)

# -- what model servers do ---------------------------------------------------------------------------------------------

_reply_headers = st.lists(
    st.tuples(
        st.sampled_from((b"content-type", b"x-a", b"vary", b"set-cookie", b"server", b"grpc-status", b"connection")),
        st.sampled_from((b"", b"1", b"a,b", b"application/grpc")),
    ),
    max_size=3,
).map(tuple)
_single = st.builds(
    UpstreamReply,
    status=st.sampled_from((200, 200, 200, 201, 204, 304, 400, 404, 429, 500, 503)),
    headers=_reply_headers,
    body=st.sampled_from(((), (b"ok",), (b"y" * 3000,))),
)
_several = st.builds(
    UpstreamReply,
    headers=_reply_headers,
    body=st.sampled_from(((b"one",), (b"one", b"two"), (b"one", b"two", b"three"))),
    trailers=st.sampled_from(((), ((b"x-tokens", b"7"),), ((b"grpc-status", b"0"), (b"grpc-message", b"m")))),
)
_broken = st.sampled_from([reply for reply in REPLIES.values() if isinstance(reply, Raw) or reply.fail == "reset"])

# -- what the EPP says -------------------------------------------------------------------------------------------------

_PLAIN = ("x-new", "X-New", "accept", "x-a", "via", "content-type", "vary", "x-envoy-new", "x-request-id", "server")
_ODD = ("host", ":method", ":status", "bad name", "x-gateway-destination-endpoint-served")


_PATH = HeaderValueOption(header=HeaderValue(key=":path", raw_value=b"/other"))


def _mutation(names: Sequence[str]) -> st.SearchStrategy[HeaderMutation]:
    option = st.builds(
        HeaderValueOption,
        header=st.builds(
            HeaderValue,
            key=st.sampled_from(names),
            raw_value=st.sampled_from((b"", b"1", b" 2 ", b"a,b", b"\xff", b"404", b"/other", b"GET")),
            value=st.sampled_from(("", "", "v")),
        ),
        append=st.sampled_from((None, None, BoolValue(value=False), BoolValue(value=True))),
        append_action=st.integers(0, 3),
    )
    removed = ("x-a", "X-B", "accept", "content-type", "content-length", ":path", "host", "cookie", "bad name")
    return st.builds(
        HeaderMutation,
        set_headers=st.lists(option | st.just(_PATH) if names != _PLAIN else option, max_size=3),
        remove_headers=st.lists(st.sampled_from(removed), max_size=2),
    )


_mutations = _mutation(_PLAIN + _ODD)
_raw_mutations = st.just(b"") | _mutations.map(HeaderMutation.SerializeToString)
_bodies = st.sampled_from((None, None, BodyMutation(body=b"other"), BodyMutation(clear_body=True), BodyMutation()))


def _common(**more: st.SearchStrategy[object]) -> st.SearchStrategy[bytes]:
    return st.builds(CommonResponse, clear_route_cache=st.booleans(), **more).map(CommonResponse.SerializeToString)


_METADATA = (
    {"envoy.lb": {"x-more": 1}}, {"envoy.lb": {"x-more": {"a": [1, None]}}, "other": {}},
    {"envoy.lb": "no struct"},
)  # fmt: skip
_asides = st.builds(
    ProcessingResponse,
    dynamic_metadata=st.none() | st.sampled_from(_METADATA).map(to_struct),
    mode_override=st.none() | st.just(ProcessingMode(response_header_mode=ProcessingMode.SKIP)),
).map(ProcessingResponse.SerializeToString)  # fmt: skip

_mild = st.builds(Says, mutation=_raw_mutations, common=_common(), answer=_asides)
_plain = st.builds(Says, mutation=_mutation(_PLAIN).map(HeaderMutation.SerializeToString))
_replacing = st.builds(
    Says,
    mutation=_raw_mutations,
    common=_common(
        status=st.sampled_from((CommonResponse.CONTINUE, CommonResponse.CONTINUE_AND_REPLACE)), body_mutation=_bodies
    ),
)
_immediate = st.builds(
    ImmediateResponse,
    status=st.none() | st.builds(HttpStatus, code=st.sampled_from((100, 200, 204, 304, 429, 503, 999))),
    headers=st.none() | _mutations,
    body=st.sampled_from((b"", b"refused")),
    details=st.sampled_from(("", "no endpoints")),
).map(lambda answer: Says("immediate", answer=ProcessingResponse(immediate_response=answer).SerializeToString()))
_wrong = st.sampled_from([ProcessingResponse(), *(ProcessingResponse(**{k: t()}) for k, t in _KINDS.items())]).map(
    lambda answer: Says("wrong", answer=answer.SerializeToString())
)
_violations = (
    _wrong
    | st.builds(
        Says, st.just("end"), common=st.sampled_from((b"", b"\x20\x01")), code=st.sampled_from((0, 0, 8, 13, 14))
    )
    | st.builds(Says, st.just("reset"), code=st.sampled_from((0, 2, 8)))
    | st.sampled_from((Says("twice"), Says("garbage"), Says("garbage", answer=b"\x0a")))
)

# -- put together ------------------------------------------------------------------------------------------------------

_ONE = sorted(name for name, gateway in GATEWAYS.items() if gateway.pool == ("b",) and not gateway.down)
_MANY = sorted(
    name
    for name, gateway in GATEWAYS.items()
    if len(gateway.pool) > 1 and gateway.config.receiving_namespaces and not gateway.config.original_destination
)


@st.composite
def steered(draw: st.DrawFn) -> Case:
    """An EPP that keeps the protocol and names endpoints enough for every retry; model servers that may all fail."""
    endpoints = st.sampled_from(("a", "b", "c", "dead"))
    return Case(
        id="generated/steered",
        gateway=draw(st.sampled_from(_MANY)),
        request=draw(requests),
        replies={name: draw(_single | _several | _broken) for name in "abc"},
        pick=tuple(draw(st.lists(endpoints, min_size=4, max_size=5))),
    )


@st.composite
def answered(draw: st.DrawFn) -> Case:
    """One endpoint, and an EPP that says anything once, and is right otherwise."""
    gateway = draw(st.sampled_from(_ONE))
    config = GATEWAYS[gateway].config
    choices = _mild | _replacing | _immediate | _violations
    full_duplex = BodyMode.FULL_DUPLEX_STREAMED in (config.request_body_mode, config.response_body_mode)
    if not full_duplex and config.message_timeout < 1:
        choices |= st.just(Says("nothing"))
    kind = draw(st.sampled_from(sorted(_KINDS)))
    says = draw(_plain | _immediate | _violations if kind.endswith("trailers") else choices)
    reply = draw(_single if kind.startswith("response") else _single | _several)
    return Case(
        id="generated/answered",
        gateway=gateway,
        request=draw(requests),
        replies={"b": reply},
        behaviour=Behaviour("generated", {kind: says}),
    )


cases = steered() | answered()


def doubles_the_body(case: Case) -> bool:
    """Whether Envoy sends the request's body twice (parity_allowed: trailers-double-the-body)."""
    return bool(case.request.trailers) and bool(case.request.body) and GATEWAYS[case.gateway].config.num_retries > 0
