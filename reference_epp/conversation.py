"""One ext_proc stream, which is one HTTP request: messages in, messages out, and no input or output.

The shape of the conversation depends on the body mode. The endpoint must be in the answer that lets the request go:

* FULL_DUPLEX_STREAMED: nothing is answered until the body is complete, because the choice depends on it. Then come the
  answer to the headers, with the endpoint, the body in pieces, and the answer to the trailers.
* BUFFERED: the headers are answered at once, without endpoint; the body's answer has it.
* STREAMED, BUFFERED_PARTIAL, NONE: the headers' answer is the only one that can set headers, so it has the endpoint.

Responses pass through, each piece at once. Every method whose answer another EPP might reasonably give differently is
public, so that a fault or a variant can override it.
"""

# ruff: noqa: ARG002  (seams have the arguments that an override may need)

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.epp import Action, BodyMode, Close, Epp
from reference_epp.names import DESTINATION, FALLBACK, OBJECTIVE, SERVED
from reference_epp.picker import NOT_FOUND, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, Decision, Picked, Refused, Request
from reference_epp.subset import Subset, read_subset

if TYPE_CHECKING:
    from ext_proc.messages import (
        CommonResponse,
        HttpBody,
        HttpHeaders,
        HttpTrailers,
        Metadata,
        ProcessingRequest,
        Struct,
    )

LOG = logging.getLogger(__name__)

BAD_REQUEST = 400
CONTENT_TOO_LARGE = 413
UNSUPPORTED_MEDIA_TYPE = 415

RETRY_AFTER = b"1"
"""Seconds after which a client may try again: a pool, or its load, has changed by then."""


class Conversation:
    """One stream. `number` counts the streams of this process, `connection` its connections, both from 1."""

    def __init__(self, epp: Epp, number: int = 1, connection: int = 1) -> None:
        self.epp = epp
        self.number = number
        self.connection = connection
        self.request_mode: BodyMode | None = None
        self.response_mode: BodyMode | None = None
        self.observed_only = False
        self.headers: dict[str, bytes] = {}
        """The request's headers, lower case; of repeated ones the last."""
        self.body: list[bytes] = []
        self.subset: Subset | None = None
        self.decision: Decision | None = None
        self.held = False
        """The request's headers wait for their answer."""
        self._first = True
        self._request_ended = False
        self._at: Endpoint | None = None
        """Where the request counts as being in flight."""
        self._served = False
        self._held_bytes = 0
        self.report = epp.report(epp.reporter) if epp.reporter.attributes else None

    # -- in and out

    def receive(self, message: ProcessingRequest) -> list[Action]:
        """Take the next message and say what to send now. A message of no known kind has no answer."""
        if self._first:
            self._first = False
            if refusal := self.configure(message):
                return [refusal]
        kind = message.WhichOneof("request")
        if kind is None:
            return []
        self.read_metadata(kind, message.metadata_context)
        actions = list(getattr(self, f"on_{kind}")(getattr(message, kind)))
        if self.report is not None and kind.startswith("response"):
            self.report.follow(message, actions)
        actions = [] if self.observed_only else self.emit(actions)
        if self.decision is not None and self.body:
            self._drop_body()
        return actions

    def emit(self, actions: list[Action]) -> list[Action]:
        """The last look at what leaves."""
        return actions

    @property
    def impatient(self) -> bool:
        """True if `patience_is_over` is to be called when nothing arrives for `Epp.patience` seconds."""
        return self.held and self.request_mode is None

    def patience_is_over(self) -> list[Action]:
        """No body came although the mode is unknown: the data plane waits for us. Go on as in STREAMED."""
        self.request_mode = self.response_mode = self.epp.habit.mode = BodyMode.STREAMED
        return self.emit(list(self.release()))

    def finished(self) -> None:
        """The stream is over, however it ended."""
        self._drop_body()
        if self._at is not None:
            self.epp.accounting.end(self._at)
            self._at = None

    def _drop_body(self) -> None:
        """The request is decided: nothing needs its body any more, and the response may take minutes."""
        self.body.clear()
        self.epp.bodies.held -= self._held_bytes
        self._held_bytes = 0

    # -- the data plane's side of it

    def configure(self, message: ProcessingRequest) -> Close | None:
        """Learn the body modes from the first message; close the stream if there is one that we do not know."""
        self.observed_only = message.observability_mode
        if not message.HasField("protocol_config"):
            self.response_mode = self.epp.habit.mode  # a request without a body would not show it
            return None
        config = message.protocol_config
        try:
            self.request_mode = BodyMode(config.request_body_mode)
            self.response_mode = BodyMode(config.response_body_mode)
        except ValueError as problem:
            return Close(9, f"body mode is not supported: {problem}")  # FAILED_PRECONDITION
        return None

    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        """Take what any message of the request says about the subset, and response headers about who served."""
        if kind.startswith("request"):
            if self.epp.version.subset:
                subset = read_subset(metadata, self.epp.subset_namespace)
                self.subset = self.subset if subset is None else subset
        elif kind == "response_headers" and self.epp.version.served:
            self.note_served(metadata)

    def note_served(self, metadata: Metadata) -> None:
        """Count the request at the endpoint that served it (section Destination Endpoint Served)."""
        if self.epp.metadata_namespace not in metadata.filter_metadata or self._at is None or self._served:
            return
        fields = metadata.filter_metadata[self.epp.metadata_namespace].fields
        try:
            served = parse_endpoint(fields[SERVED].string_value) if SERVED in fields else None
        except ValueError:
            return
        if served is not None:
            self.epp.accounting.move(self._at, served, known=served in self.epp.picker.pool.endpoints)
            self._at = served
            self._served = True

    # -- the request

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        """Answer at once where the mode or the missing body demands it; otherwise hold the headers for the body."""
        if self.held or self.decision is not None:
            return []
        self.headers = {entry.key.lower(): entry.raw_value or entry.value.encode() for entry in headers.headers.headers}
        self.held = True
        if headers.end_of_stream:
            self._request_ended = True
            return self.release()
        match self.request_mode:
            case BodyMode.FULL_DUPLEX_STREAMED | None:
                return []
            case BodyMode.BUFFERED:
                return [self.continue_headers()]
            case _:
                return self.release()

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        """Collect the body; let the request go when it is complete."""
        if self.request_mode is None:  # it came without waiting for an answer
            self.request_mode = self.response_mode = self.epp.habit.mode = BodyMode.FULL_DUPLEX_STREAMED
        match self.request_mode:
            case BodyMode.FULL_DUPLEX_STREAMED:
                if self._request_ended:
                    return []
                if refusal := self.collect(body.body):
                    return self.refuse(self.note_refusal(refusal))
                self._request_ended = body.end_of_stream
                return self.release_with_body(end_of_stream=True) if body.end_of_stream else []
            case BodyMode.BUFFERED if self.held:
                refusal = self.collect(body.body)
                return self.refuse(self.note_refusal(refusal)) if refusal else self.release_on_body()
            case _:
                return [self.continue_body("request")]

    def collect(self, piece: bytes) -> Refused | None:
        """Hold a piece of the body; refuse the request if it, or all bodies together, take too much memory."""
        bodies = self.epp.bodies
        self.body.append(piece)
        self._held_bytes += len(piece)
        bodies.held += len(piece)
        if self._held_bytes > bodies.each:
            return Refused(CONTENT_TOO_LARGE, f"request body has more than {bodies.each} bytes")
        if bodies.held > bodies.together:
            return Refused(SERVICE_UNAVAILABLE, "too many large requests at once")
        return None

    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        """Trailers end a body in full duplex, so the request goes with them."""
        actions: list[Action] = []
        if self.request_mode in (BodyMode.FULL_DUPLEX_STREAMED, None) and not self._request_ended:
            self._request_ended = True
            actions.extend(self.release_with_body(end_of_stream=False))
        elif self.request_mode is BodyMode.BUFFERED and self.held:  # the headers can't be changed any more
            actions.extend(self.refuse(self.note_refusal(Refused(BAD_REQUEST, "trailers came instead of a body"))))
        if not isinstance(self.decision, Refused):
            actions.append(answers.trailers_answer("request"))
        return actions

    # -- letting the request go

    def release(self) -> Iterable[Action]:
        """Decide, and answer the held headers."""
        decision = self.decide()
        return self.refuse(decision) if isinstance(decision, Refused) else [self.steer_headers(decision)]

    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        """Decide, and answer headers and body in full duplex."""
        body = b"".join(self.body)
        decision = self.decide(body)
        if isinstance(decision, Refused):
            return self.refuse(decision)
        return [self.steer_headers(decision), *self.stream("request", body, end_of_stream=end_of_stream)]

    def release_on_body(self) -> Iterable[Action]:
        """Decide, and answer a buffered body."""
        decision = self.decide(b"".join(self.body))
        return self.refuse(decision) if isinstance(decision, Refused) else [self.steer_body(decision)]

    def decide(self, body: bytes = b"") -> Decision:
        """Choose endpoints for the request or refuse it, and account for that."""
        decision = self.choose(body)
        if isinstance(decision, Refused):
            return self.note_refusal(decision)
        self.held = False
        self.decision = decision
        self._at = decision.endpoints[0]
        self.epp.accounting.begin(self._at)
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("picked", extra=self.about() | {"endpoints": self.destination(decision)})
        return decision

    def note_refusal(self, refusal: Refused) -> Refused:
        """The request gets no endpoint; account for that."""
        self.held = False
        self.decision = refusal
        self.epp.accounting.refuse(refusal.code)
        LOG.info("refused", extra=self.about() | {"code": refusal.code, "reason": refusal.reason})
        return refusal

    def about(self) -> dict[str, object]:
        """What every line of the log about this request has."""
        request_id = self.headers.get("x-request-id", b"").decode("utf-8", "replace")
        return {"stream": self.number, "request_id": request_id}

    def choose(self, body: bytes) -> Decision:
        """What to do with a request that has this body."""
        try:
            model = self.read_model(body)
        except ValueError as problem:
            return Refused(BAD_REQUEST, f"request body is not valid JSON: {problem}")
        if model is not None and self.epp.version.models and self.epp.models and not self.knows(model):
            return self.unknown_model(model)
        return self.epp.picker.pick(Request(model=model, body=body, subset=self.subset, sheddable=self.priority() < 0))

    def read_model(self, body: bytes) -> str | None:
        """The model that a JSON body names, or None. Raises `ValueError` for a body that is no JSON but says it is."""
        if not body:
            return None
        says_json = b"json" in self.headers.get("content-type", b"").lower()
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as problem:
            if says_json:
                raise ValueError(str(problem)) from None
            return None
        model = value.get("model") if isinstance(value, dict) else None
        return model if isinstance(model, str) else None

    def knows(self, model: str) -> bool:
        """Whether an InferenceModel has that name, to the letter."""
        return model in self.epp.models

    def priority(self) -> int:
        """The priority of the request's objective; 0 if it names none that we know."""
        return self.epp.objectives.get(self.headers.get(OBJECTIVE, b"").decode("utf-8", "replace"), 0)

    def unknown_model(self, model: str) -> Decision:
        """What becomes of a request whose model no InferenceModel names (section Matching An InferenceModel)."""
        return Refused(NOT_FOUND, f"no InferenceModel is named {model!r}")

    # -- answers of the request

    def steer_headers(self, decision: Picked) -> ProcessingResponse:
        """The answer to the headers that sends the request to the endpoints of `decision`."""
        answer, common = answers.headers_answer("request")
        self.steer(answer, common, decision)
        return answer

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        """The answer to a buffered body that does the same."""
        answer, common = answers.body_answer("request")
        self.steer(answer, common, decision)
        return answer

    def steer(self, answer: ProcessingResponse, common: CommonResponse, decision: Picked) -> None:
        """Say the destination in both ways (section Destination Endpoint): as a header and as dynamic metadata."""
        self.destination_header(common, decision)
        common.clear_route_cache = True
        self.destination_metadata(answer.dynamic_metadata, decision)

    def destination(self, decision: Picked) -> str:
        """The endpoints as the version writes them: one, or a list with the best first."""
        if not self.epp.version.lists:
            return decision.endpoints[0].text
        return ",".join(endpoint.text for endpoint in decision.endpoints)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        """Set the header, over whatever the client may have sent."""
        answers.set_header(common.header_mutation, DESTINATION, self.destination(decision).encode())

    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        """Set the same value under the metadata namespace; in 0.3.0 the second endpoint is the fallback."""
        fields = metadata.fields[self.epp.metadata_namespace].struct_value.fields
        fields[DESTINATION].string_value = self.destination(decision)
        if self.epp.version.fallback_key and len(decision.endpoints) > 1:
            fields[FALLBACK].string_value = decision.endpoints[1].text

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        """Answer with an ImmediateResponse, which ends the stream. What may pass soon comes with `retry-after`."""
        answer = answers.immediate_response(refusal.code, f"{refusal.reason}\n")
        if refusal.code in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE):
            answers.set_header(answer.immediate_response.headers, "retry-after", RETRY_AFTER)
        return [answer, Close()]

    def continue_headers(self) -> ProcessingResponse:
        """An answer to buffered request headers that only asks for the body."""
        return answers.headers_answer("request")[0]

    def continue_body(self, direction: Direction) -> ProcessingResponse:
        """An answer to a body outside full duplex that changes nothing."""
        return answers.body_answer(direction)[0]

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        """A body, or the next part of one, in pieces for full duplex; the last piece carries the end of the stream."""
        parts = list(answers.pieces(body))
        if not parts and end_of_stream:
            parts = [b""]
        last = len(parts) - 1
        return [
            answers.streamed_answer(direction, part, end_of_stream=end_of_stream and index == last)
            for index, part in enumerate(parts)
        ]

    # -- the response

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        """Let the response's headers pass."""
        return [answers.headers_answer("response")[0]]

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        """Let each piece of the response pass as soon as it is here. In an unknown mode it is full duplex."""
        if self.response_mode in (BodyMode.FULL_DUPLEX_STREAMED, None):
            return self.stream("response", body.body, end_of_stream=body.end_of_stream)
        return [self.continue_body("response")]

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        """Let the response's trailers pass."""
        return [answers.trailers_answer("response")]
