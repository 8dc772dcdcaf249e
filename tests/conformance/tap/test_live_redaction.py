"""What is kept of live traffic: no body, no credential, and all that the judges need of the rest."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.reading.decoded_message import decode
from conformance.tap.redaction import LiveRedaction, secret_names
from ext_proc.headers import header_map, pairs_of, to_struct
from ext_proc.messages import (
    Any,
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ImmediateResponse,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from ext_proc.record import Author, Entry, Malformed, Message, StreamEnded, StreamOpened, Wait

DATA_PLANE, EPP = Author.DATA_PLANE, Author.EPP
SECRET = b"sk-very-secret"


def message(said: ProcessingRequest | ProcessingResponse) -> Message:
    author = DATA_PLANE if isinstance(said, ProcessingRequest) else EPP
    return Message(exchange="x", stream="s", author=author, raw=said.SerializeToString())


def kept(said: ProcessingRequest | ProcessingResponse, redaction: LiveRedaction | None = None):
    event = (redaction or LiveRedaction())(message(said))
    assert isinstance(event, Message)
    return event, type(said).FromString(event.raw)


def headers(*pairs: tuple[bytes, bytes]) -> ProcessingRequest:
    return ProcessingRequest(request_headers=HttpHeaders(headers=header_map(pairs), end_of_stream=True))


@pytest.mark.parametrize(
    "name",
    ["authorization", "Cookie", "set-cookie", "x-api-key", "api_key", "x-auth-token", "X-Amz-Signature", "my-password"],
)
def test_values_of_headers_that_are_called_like_credentials_are_gone(name: str) -> None:
    event, found = kept(headers((name.encode(), SECRET), (b"x-plain", b"stays")))
    (key, value), plain = pairs_of(found.request_headers.headers)
    assert key == name.encode()
    assert value.startswith(b"[redacted:")
    assert plain == (b"x-plain", b"stays")
    assert found.request_headers.end_of_stream
    assert not event.truncated
    assert SECRET not in event.raw


def test_further_names_can_be_given_and_secrets_be_kept() -> None:
    said = headers((b"x-tenant", SECRET), (b"authorization", SECRET))
    assert SECRET not in kept(said, LiveRedaction(headers=secret_names([" X-Tenant "])))[0].raw
    assert kept(said, LiveRedaction(secrets=False))[0] == message(said)


def test_queries_are_gone_and_paths_stay() -> None:
    _, found = kept(headers((b":path", b"/v1/chat?key=" + SECRET), (b"x-asked", b"why?")))
    path, other = pairs_of(found.request_headers.headers)
    assert path[1].startswith(b"/v1/chat?[redacted:")
    assert other == (b"x-asked", b"why?")


def test_metadata_and_attributes_are_looked_at() -> None:
    said = ProcessingRequest(
        request_headers=HttpHeaders(),
        metadata_context=Metadata(
            filter_metadata={
                "jwt": to_struct({"payload": {"access_token": SECRET.decode()}, "list": [{"secret": SECRET.decode()}]}),
                "envoy.lb": to_struct({"x": "stays"}),
            },
            typed_filter_metadata={"opaque": Any(type_url="t", value=SECRET)},
        ),
        attributes={"ext": to_struct({"request.path": "/a?b=" + SECRET.decode(), "n": 1})},
    )
    event, found = kept(said)
    assert SECRET not in event.raw
    assert found.metadata_context.filter_metadata["envoy.lb"].fields["x"].string_value == "stays"
    assert found.attributes["ext"].fields["n"].number_value == 1


def test_headers_set_by_an_answer_are_redacted() -> None:
    option = HeaderValueOption(header=HeaderValue(key="authorization", raw_value=SECRET))
    mutation = HeaderMutation(set_headers=[option], remove_headers=["x-gone"])
    for said in (
        ProcessingResponse(request_headers=HeadersResponse(response=CommonResponse(header_mutation=mutation))),
        ProcessingResponse(request_body=BodyResponse(response=CommonResponse(header_mutation=mutation))),
        ProcessingResponse(immediate_response=ImmediateResponse(headers=mutation)),
        ProcessingResponse(response_trailers={"header_mutation": mutation}),
        ProcessingResponse(request_headers=HeadersResponse(), dynamic_metadata=to_struct({"token": SECRET.decode()})),
    ):
        event, _ = kept(said)
        assert SECRET not in event.raw
        assert not event.truncated


def test_bodies_are_cut_out_and_the_message_says_so() -> None:
    for part in ("request_body", "response_body"):
        said = ProcessingRequest(**{part: HttpBody(body=SECRET * 100, end_of_stream=True)})
        event, found = kept(said)
        assert SECRET not in event.raw
        assert event.truncated
        assert event.size == len(message(said).raw)
        assert event.sha256 == hashlib.sha256(message(said).raw).hexdigest()
        decoded = decode(Entry(1, 0, event), event)
        assert (decoded.partial, decoded.what, decoded.ends, decoded.body) == (True, part, True, b"")
        assert found == ProcessingRequest(**{part: HttpBody(end_of_stream=True)})


def test_bodies_of_answers_are_cut_out() -> None:
    streamed = BodyMutation(streamed_response=StreamedBodyResponse(body=SECRET, end_of_stream=True))
    for mutation in (BodyMutation(body=SECRET), streamed):
        said = ProcessingResponse(response_body=BodyResponse(response=CommonResponse(body_mutation=mutation)))
        event, found = kept(said)
        assert SECRET not in event.raw
        assert event.truncated
        kind = found.response_body.response.body_mutation.WhichOneof("mutation")
        assert kind == mutation.WhichOneof("mutation")
    whole = ProcessingResponse(streamed_immediate_response=StreamedImmediateResponse(body_response={"body": SECRET}))
    assert SECRET not in kept(whole)[0].raw


def test_an_error_keeps_its_length_and_counts_as_whole() -> None:
    event, found = kept(ProcessingResponse(immediate_response=ImmediateResponse(body=SECRET, details="why")))
    assert found.immediate_response.body == b"*" * len(SECRET)
    assert found.immediate_response.details == "why"
    assert not event.truncated


def test_the_requested_length_of_a_body_is_kept() -> None:
    said = ProcessingRequest(request_body=HttpBody(body=b"abcdef"))
    assert kept(said, LiveRedaction(body=3))[1].request_body.body == b"abc"
    assert kept(said, LiveRedaction(body=6))[0] == message(said)


def test_messages_without_anything_to_hide_are_kept_byte_for_byte() -> None:
    odd = (
        b"\xf8\x07\x01" + ProcessingRequest(request_trailers=HttpTrailers()).SerializeToString()
    )  # unknown field first
    event = Message(stream="s", author=DATA_PLANE, raw=odd)
    assert LiveRedaction()(event) is event


@pytest.mark.parametrize("author", list(Author))
def test_bytes_that_are_no_message_are_told_without_them(author: Author) -> None:
    event = LiveRedaction()(Message(exchange="x", stream="s", author=author, raw=b"\xff" + SECRET))
    assert isinstance(event, Malformed)
    assert event.raw == b""
    assert f"{len(SECRET) + 1} bytes that are no Processing" in event.reason
    assert LiveRedaction()(Malformed(stream="s", author=author, raw=b"\x01\x00\x00\x00\x09" + SECRET, reason="r")) == (
        Malformed(stream="s", author=author, raw=b"\x01\x00\x00\x00\x09", reason="r")
    )


def test_metadata_of_the_call_is_looked_at() -> None:
    pairs = ((b":path", b"/p"), (b"authorization", SECRET), (b"x", b"1"))
    opened = LiveRedaction()(StreamOpened(stream="s", connection=1, headers=pairs))
    assert opened.headers[0] == pairs[0]
    assert SECRET not in opened.headers[1][1]
    ended = LiveRedaction()(StreamEnded(stream="s", author=None, how="status", headers=pairs, trailers=pairs))
    assert SECRET not in ended.headers[1][1] + ended.trailers[1][1]
    wait = Wait(what="w", outcome="met")
    assert LiveRedaction()(wait) is wait


@given(
    st.lists(st.tuples(st.sampled_from(["authorization", "x-token", "x-plain", ":path"]), st.binary(max_size=30))),
    st.binary(min_size=8, max_size=60),
    st.booleans(),
)
def test_nothing_secret_is_left_whatever_surrounds_it(pairs, body: bytes, end: bool) -> None:
    entries = [HeaderValue(key=name, raw_value=value) for name, value in pairs]
    said = ProcessingRequest(request_headers=HttpHeaders(headers={"headers": entries}, end_of_stream=end))
    _, found = kept(said)
    for before, after in zip(pairs, found.request_headers.headers.headers, strict=True):
        if before[0] in ("authorization", "x-token") and before[1]:
            assert after.raw_value.startswith(b"[redacted:")
        elif before[0] == "x-plain":
            assert after.raw_value == before[1]
    assert found.request_headers.end_of_stream == end
    event, _ = kept(ProcessingRequest(request_body=HttpBody(body=body, end_of_stream=end)))
    assert body not in event.raw
