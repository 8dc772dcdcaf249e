"""What judges look at: the scene (an episode in its context) and its cases (one per conversation).

A `ExchangeView` answers the questions that several judges ask, each in one place: how the request was answered, what it
demanded of the EPP, and what was peculiar about it.

Of `ExchangeOpened.note` these keys are read: `sheddable` (the request is marked so), `unknown_model` (no InferenceModel
has its model), `settling` (a poll made while the pool settles: judged for stream hygiene only).
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property

from conformance.evidence.episode import Context, Episode, Expectation, GaugesShown, HealthProbe, ProcessExited
from conformance.judges.epp.due_answer import NOTHING, DueAnswer, due_answer
from conformance.judges.gateway.exchange import GatewayExchange
from conformance.judges.rules import Rules
from conformance.judges.ruling import Nature, Ruling, violation
from conformance.reading.conversation import Conversation, conversations
from conformance.reading.decoded_message import DecodedMessage
from conformance.reading.destination import Destination, sent_headers, values_of
from conformance.reading.endpoints import parse_list
from conformance.reading.inference_request import is_ordinary
from conformance.reading.request_metadata import UNSET, ServedReport, SubsetHint, served_report, subset_hint
from conformance.reading.stream_state import StopKind, StreamState, follow
from conformance.verdict import Verdict
from ext_proc.record import Entry


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
    """One conversation of a scene."""

    def __init__(self, episode_view: EpisodeView, conversation: Conversation) -> None:
        self.episode_view: EpisodeView = weakref.proxy(
            episode_view
        )  # which holds this: in a circle both would outlive the judging
        self.conversation = conversation

    @property
    def exchange(self) -> str:
        """The exchange's id."""
        return self.conversation.exchange

    @property
    def context(self) -> Context:
        """The scene's context."""
        return self.episode_view.context

    @cached_property
    def stream(self) -> StreamState:
        """The course of the stream."""
        return follow(self.conversation)

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
        """The HTTP status of the ImmediateResponse; 0 if it has none."""
        message = self.stream.immediate
        if message is None or message.response is None:
            return 0
        return int(message.response.immediate_response.status.code)

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
                return f"ImmediateResponse {self.code}"
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
        """What the request demanded. Versions without the subset hint do not demand that it is kept to."""
        first = self.conversation.first
        if first is None or self.stream.request.headers is None:
            return NOTHING
        last = self.decided.seq if self.decided is not None else self.conversation.span[1]
        binds = self.hint.kind == "unset" or self.episode_view.applies("EPP-SUB-01")
        pool, gauges = self.episode_view.episode.pool, self.episode_view.gauges
        found = due_answer(pool, gauges, first.seq, last, self.hint if binds else UNSET)
        return found if binds else dataclasses.replace(found, endpoint_due=False)

    @property
    def sheddable(self) -> bool:
        """Whether the request is marked as one that may be dropped."""
        return bool(self.conversation.note.get("sheddable"))

    @property
    def unknown_model(self) -> bool:
        """Whether the request is for a model that nobody serves."""
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
        bodies = self.stream.request.bodies
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
        if body is None or direction.end is None:
            return Shape.UNSEEN
        return Shape.ORDINARY if is_ordinary(self.request_header(":path") or b"", body) else Shape.ODD

    @property
    def incomprehensible(self) -> bool:
        """Whether nobody need understand the request (AMB-08); a POST of an empty body is as odd as any body."""
        opened = self.conversation.opened
        empty = self.shape is Shape.BODYLESS and opened is not None and opened.method == "POST"
        return empty or self.shape in (Shape.ODD, Shape.UNSEEN)

    @cached_property
    def served(self) -> ServedReport | None:
        """What the response's messages said about the endpoint that served."""
        return served_report(self.conversation, self.context.destination_namespace)

    def request_header(self, name: str) -> bytes | None:
        """The last value of a header that the client sent; None if there is none."""
        return _last(values_of(sent_headers(self.stream.request), name))

    def response_header(self, name: str) -> bytes | None:
        """The last value of a header of the response; None if there is none."""
        return _last(values_of(sent_headers(self.stream.response), name))

    # -- rulings -------------------------------------------------------------------------------------------------------

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
    ) -> Ruling:
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
    ) -> Ruling:
        """Something that is not right, and does not count."""
        return self.fail(requirement, expected, actual, at=at, hint=hint, nature=nature, verdict=Verdict.WARN)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The process of the target ended by itself. `suspects`: the exchanges that may have done it."""

    entry: Entry
    exited: ProcessExited
    suspects: tuple[ExchangeView, ...]


class EpisodeView:
    """An episode in its context, under a catalogue's rules."""

    def __init__(self, episode: Episode, context: Context, rules: Rules) -> None:
        self.episode = episode
        self.context = context
        self.rules = rules
        self._effects: dict[str, str | None] = {}

    @cached_property
    def conversations(self) -> tuple[Conversation, ...]:
        """Every conversation, in order."""
        return conversations(self.episode)

    @cached_property
    def exchanges(self) -> tuple[ExchangeView, ...]:
        """Every conversation that the data plane wanted answers in, in order."""
        return tuple([ExchangeView(self, one) for one in self.conversations if not one.observed_only])

    @cached_property
    def exchanges_but_polls(self) -> tuple[ExchangeView, ...]:
        """The same without the polls made while the pool settles."""
        return tuple([view for view in self.exchanges if not view.settling])

    @cached_property
    def gateway_exchanges(self) -> tuple[GatewayExchange, ...]:
        """Every HTTP request as the data plane dealt with it, in order."""
        by_exchange: dict[str, list[Conversation]] = {}
        for one in self.conversations:
            by_exchange.setdefault(one.exchange, []).append(one)
        return tuple(GatewayExchange(self, name, found) for name, found in by_exchange.items())

    def effect(self, requirement: str) -> str | None:
        """What a violation counts for in this version; None where the requirement does not apply."""
        if requirement not in self._effects:
            self._effects[requirement] = self.rules.effect(requirement, self.context.version)
        return self._effects[requirement]

    def counts(self, requirement: str) -> bool:
        """Whether a violation fails in this version."""
        return self.effect(requirement) == "fail"

    def applies(self, requirement: str) -> bool:
        """Whether it is part of this version."""
        return self.effect(requirement) is not None

    @cached_property
    def gauges(self) -> tuple[tuple[Entry, GaugesShown], ...]:
        """What the pods' metrics showed, in order."""
        return tuple(self.episode.of(GaugesShown))

    @cached_property
    def _order(self) -> dict[int, int]:
        return {id(view): index for index, view in enumerate(self.exchanges)}

    @cached_property
    def first_abort(self) -> int:
        """The place among the cases of the first whose client went away; beyond the last if none did."""
        aborted = (index for index, view in enumerate(self.exchanges) if view.conversation.aborted is not None)
        return next(aborted, len(self.exchanges))

    def follows_an_abort(self, view: ExchangeView) -> bool:
        """Whether an exchange that had begun before this one was aborted."""
        return self.first_abort < self._order[id(view)]

    @cached_property
    def crash(self) -> Crash | None:
        """The first time that the process of the target ended by itself."""
        for entry, exited in self.episode.of(ProcessExited):
            if not exited.asked:
                return Crash(entry=entry, exited=exited, suspects=self._in_flight(entry.seq))
        return None

    def _in_flight(self, exit_seq: int) -> tuple[ExchangeView, ...]:
        """The cases that were open when the first stream was lost; if none was lost, the last begun before the exit."""
        begun = [view for view in self.exchanges if view.conversation.span[0] < exit_seq]
        lost = [end[0].seq for view in begun if (end := view.conversation.end) and end[1].how == "lost"]
        if not lost:
            return tuple(begun[-1:])
        return tuple(view for view in begun if view.conversation.span[0] <= min(lost) <= view.conversation.span[1])

    def explains_end(self, view: ExchangeView) -> bool:
        """Whether a stream ended because the process did: then it is not a finding of its own."""
        stop = view.stream.stop
        return self.crash is not None and stop is not None and stop.kind is not StopKind.CLOSED

    def promised_ready(self, view: ExchangeView) -> bool:
        """Whether the last thing before this exchange was a check that said readiness is SERVING."""
        start = view.conversation.span[0]
        earlier = [(entry.seq, probe) for entry, probe in self.episode.of(HealthProbe) if entry.seq < start]
        if not earlier or earlier[-1][1].service != "readiness" or earlier[-1][1].serving != "SERVING":
            return False
        return not any(earlier[-1][0] < other.conversation.span[0] for other in self.before(view))

    def before(self, view: ExchangeView) -> Iterator[ExchangeView]:
        """The cases that had begun before `case` did, latest first; without polls of a settling pool."""
        return (one for one in reversed(self.exchanges[: self._order[id(view)]]) if not one.settling)

    def overlapping(self, view: ExchangeView) -> tuple[ExchangeView, ...]:
        """The other cases whose streams were open at the same time."""
        first, last = view.conversation.span
        return tuple(
            one
            for one in self.exchanges
            if one is not view and one.conversation.span[0] <= last and one.conversation.span[1] >= first
        )


def _last(values: Sequence[bytes]) -> bytes | None:
    return values[-1] if values else None
