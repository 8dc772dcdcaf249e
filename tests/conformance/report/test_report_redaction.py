"""Redaction: no secret is left anywhere, and nothing else changes."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.evidence.episode import Episode, HarnessTrouble, ProcessExited, ProcessStarted
from conformance.evidence.redaction import Redactor, Secret
from conformance.report.render.html import html
from conformance.report.verify.verification import verify
from conformance.strict_yaml import load
from conformance.targets.profile import Profile
from ext_proc.headers import header_map, to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HttpBody,
    HttpHeaders,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
)
from ext_proc.record import (
    Author,
    ClientResponse,
    Entry,
    ExchangeOpened,
    Malformed,
    Message,
    StreamEnded,
    UpstreamRequest,
    Wait,
)

TOKEN = "s3cr3t-Tök€n/with+signs"
MARK = b"[redacted:header:authorization]"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor([Secret(kind="header", name="authorization", value=f"Bearer {TOKEN}")])


def message(raw: bytes, author: Author = Author.DATA_PLANE) -> Message:
    return Message(exchange="x", stream="s", author=author, raw=raw)


def test_secrets_of_a_profile():
    profile = load(
        """
discovery: {file: {}}
requests:
  headers: {Authorization: "Bearer abcdefgh", x-plain: "plain-value"}
  secretHeaders: {X-Tenant: "tenant-4711"}
connect: {metadata: {x-api-key: "key-0815-xyz", x-trace: "tracing"}}
start:
  command: [epp]
  env: {HF_TOKEN: "hf_abcdef", LOG_LEVEL: "debugging", OPENAI_API_KEY: "sk-123456"}
  versions: {"1.0.0": {env: {DB_PASSWORD: "hunter22"}}}
""",
        Profile,
    )
    text = "abcdefgh plain-value tenant-4711 key-0815-xyz tracing hf_abcdef debugging sk-123456 hunter22"
    redactor = Redactor.of(profile)
    assert redactor.text(text) == (
        "[redacted:header:authorization] plain-value [redacted:header:x-tenant] [redacted:metadata:x-api-key] tracing "
        "[redacted:env:HF_TOKEN] debugging [redacted:env:OPENAI_API_KEY] [redacted:env:DB_PASSWORD]"
    )
    assert [(one.kind, one.name, one.count) for one in redactor.redactions] == [
        ("env", "DB_PASSWORD", 1),
        ("env", "HF_TOKEN", 1),
        ("env", "OPENAI_API_KEY", 1),
        ("header", "authorization", 1),
        ("header", "x-tenant", 1),
        ("metadata", "x-api-key", 1),
    ]


def test_the_raw_message_is_decoded_replaced_and_encoded_again(redactor):
    before = ProcessingRequest(
        request_headers=HttpHeaders(
            headers=header_map([(b":path", b"/v1"), (b"authorization", f"Bearer {TOKEN}".encode())]),
            attributes={"envoy.filters.http.ext_proc": to_struct({"request.headers": {"authorization": TOKEN}})},
            end_of_stream=True,
        ),
        metadata_context=Metadata(
            filter_metadata={"a": to_struct({"list": [1, {"deep": f"x {TOKEN} y"}], TOKEN: "k"})}
        ),
    )
    event = redactor.event(message(before.SerializeToString()))
    after = ProcessingRequest.FromString(event.raw)
    headers = {header.key: header.raw_value for header in after.request_headers.headers.headers}
    assert headers == {":path": b"/v1", "authorization": MARK}
    assert after.request_headers.end_of_stream
    fields = after.metadata_context.filter_metadata["a"].fields
    assert fields["list"].list_value.values[0].number_value == 1
    assert fields["list"].list_value.values[1].struct_value.fields["deep"].string_value == f"x {MARK.decode()} y"
    assert fields[MARK.decode()].string_value == "k"
    assert TOKEN.encode() not in event.raw


def test_bodies_keep_their_length(redactor):
    for secret in (TOKEN, f"Bearer {TOKEN}", base64.b64encode(TOKEN.encode()).decode().rstrip("=")):
        body = json.dumps({"token": secret}, ensure_ascii=False).encode()
        raw = message(ProcessingRequest(request_body=HttpBody(body=body)).SerializeToString())
        asked, got = redactor.event(raw), redactor.event(ClientResponse(status=200, body=body, size=len(body)))
        assert ProcessingRequest.FromString(asked.raw).request_body.body == got.body
        assert len(got.body) == len(body)
        assert got.body.startswith(b'{"token": "[redacted:header:')


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_a_secret_is_found_where_a_body_is_cut_in_pieces(redactor, pieces):
    """However it is cut, the pieces are those of the redacted whole: what was equal stays equal."""
    body = f'{{"a": 1, "token": "{TOKEN}", "b": "{TOKEN}"}}'.encode()
    size = -(-len(body) // pieces)
    cut = [body[at : at + size] for at in range(0, len(body), size)]

    def answer(piece: bytes, kind: str) -> bytes:
        mutation = BodyMutation(streamed_response=StreamedBodyResponse(body=piece))
        answered = BodyResponse(response=CommonResponse(body_mutation=mutation))
        return ProcessingResponse(**{kind: answered}).SerializeToString()

    asked = [message(ProcessingRequest(request_body=HttpBody(body=one)).SerializeToString()) for one in cut]
    said = [message(answer(one, kind), Author.EPP) for one in cut for kind in ("request_body", "response_body")]
    entries = tuple(Entry(number, number, one) for number, one in enumerate([*asked, *said], start=1))
    after = [entry.event for entry in redactor.episode(Episode(id="1", entries=entries)).entries]

    bodies = [ProcessingRequest.FromString(one.raw).request_body.body for one in after[: len(cut)]]
    answers = [ProcessingResponse.FromString(one.raw) for one in after[len(cut) :]]
    of_requests = [one.request_body.response.body_mutation.streamed_response.body for one in answers[::2]]
    of_responses = [one.response_body.response.body_mutation.streamed_response.body for one in answers[1::2]]
    assert bodies == of_requests == of_responses
    assert [*map(len, bodies)] == [*map(len, cut)]
    assert b"".join(bodies) == redactor.body(body)


def test_undecodable_bytes_keep_their_framing(redactor):
    secret = TOKEN.encode()
    raw = b"\x0a\xff" + secret + b"\x00"
    for event in (message(raw), Malformed(stream="s", author=Author.EPP, raw=raw, reason=f"odd {TOKEN}")):
        redacted = redactor.event(event)
        assert redacted.raw == b"\x0a\xff" + b"*" * len(secret) + b"\x00"
    assert TOKEN not in redactor.event(Malformed(stream="s", author=Author.EPP, raw=b"", reason=f"odd {TOKEN}")).reason


def test_unknown_fields_are_redacted_and_kept(redactor):
    secret = TOKEN.encode()
    unknown = bytes.fromhex("c23e") + bytes([len(secret)]) + secret
    raw = ProcessingRequest(request_body=HttpBody(body=b"x")).SerializeToString() + unknown
    redacted = redactor.event(message(raw)).raw
    assert secret not in redacted
    assert len(redacted) == len(raw)
    assert ProcessingRequest.FromString(redacted).request_body.body == b"x"


def test_other_events(redactor):
    secret = f"Bearer {TOKEN}".encode()
    headers = ((b"authorization", secret), (b"accept", b"*/*"))
    redacted = ((b"authorization", MARK), (b"accept", b"*/*"))
    opened = redactor.event(ExchangeOpened(method="GET", path="/", headers=headers, note={"why": [f"see {TOKEN}"]}))
    assert opened.headers == redacted
    assert opened.note == {"why": [f"see {MARK.decode()}"]}
    request = redactor.event(UpstreamRequest(attempt=1, endpoint="e", headers=headers, body=b'{"a":"b"}'))
    assert (request.headers, request.body) == (redacted, b'{"a":"b"}')
    ended = StreamEnded(stream="s", author=Author.EPP, how="status", status=13, message=TOKEN, trailers=headers)
    assert redactor.event(ended).trailers == redacted
    assert redactor.event(ended).message == MARK.decode()
    exited = ProcessExited(pid=1, code=1, asked=False, output=f"level=info auth={TOKEN!r}\n{json.dumps(TOKEN)}")
    assert TOKEN not in redactor.event(exited).output
    assert json.dumps(TOKEN)[1:-1] not in redactor.event(exited).output
    started = redactor.event(ProcessStarted(pid=1, command=("epp", f"--token={TOKEN}")))
    assert started.command == ("epp", f"--token={MARK.decode()}")
    assert redactor.event(HarnessTrouble(what=TOKEN)).what == MARK.decode()


SECRET = 'p%ss/w"ö+rd\\x'


def percent(text: str, safe: str = "", *, lower: bool = False) -> str:
    found = urllib.parse.quote(text, safe=safe)
    return re.sub("%..", lambda code: code[0].lower(), found) if lower else found


@pytest.mark.parametrize(
    "written",
    [
        percent(SECRET),
        percent(SECRET, lower=True),
        percent(SECRET, '/"+\\ '),  # gRPC's form of a status message
        "".join(f"%{byte:02X}" for byte in SECRET.encode()),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False).replace("/", "\\/"),
        "".join(f"\\u{ord(one):04X}" for one in SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        *(base64.b64encode(b"user:x"[:size] + SECRET.encode() + b":y").decode() for size in (0, 4, 5, 6)),
        base64.urlsafe_b64encode(b"u" + SECRET.encode()).decode(),
        percent(base64.b64encode(SECRET.encode()).decode()),
    ],
)
def test_a_secret_is_found_in_each_encoding(written: str) -> None:
    redactor = Redactor([Secret(kind="header", name="x-key", value=SECRET)])
    event = redactor.event(
        StreamEnded(stream="s", author=None, how="status", status=13, message=f"said {written}, at the end")
    )
    assert "[redacted:header:x-key]" in event.message
    assert event.message.startswith("said ")
    assert event.message.endswith(", at the end")


def test_events_without_secrets_are_the_same_objects(redactor):
    entry = Entry(1, 1, Wait(what="echo", outcome="met"))
    assert redactor.entry(entry) is entry
    untouched = message(ProcessingRequest(request_body=HttpBody(body=b"x")).SerializeToString())
    assert redactor.event(untouched) is untouched
    assert Redactor().event(untouched) is untouched
    assert Redactor().redactions == ()


def test_a_short_value_is_only_the_value_of_its_own_header():
    redactor = Redactor([Secret(kind="header", name="x-tenant", value="7")])
    event = redactor.event(ClientResponse(status=200, headers=((b"X-Tenant", b"7"), (b"age", b"7")), body=b"17"))
    assert event.headers == ((b"X-Tenant", b"[redacted:header:x-tenant]"), (b"age", b"7"))
    assert event.body == b"17"
    raw = ProcessingRequest(
        request_headers=HttpHeaders(headers=header_map([(b"x-tenant", b"7"), (b"age", b"7")]))
    ).SerializeToString()
    headers = ProcessingRequest.FromString(redactor.event(message(raw)).raw).request_headers.headers.headers
    assert [header.raw_value for header in headers] == [b"[redacted:header:x-tenant]", b"7"]


secrets = st.text(st.characters(codec="utf-8", exclude_characters="[]*"), min_size=6, max_size=20)


@given(secret=secrets, before=st.binary(max_size=10), after=st.text(max_size=10), body=st.binary(max_size=40))
def test_no_secret_is_left_and_a_second_pass_changes_nothing(secret, before, after, body):
    redactor = Redactor([Secret(kind="header", name="authorization", value=secret)])
    value = before + secret.encode() + after.encode()
    request = ProcessingRequest(
        request_headers=HttpHeaders(headers=header_map([(b"authorization", secret.encode()), (b"x-other", value)])),
        metadata_context=Metadata(filter_metadata={"n": to_struct({after: [secret + after]})}),
    )
    events = [
        message(request.SerializeToString()),
        message(ProcessingRequest(request_body=HttpBody(body=body + secret.encode())).SerializeToString()),
        message(value),
        ExchangeOpened(method="GET", path=secret, headers=((b"authorization", value),), note={after: secret}),
        ProcessExited(pid=1, code=0, asked=True, output=after + secret + after),
    ]
    for event in events:
        redacted = redactor.event(event)
        if redacted == event:
            continue
        kept = b"".join(_bytes(redacted))
        assert secret.encode() not in kept
        assert redactor.event(redacted) == redacted


def _bytes(event):
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        yield value if isinstance(value, bytes) else repr(value).encode()
        if isinstance(value, str):
            yield value.encode()


def test_no_secret_is_left_in_report_evidence_or_page(made, catalogue, judge, say):
    """From the profile to every file: the token is in headers, bodies, output, findings, flags and error texts."""
    redactor = Redactor([Secret(kind="header", name="authorization", value=f"Bearer {TOKEN}")])
    made.redactor = redactor
    crash = ProcessExited(pid=7, code=1, asked=False, output=f"dump: {TOKEN}")
    made.scenario(
        "a.leaks", ("ENV-22",), [*say("x1", "127.1.0.1:8000", headers={"authorization": f"Bearer {TOKEN}"}), crash]
    )
    made.skipped("b.says", ("EPP-SUB-01",), f"the target said {TOKEN}")
    report = made.report(stopped=f"bad answer {TOKEN}", redactor=redactor)
    page = html(report, made.evidence_path)
    files = [made.path.read_bytes(), gzip.decompress(made.evidence_path.read_bytes()), page.encode()]
    for data in files:
        assert MARK in data
        for form in (TOKEN, json.dumps(TOKEN)[1:-1], base64.b64encode(TOKEN.encode()).decode().rstrip("=")):
            assert form.encode() not in data
    assert report.redactions[0].name == "authorization"
    assert report.redactions[0].count > 5
    assert verify(made.path, made.evidence_path, catalogue=catalogue, judge=judge).step("digest").answer == "pass"
