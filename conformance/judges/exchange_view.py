"""What judges of an exchange look at: one conversation of an episode, and the questions that several judges ask of it.

How the request was answered, what answer was due, what the request looked like, and how it stands to the other
exchanges of the episode are each answered here in one place.

Of `ExchangeOpened.note` these keys are read: `sheddable` (the request is marked so), `unknown_model` (no InferenceModel
has its model), `settling` (a poll made while the pool settles: judged for stream hygiene only).
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property

from conformance.evidence.episode import Context, Expectation, HealthProbe
from conformance.judges.due_answer import NOTHING, DueAnswer, due_answer
from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.findings import violation
from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import REQUEST_AT_FAULT, STREAMED_REPLY, DecodedMessage
from conformance.reading.destination import Destination, sent_headers, values_of
from conformance.reading.endpoints import parse_list
from conformance.reading.inference_request import is_inference, is_json, is_malformed, is_ordinary, may_become_ordinary
from conformance.reading.request_metadata import UNSET, ServedReport, SubsetHint, served_report, subset_hint
from conformance.reading.stream_state import StopKind, StreamState, follow
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.headers import is_grpc
from ext_proc.protocol import READINESS


class AnswerKind(StrEnum):
    """How a request was answered."""

    ENDPOINT = "endpoint"
    UNSTEERED = "released without a destination"
    IMMEDIATE = "ImmediateResponse"
    ENDED = "the stream ended without an answer"
    SILENT = "no answer"
    OFFENDED = "an answer that is not acceptable"
    NOT_ASKED = "there was no request"
    UNSEEN = "not observed"


class Shape(StrEnum):
    """What a request looked like."""

    BODYLESS = "without a body"
    ORDINARY = "an inference request"
    ODD = "odd"
    UNSEEN = "not observed"


class ExchangeView:
    """One conversation of an episode."""

    def __init__(
        self, facts: EpisodeFacts, conversation: Conversation, siblings: Exchanges, stream: StreamState | None = None
    ) -> None:
        """`stream`: the course of the stream, if it is known already."""
        self.facts = facts
        self.conversation = conversation
        self.stream = stream or follow(conversation)
        self._siblings = siblings

    @property
    def exchange(self) -> str:
        """The exchange's id."""
        return self.conversation.exchange

    @property
    def context(self) -> Context:
        """The episode's context."""
        return self.facts.context

    @cached_property
    def behind(self) -> ExchangeView | None:
        """The exchange as it can still be read behind an answer that is not acceptable; None if there is none."""
        if self.answer is not AnswerKind.OFFENDED:
            return None
        return ExchangeView(self.facts, self.conversation, self._siblings, follow(self.conversation, behind=True))

    @cached_property
    def destination(self) -> Destination:
        """The destination that the answers gave."""
        return Destination(
            conversation=self.conversation, stream=self.stream, namespace=self.context.destination_namespace
        )

    @cached_property
    def expectation(self) -> Expectation | None:
        """What the scenario says must come back."""
        return self.context.expectations.get(self.exchange)

    # -- the answer ----------------------------------------------------------------------------------------------------

    @cached_property
    def answer(self) -> AnswerKind:
        """How the request was answered."""
        stream = self.stream
        if stream.request.headers is None:
            return AnswerKind.NOT_ASKED
        decision = stream.decision
        if decision is not None and decision is stream.immediate:
            return AnswerKind.UNSEEN if decision.partial else AnswerKind.IMMEDIATE
        if decision is not None:
            if not self.destination.observed:
                return AnswerKind.UNSEEN
            if self.destination.header or self.destination.metadata_entries or self.destination.late_settings:
                return AnswerKind.ENDPOINT
            if stream.offence is not None:
                return AnswerKind.OFFENDED
            return AnswerKind.UNSEEN if stream.request.unclear else AnswerKind.UNSTEERED
        if stream.offence is not None:
            return AnswerKind.OFFENDED
        match stream.stop.kind if stream.stop else None:
            case StopKind.HANG:
                return AnswerKind.SILENT
            case StopKind.CLOSED | StopKind.STATUS | StopKind.RESET | StopKind.LOST | StopKind.REFUSED:
                return AnswerKind.ENDED
            case _:
                return AnswerKind.UNSEEN

    @property
    def code(self) -> int:
        """The HTTP status of the ImmediateResponse, streamed or not; 0 if it has none that Envoy reads (ENV-11)."""
        message = self.stream.immediate
        if message is None or message.response is None:
            return 0
        if message.what == STREAMED_REPLY:
            headers = message.response.streamed_immediate_response.headers_response.headers.headers
            status = next((one.raw_value for one in headers if one.key == ":status"), b"")
            return int(status) if len(status) == 3 and status.isdigit() else 0
        return int(message.response.immediate_response.status.code)

    @property
    def family(self) -> int:
        """The first digit of that status, 4 where the request is at fault. A client of gRPC gets 200 whatever the
        status, so to that the gRPC status beside 200 refuses as well."""
        messages = self.conversation.messages if self.code == 200 else ()
        replies = (one for one in messages if one is self.stream.immediate or one.what == STREAMED_REPLY)
        status = next(filter(None, (one.grpc_status for one in replies)), 0)
        if status and is_grpc(self.request_header("content-type")):
            return 4 if status in REQUEST_AT_FAULT else 5
        return self.code // 100

    @property
    def refused(self) -> int:
        """The code of the ImmediateResponse by which the request was answered, or an endpoint taken back before there
        was a response (ENV-15); 0 if there is none."""
        taken_back = self.answer is AnswerKind.ENDPOINT and self.stream.response.headers is None
        return self.code if taken_back or self.answer is AnswerKind.IMMEDIATE else 0

    @property
    def ended_in_error(self) -> bool:
        """Whether the stream ended in a gRPC error instead of an answer: with a status, or reset, for which gRPC has a
        status by each HTTP/2 code."""
        stop = self.stream.stop
        return self.answer is AnswerKind.ENDED and stop is not None and stop.kind in (StopKind.STATUS, StopKind.RESET)

    @property
    def decided(self) -> DecodedMessage | None:
        """The message that decided."""
        return self.stream.decision

    @cached_property
    def picks(self) -> tuple[str, ...]:
        """The well-formed endpoints given, in canonical spelling and order."""
        given = self.destination.given
        return parse_list(given).endpoints if given else ()

    def describe(self) -> str:
        """The answer in words."""
        match self.answer:
            case AnswerKind.IMMEDIATE:
                streamed = self.stream.immediate is not None and self.stream.immediate.what == STREAMED_REPLY
                return f"{'Streamed' if streamed else ''}ImmediateResponse {self.code}"
            case AnswerKind.ENDPOINT:
                return f"endpoint {self.destination.given}"
            case AnswerKind.ENDED | AnswerKind.SILENT:
                return self.stream.stop.what if self.stream.stop else self.answer.value
            case _:
                return self.answer.value

    # -- the request ---------------------------------------------------------------------------------------------------

    @cached_property
    def hint(self) -> SubsetHint:
        """The subset hint."""
        return subset_hint(self.conversation, self.context.subset_namespace)

    @cached_property
    def due(self) -> DueAnswer:
        """The answer that the request demanded. Versions without the subset hint do not demand that it is kept to."""
        if self.hint.kind == "unset" or self.facts.applies("EPP-SUB-01"):
            return self._due(self.hint)
        return dataclasses.replace(self._due(UNSET), endpoint_due=False)

    def _due(self, hint: SubsetHint) -> DueAnswer:
        first = self.conversation.first
        if first is None or self.stream.request.headers is None:
            return NOTHING
        last = self.decided.seq if self.decided is not None else self.conversation.span[1]
        return due_answer(self.facts.episode.pool, self.facts.gauges, first.seq, last, hint)

    @property
    def hint_leaves_nothing(self) -> bool:
        """Whether who keeps to the hint may have no endpoint, also in a version that does not demand it."""
        return self._due(self.hint).error_possible

    @property
    def sheddable(self) -> bool:
        """Whether the request is marked as one that may be dropped."""
        return bool(self.conversation.note.get("sheddable"))

    @property
    def unknown_model(self) -> bool:
        """Whether the request is for a model that no server has."""
        return bool(self.conversation.note.get("unknown_model"))

    @property
    def settling(self) -> bool:
        """Whether this is a poll made while the pool settles."""
        return bool(self.conversation.note.get("settling"))

    @property
    def bodyless(self) -> bool:
        """Whether the request ended with its headers."""
        return self.stream.request.header_only

    @cached_property
    def request_body(self) -> bytes | None:
        """The request body as far as it was sent to the EPP; None if some of it was not kept."""
        bodies = self.stream.request.due_bodies
        return None if any(message.partial for message in bodies) else b"".join(message.body for message in bodies)

    @cached_property
    def shape(self) -> Shape:
        """Whether the request is one that an EPP can be expected to understand (reading AMB-08)."""
        direction = self.stream.request
        if direction.headers is None or direction.headers.partial:
            return Shape.UNSEEN
        if self.bodyless:
            return Shape.BODYLESS
        if self.conversation.request_mode == "NONE":
            return Shape.ORDINARY
        body = self.request_body
        if body is None or not direction.whole:
            return Shape.UNSEEN
        return Shape.ORDINARY if is_ordinary(self.request_header(":path") or b"", body) else Shape.ODD

    @property
    def incomprehensible(self) -> bool:
        """Whether an EPP may fail to understand the request (AMB-08): its path or body is odd, it does not say that the
        body is JSON, or a POST has none. The beginning of a body that may become ordinary is no reason to."""
        empty = self.shape is Shape.BODYLESS and self.request_header(":method") == b"POST"
        odd = self.shape is Shape.ODD or (self.shape is Shape.UNSEEN and not self._begins_well)
        untyped = not self.bodyless and not is_json(self.request_header("content-type") or b"")
        return empty or odd or untyped or is_malformed(self.request_header(":path") or b"")

    @property
    def misread(self) -> bool:
        """The same of what it was shown, where it does not complain of headers: none of a body is no reason to."""
        if self.cut_short and self.request_body == b"" and self.announced != 0:
            return is_malformed(self.request_header(":path") or b"")
        return self.incomprehensible

    @cached_property
    def _begins_well(self) -> bool:
        """Whether what was shown of a body may be the beginning of an ordinary one, or all of it."""
        body, path = self.request_body if self.cut_short else None, self.request_header(":path") or b""
        whole = self.announced is not None and len(body or b"") >= self.announced
        return bool(body) and (is_ordinary if whole else may_become_ordinary)(path, body or b"")

    @property
    def announced(self) -> int | None:
        """The length of the request's body as its headers have it."""
        said = self.request_header("content-length") or b""
        return int(said) if said.isdigit() and len(said) < 20 else None

    @property
    def cut_short(self) -> bool:
        """Whether the stream has only the beginning of an inference request in JSON: how much of the rest the EPP was
        sent before its answer came is a matter of time."""
        if self.shape is not Shape.UNSEEN or self.stream.request.whole or self.request_header("content-encoding"):
            return False
        return is_inference(self.request_header(":path") or b"") and is_json(self.request_header("content-type") or b"")

    @cached_property
    def served(self) -> ServedReport | None:
        """What the response's messages told about the endpoint that served."""
        return served_report(self.conversation, self.context.destination_namespace)

    def request_header(self, name: str) -> bytes | None:
        """The last value of a header that the client sent; None if there is none."""
        return _last(values_of(sent_headers(self.stream.request), name))

    def response_header(self, name: str) -> bytes | None:
        """The last value of a header of the response; None if there is none."""
        return _last(values_of(sent_headers(self.stream.response), name))

    # -- the other exchanges -------------------------------------------------------------------------------------------

    @property
    def siblings(self) -> tuple[ExchangeView, ...]:
        """Every exchange of the episode in order, this one included."""
        return self._siblings.views

    def before(self) -> Iterator[ExchangeView]:
        """The exchanges that had begun before this one did, latest first; without polls of a settling pool."""
        return (one for one in reversed(self.siblings[: self._place]) if not one.settling)

    @property
    def _place(self) -> int:
        return self._siblings.place[id(self.conversation)]

    @property
    def overlapping(self) -> tuple[ExchangeView, ...]:
        """The other exchanges whose streams were open at the same time."""
        first, last = self.conversation.span
        spans = ((one, one.conversation.span) for one in self.siblings if one.conversation is not self.conversation)
        return tuple(one for one, (begun, ended) in spans if begun <= last and ended >= first)

    @property
    def follows_an_abort(self) -> bool:
        """Whether an exchange that had begun before this one was aborted."""
        return self._siblings.first_abort < self._place

    @property
    def ended_by_exit(self) -> bool:
        """Whether the stream ended because the target's process did: then the exit is the finding."""
        stop = self.stream.stop
        return self.facts.exit is not None and stop is not None and stop.kind is not StopKind.CLOSED

    @property
    def promised_ready(self) -> bool:
        """Whether the last thing before this exchange was a check that said readiness is SERVING."""
        start = self.conversation.span[0]
        earlier = [(entry.seq, probe) for entry, probe in self.facts.episode.of(HealthProbe) if entry.seq < start]
        if not earlier or earlier[-1][1].service != READINESS or earlier[-1][1].serving != "SERVING":
            return False
        return not any(earlier[-1][0] < other.conversation.span[0] for other in self.before())

    # -- findings ------------------------------------------------------------------------------------------------------

    def fail(
        self,
        requirement: str,
        expected: Sequence[str] | str,
        actual: str = "",
        *,
        at: DecodedMessage | int | None = None,
        hint: str = "",
        nature: Nature = Nature.CONDUCT,
        verdict: Verdict = Verdict.FAIL,
    ) -> Finding:
        """A violation in this exchange. `at` is the message or entry at fault; default: the one that decided."""
        where = at if at is not None else self.decided
        seq = where.seq if isinstance(where, DecodedMessage) else where
        actual = actual or self.describe()
        return violation(
            requirement, expected, actual, exchange=self.exchange, seq=seq, hint=hint, nature=nature, verdict=verdict
        )

    def warn(
        self,
        requirement: str,
        expected: Sequence[str] | str,
        actual: str = "",
        *,
        at: DecodedMessage | int | None = None,
        hint: str = "",
        nature: Nature = Nature.CONDUCT,
    ) -> Finding:
        """Something that is not right, and does not count."""
        return self.fail(requirement, expected, actual, at=at, hint=hint, nature=nature, verdict=Verdict.WARN)


class Exchanges:
    """The views of an episode's conversations in order, without those in observability mode."""

    def __init__(self, facts: EpisodeFacts) -> None:
        asked = [one for one in facts.conversations if not one.observed_only]
        # Views hold proxies: a cycle of references would outlive the judging.
        known, this = weakref.proxy(facts), weakref.proxy(self)
        self.views = tuple([ExchangeView(known, one, this) for one in asked])
        self.place = {id(one): index for index, one in enumerate(asked)}

    @cached_property
    def first_abort(self) -> int:
        """The place of the first whose client went away; beyond the last if none did."""
        aborted = (index for index, view in enumerate(self.views) if view.conversation.aborted is not None)
        return next(aborted, len(self.views))


def _last(values: Sequence[bytes]) -> bytes | None:
    return values[-1] if values else None
