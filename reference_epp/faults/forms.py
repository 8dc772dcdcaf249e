"""Faults of reading JSON bodies: right for the usual form of a request, wrong for others."""
# fmt: off

from __future__ import annotations

from typing import Any

from reference_epp.changes import changed, closing, json_object, refusing
from reference_epp.conversation import BAD_REQUEST, UNSUPPORTED_MEDIA_TYPE, Conversation
from reference_epp.deviations import FULL_DUPLEX, WHOLE_BODY, fault
from reference_epp.faults.paths import NOT_503
from reference_epp.picker import Decision


def _cut_prompt(up: Any, _: Any, body: bytes) -> Decision:
    prompt = json_object(body).get("prompt")
    if isinstance(prompt, str):
        prompt.encode()[:512].decode()
    decision: Decision = up(body)
    return decision


def _has_parts(_: Any, body: bytes) -> bool:
    messages = json_object(body).get("messages")
    return isinstance(messages, list) and not all(isinstance(one.get("content"), str) for one in messages)


def _media_type(c: Any) -> bytes:
    kind: bytes = c.headers.get("content-type", b"").partition(b";")[0]
    return kind


fault("prompt-cut-inside-a-character", "ENV-16",
      "A prompt is cut after 512 bytes for the log; inside a character that ends the stream.",
      changed(Conversation, choose=_cut_prompt),
      also={"EPP-DEST-01": "so it is without an endpoint"}, modes=WHOLE_BODY)
fault("content-parts-refused", "EPP-DEST-01",
      "A chat request of which a message has no plain text as its content is answered with 400.",
      refusing(BAD_REQUEST, _has_parts), also=NOT_503, modes=WHOLE_BODY)
fault("prompt-lists-end-the-stream", "ENV-16",
      "A request whose prompt is a list has its stream ended with a gRPC error.",
      changed(Conversation, release_with_body=closing),
      when=lambda c: isinstance(json_object(b"".join(c.body)).get("prompt"), list),
      also={"EPP-DEST-07": "the request gets no endpoint", "EPP-ERR-04": "and no ImmediateResponse"},
      modes=FULL_DUPLEX)

# -- the same value, written in another way

fault("json-needs-its-blanks", "EPP-DEST-01",
      "The model is looked for as text with a blank after the colon: JSON without it gets 400.",
      refusing(BAD_REQUEST, lambda _, body: b'"model":' in body and b'"model": ' not in body), modes=WHOLE_BODY)
fault("json-between-lines-refused", "EPP-DEST-01",
      "JSON with line breaks around it gets 400: its first byte and its last one are no braces.",
      refusing(BAD_REQUEST, lambda _, body: body.strip() != body and body.strip().startswith(b"{")),
      modes=WHOLE_BODY)
fault("types-in-capitals-refused", "EPP-DEST-01",
      "The media type is compared to the letter: one that is written with capitals gets 415.",
      refusing(UNSUPPORTED_MEDIA_TYPE, lambda c, _: _media_type(c) != _media_type(c).lower()))
