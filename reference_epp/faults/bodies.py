"""Faults of body bytes: their size, their integrity, their declared length."""
# fmt: off

from __future__ import annotations

import json
from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.changes import (
    changed,
    cutting,
    events,
    giving_back,
    header,
    json_object,
    parsed,
    rewritten,
    setting,
)
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, fault
from reference_epp.picker import Picked
from reference_epp.variants.streaming import HoldsJsonResponses, RewritesJson

# -- the size of a piece

fault("body-in-one-piece", "ENV-08",
      "A body comes back in one message; above 4 MiB no gRPC client with defaults takes it.",
      cutting(1 << 30), modes=FULL_DUPLEX)
fault("pieces-of-100-kilobytes", "ENV-08",
      "A body comes back in pieces of 100,000 bytes, where 64 KiB are recommended.",
      cutting(100_000), modes=FULL_DUPLEX, effect="warn")

# -- the bytes

KNOWN = ("model", "prompt", "messages", "max_tokens", "stream", "stream_options")


def _without_zeros(body: bytes) -> bytes:
    value = parsed(body)
    kept = {name: one for name, one in value.items() if one or one is None} if isinstance(value, dict) else None
    return body if kept is None else json.dumps(kept).encode()


def _with_a_short_prompt(body: bytes) -> bytes:
    value = json_object(body)
    prompt = value.get("prompt")
    long = isinstance(prompt, str) and len(prompt) > 1000
    return json.dumps(value | {"prompt": prompt[:1000]}).encode() if long else body  # type: ignore[index]


def _swapped(body: bytes) -> bytes:
    first, second = answers.CHUNK_LIMIT, 2 * answers.CHUNK_LIMIT
    return body[first:second] + body[:first] + body[second:] if len(body) >= second else body


fault("blanks-around-a-body-lost", "ENV-09",
      "Blanks at the start and at the end of a request body are lost.",
      giving_back(bytes.strip), modes=FULL_DUPLEX)
fault("zero-values-lost", "ENV-09",
      "A JSON body is written again without 0, false and empty values, as with Go's `omitempty`.",
      giving_back(_without_zeros), modes=FULL_DUPLEX)
fault("last-byte-lost", "ENV-09",
      "The last byte of a request body is lost, unless trailers end it.",
      changed(Conversation, stream=lambda up, _, direction, body, end_of_stream: up(
          direction, body[:-1] if direction == "request" and end_of_stream else body, end_of_stream=end_of_stream)),
      modes=FULL_DUPLEX)
fault("large-body-cut", "ENV-09",
      "A request body of more than 100,000 bytes is cut there.",
      giving_back(lambda body: body[:100_000]), modes=FULL_DUPLEX)
fault("long-prompts-cut", "ENV-09",
      "A prompt of more than 1,000 characters is cut there, and the body is valid JSON again.",
      giving_back(_with_a_short_prompt), modes=FULL_DUPLEX)
fault("pieces-swapped", "ENV-09",
      "The first two pieces of a large request body change places.",
      giving_back(_swapped), modes=FULL_DUPLEX)
fault("binary-responses-decoded", "ENV-09",
      "Response bodies are decoded and encoded again, which replaces bytes that are not UTF-8.",
      giving_back(lambda body: body.decode("utf-8", "replace").encode(), "response"), modes=FULL_DUPLEX)
fault("big-numbers-clipped", "EPP-TRN-05",
      "JSON request bodies are written again with whole numbers of 32 bits.",
      giving_back(lambda body: rewritten(body, parse_int=lambda text: min(int(text), 2**31 - 1))),
      modes=FULL_DUPLEX, effect="warn")
fault("unknown-json-fields-dropped", "ENV-09",
      "JSON request bodies are written again with only the fields that the EPP knows.",
      giving_back(lambda body: rewritten(body, lambda value: {k: v for k, v in value.items() if k in KNOWN})),
      modes=FULL_DUPLEX)
fault("null-fields-dropped", "ENV-09",
      "JSON request bodies are written again without the fields that are null.",
      giving_back(lambda body: rewritten(body, lambda value: {k: v for k, v in value.items() if v is not None})),
      modes=FULL_DUPLEX)
fault("json-field-added", "EPP-TRN-05",
      "A field that no one asked for is added to JSON request bodies.",
      giving_back(lambda body: rewritten(body, lambda value: {**value, "epp": True})),
      modes=FULL_DUPLEX, effect="warn")
fault("response-bytes-changed", "ENV-09",
      "The first byte of every chunk of a response is another one.",
      giving_back(lambda body: bytes([body[0] ^ 1]) + body[1:] if body else body, "response"), modes=FULL_DUPLEX)


@fault("response-chunk-lost-after-ten", "ENV-09", "The eleventh chunk of a response is lost.", modes=FULL_DUPLEX)
class EleventhChunkLost(Conversation):
    chunks = 0

    def stream(self, direction: Any, body: bytes, *, end_of_stream: bool) -> Any:
        self.chunks += direction == "response"
        lost = direction == "response" and self.chunks == 11
        return super().stream(direction, b"" if lost else body, end_of_stream=end_of_stream)


@fault("invalid-json-response-emptied", "ENV-09",
       "A chunk of a JSON response that begins an object and is none is replaced by nothing.",
       modes=FULL_DUPLEX)
class InvalidJsonResponseEmptied(Conversation):
    says_json = False

    def on_response_headers(self, headers: Any) -> Any:
        self.says_json = b"json" in header(headers, "content-type")
        return super().on_response_headers(headers)

    def stream(self, direction: Any, body: bytes, *, end_of_stream: bool) -> Any:
        begun = direction == "response" and self.says_json and body.startswith(b"{")
        return super().stream(direction, b"" if begun and parsed(body) is None else body, end_of_stream=end_of_stream)


def _without_a_whole_end(side: str, base: type[Conversation] = Conversation) -> type[Conversation]:
    """Marks no piece as the last where the last piece is full."""
    def act(up: Any, _: Any, direction: str, body: bytes, *, end_of_stream: bool) -> Any:
        whole = direction == side and bool(body) and len(body) % answers.CHUNK_LIMIT == 0
        return up(direction, body, end_of_stream=end_of_stream and not whole)

    return changed(base, stream=act)


fault("whole-pieces-never-end", "ENV-05",
      "A request body that fills its last piece has no piece that is marked as the last.",
      _without_a_whole_end("request"), modes=FULL_DUPLEX)


@fault("whole-responses-never-end", "ENV-05",
       "A response is collected, and if its last piece is full, no piece is marked as the last.",
       modes=FULL_DUPLEX)
class WholeResponsesNeverEnd(_without_a_whole_end("response", HoldsJsonResponses)):  # type: ignore[misc]
    def on_response_headers(self, headers: Any) -> Any:
        answered = super().on_response_headers(headers)
        self.collecting = not events(headers)
        return answered


# -- the declared length

def _length(conversation: Conversation, more: int = 0) -> dict[str, bytes]:
    length = sum(map(len, conversation.body)) + more
    return {"content-length": b"%d" % length} if conversation.body else {}


def _grown(up: Any, c: Any, decision: Picked) -> ProcessingResponse:
    answer: ProcessingResponse = up(decision)
    body = b"".join(c.body)
    if len(body) > 300:
        answer.request_body.response.body_mutation.body = body + b" "
    return answer


def _grown_before_trailers(up: Any, c: Any, body: Any) -> list[Any]:
    actions = list(up(body))
    if isinstance(c.decision, Picked) and not body.end_of_stream and isinstance(actions[0], ProcessingResponse):
        actions[0].request_body.response.body_mutation.body = body.body + b" "
    return actions


def _appended(up: Any, c: Any, decision: Picked) -> ProcessingResponse:
    if sum(map(len, c.body)) <= 300:
        return Conversation.steer_body(c, decision)
    answer: ProcessingResponse = up(decision)
    for option in answer.request_body.response.header_mutation.set_headers:
        if option.header.key == "content-length":
            option.append_action = 0  # APPEND_IF_EXISTS_OR_ADD
            option.append.value = True
    return answer


fault("content-length-wrong", "ENV-10",
      "A content-length is set that is one more than the body has bytes.",
      setting(lambda c, _: _length(c, 1)))
fault("content-length-twice", "ENV-10",
      "The content-length is set twice, to two values.",
      setting(lambda c, _: _length(c, 1), base=setting(lambda c, _: _length(c))))
fault("buffered-body-grows", "ENV-10",
      "A buffered body of more than 300 bytes gets a blank at its end, and keeps its content-length.",
      changed(Conversation, steer_body=_grown), modes=BUFFERED)
fault("buffered-body-grows-before-trailers", "ENV-10",
      "A buffered body before trailers gets a blank at its end, and keeps its content-length.",
      changed(Conversation, on_request_body=_grown_before_trailers), modes=BUFFERED)
fault("content-length-appended", "ENV-10",
      "The length of a rewritten body of more than 300 bytes is put beside the client's.",
      changed(RewritesJson, steer_body=_appended), modes=BUFFERED)
