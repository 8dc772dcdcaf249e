"""Faults of the response's path."""
# fmt: off

from __future__ import annotations

import os
from typing import Any

from ext_proc.messages import HttpBody
from reference_epp import answers
from reference_epp.changes import changed, closing, header, nothing, response_headers
from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, FULL_DUPLEX, SILENT, STREAMED, fault
from reference_epp.picker import Refused
from reference_epp.variants.streaming import HoldsJsonResponses

# -- a response before the request is complete

fault("early-response-unanswered", "ENV-23",
      "Response headers that come before the request was answered get no answer.",
      changed(Conversation, on_response_headers=nothing), when=lambda c: c.decision is None,
      also=SILENT | {"ENV-03": "the body of such a response is answered without them"})
fault("early-response-is-an-error", "ENV-23",
      "Response headers that come before the request was answered end the stream with a gRPC error.",
      changed(Conversation, on_response_headers=closing), when=lambda c: c.decision is None, also=ENDED)
fault("response-first-is-fatal", "ENV-23",
      "A response to a request that the EPP never saw ends the process: its state is not found.",
      changed(Conversation, on_response_headers=lambda *_: os._exit(70)), when=lambda c: not c.headers, also=DEAD)
fault("first-message-taken-for-a-request", "ENV-01",
      "The first message of a stream is answered as a request, also when it is a response.",
      changed(Conversation, on_response_headers=lambda *_: [answers.headers_answer("request")[0]]),
      when=lambda c: not c.headers)


@fault("trailers-after-headers-unanswered", "ENV-06", "Response trailers are answered only after a body.", also=SILENT)
class TrailersAfterHeadersUnanswered(Conversation):
    has_body = False

    def on_response_body(self, body: Any) -> Any:
        self.has_body = True
        return super().on_response_body(body)

    def on_response_trailers(self, trailers: Any) -> Any:
        return super().on_response_trailers(trailers) if self.has_body else []


# -- passing through


def _set(mutation: Any, name: str, value: bytes) -> None:
    answers.set_header(mutation, name, value)


def _again_in_value(_: Any, headers: Any, mutation: Any) -> None:
    option = mutation.set_headers.add()
    option.header.key, option.header.value = ":status", header(headers, ":status").decode()


def _unknown(headers: Any) -> list[str]:
    return sorted({one.key for one in headers.headers.headers if not one.key.startswith((":", "content-"))})


def _from_a_map(_: Any, headers: Any, mutation: Any) -> None:
    last = {one.key: one.raw_value or one.value.encode() for one in headers.headers.headers}
    for name, value in last.items():
        if not name.startswith(":"):
            _set(mutation, name, value)


def _joined(_: Any, headers: Any, mutation: Any) -> None:
    cookies = [one.raw_value for one in headers.headers.headers if one.key == "set-cookie"]
    if len(cookies) > 1:
        _set(mutation, "set-cookie", b", ".join(cookies))


def _of_events(_: Any, headers: Any, mutation: Any) -> None:
    if any(b"event-stream" in (one.raw_value or one.value.encode()) for one in headers.headers.headers):
        mutation.remove_headers.extend(_unknown(headers))


def _trailers_removed(removed: Any) -> type[Conversation]:
    """Removes those of the response's trailers for whose name `removed` is true."""
    def act(_: Any, __: Any, trailers: Any) -> list[Any]:
        answer = answers.trailers_answer("response")
        names = [one.key for one in trailers.trailers.headers if removed(one.key)]
        answer.response_trailers.header_mutation.remove_headers.extend(names)
        return [answer]

    return changed(Conversation, on_response_trailers=act)


fault("responses-are-an-error", "ENV-16",
      "The headers of any response end the stream with a gRPC error.",
      changed(Conversation, on_response_headers=closing), also={"ENV-23": "so do those that come early"})
fault("status-overwritten", "ENV-24",
      "The status of every response is set to 200.",
      response_headers(lambda _, __, mutation: _set(mutation, ":status", b"200")))
fault("status-set-again-in-value", "ENV-11",
      "The status of a response is set to what it is, in the field `value`, which Envoy does not read.",
      response_headers(_again_in_value), effect="warn")
fault("content-encoding-removed", "ENV-24",
      "The header that says how a response is compressed is removed; the body stays as it is.",
      response_headers(lambda _, __, mutation: mutation.remove_headers.append("content-encoding")))
fault("grpc-status-removed", "ENV-24",
      "The trailer that says how a gRPC call went is removed.",
      _trailers_removed(lambda name: name == "grpc-status"), modes=FULL_DUPLEX)
fault("response-trailers-removed", "ENV-24",
      "All response trailers but the status of a gRPC call are removed.",
      _trailers_removed(lambda name: name != "grpc-status"), effect="warn")
fault("response-headers-removed", "ENV-24",
      "Response headers that are not on a list of known ones are removed: retry-after and cookies, too.",
      response_headers(lambda _, headers, mutation: mutation.remove_headers.extend(_unknown(headers))), effect="warn")
fault("event-headers-removed", "ENV-24",
      "Only those headers of an event stream that describe its body are left.",
      response_headers(_of_events), effect="warn")
fault("response-headers-from-a-map", "ENV-24",
      "All response headers are set again from a map: only the last of repeated ones is left.",
      response_headers(_from_a_map), effect="warn")
fault("cookies-joined", "ENV-24",
      "The cookies of a response are put into one line, where no client finds the second.",
      response_headers(_joined), effect="warn")
fault("response-broken-off", "ENV-24",
      "A part of a response that is not its last is answered with an ImmediateResponse with 500.",
      changed(Conversation, on_response_body=lambda up, c, body:
              up(body) if body.end_of_stream else c.refuse(Refused(500, "enough"))), modes=(*FULL_DUPLEX, *STREAMED))
fault("upstream-errors-replaced", "ENV-24",
      "A response with status 500 or above is replaced by a 502 of our own.",
      changed(Conversation, on_response_headers=lambda up, c, headers: c.refuse(Refused(502, "bad gateway"))
              if header(headers, ":status") >= b"500" else up(headers)))

# -- how a body ends


def _first_piece_last(up: Any, _: Any, direction: Any, body: bytes, *, end_of_stream: bool) -> Any:
    if direction == "request" or not body:
        return up(direction, body, end_of_stream=end_of_stream)
    return [answers.streamed_answer(direction, part, end_of_stream=end_of_stream and not index)
            for index, part in enumerate(answers.pieces(body))]


def _last_piece_lost(up: Any, c: Any, body: Any) -> Any:
    return up(HttpBody(end_of_stream=True) if c.collecting and body.end_of_stream else body)


fault("empty-responses-never-end", "ENV-16",
      "A JSON response is collected and cut into pieces: an empty one has none, and nothing ends it.",
      changed(HoldsJsonResponses, stream=lambda up, c, direction, body, end_of_stream: []
              if direction == "response" and c.collecting and not body
              else up(direction, body, end_of_stream=end_of_stream)), modes=FULL_DUPLEX)
fault("last-piece-of-json-responses-lost", "ENV-09",
      "The bytes in the message with the end of a collected JSON response are lost.",
      changed(HoldsJsonResponses, on_response_body=_last_piece_lost), modes=FULL_DUPLEX)
fault("end-of-stream-with-the-first-piece-of-a-response", "ENV-05",
      "The end of stream of a response message is on the first piece that it is cut into, and on no other.",
      changed(Conversation, stream=_first_piece_last), modes=FULL_DUPLEX)
