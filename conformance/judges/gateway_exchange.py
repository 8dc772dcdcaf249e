"""One HTTP request as a data plane dealt with it: what the client sent and got, whom it asked, whom it sent it to.

What judges of role data-plane look at. Several of them ask the same questions, each answered here in one place: what
the EPP answered, which attempts that allowed, whose response the client got.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.evidence.episode import BackendFact, EppConduct, GatewayFacts, PodConduct
from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.findings import violation
from conformance.judges.picker_stream import PATIENCE, PickerStream, picker_stream
from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import DecodedMessage
from conformance.reading.destination import sent_headers, values_of
from conformance.reading.endpoints import canonical, parse_list
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.protocol import DESTINATION
from ext_proc.record import (
    A_CONNECTION,
    STREAMS_END,
    ClientAborted,
    ClientResponse,
    Entry,
    ExchangeOpened,
    Headers,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
    header,
    values,
    whole_body,
)

KEPT = 8 * 1024
"""Bytes of a request's body that every gateway which retries can keep: HAProxy's buffer has 16 KiB for all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAttempt:
    """The request at a model server: `endpoint` in its one spelling; `response` is None while there is none.

    It arrived at entry `at` of the log, whose time is `t`.
    """

    at: int
    t: int
    endpoint: str
    request: UpstreamRequest
    response: UpstreamResponse | None

    @property
    def status(self) -> int | None:
        """The status of its response, if it is complete."""
        return self.response.status if self.response is not None and self.response.outcome == "response" else None

    @property
    def answered(self) -> int:
        """The time before which nothing of its response was sent."""
        return self.t + int(1e9 * self.response.delay) if self.response is not None else self.t

    @property
    def body(self) -> bytes | None:
        """The body of its response; None unless all of it is recorded."""
        return whole_body(self.response) if self.response is not None else None

    def __str__(self) -> str:
        if self.response is None:
            return self.endpoint
        return f"{self.endpoint} ({self.status or self.response.outcome})"


class GatewayExchange:
    """One HTTP request of an episode. `asked` are the streams in order of opening."""

    def __init__(self, facts: EpisodeFacts, exchange: str, conversations: Sequence[Conversation]) -> None:
        self.facts: EpisodeFacts = weakref.proxy(facts)  # as in `ExchangeView`
        self.exchange = exchange
        self._conversations = conversations

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that happened to the request, in order."""
        return self.facts.episode.exchanges[self.exchange]

    @cached_property
    def asked(self) -> tuple[PickerStream, ...]:
        """The ext_proc streams."""
        namespace = self.facts.context.destination_namespace
        return tuple(picker_stream(one, namespace) for one in self._conversations if one.stream is not None)

    # -- the HTTP sides ------------------------------------------------------------------------------------------------

    @cached_property
    def opened(self) -> ExchangeOpened | None:
        """The client's request; None where the HTTP sides were not observed."""
        return next((entry.event for entry in self.entries if isinstance(entry.event, ExchangeOpened)), None)

    @property
    def client_headers(self) -> Headers:
        """The headers of the client's request; none where they were not observed."""
        return self.opened.headers if self.opened is not None else ()

    @property
    def grpc(self) -> bool:
        """Whether the client speaks gRPC, whose errors have another form, with status 200."""
        return (header(self.client_headers, b"content-type") or b"").lower().startswith(b"application/grpc")

    @property
    def long(self) -> bool:
        """Whether the request's body is too long for each gateway to keep it for another attempt."""
        return self.opened is not None and (self.opened.size or 0) > KEPT

    @cached_property
    def attempts(self) -> tuple[UpstreamAttempt, ...]:
        """Every arrival at a model server, in order."""
        responses = [entry.event for entry in self.entries if isinstance(entry.event, UpstreamResponse)]
        return tuple(
            UpstreamAttempt(
                at=entry.seq,
                t=entry.t,
                endpoint=canonical(entry.event.endpoint),
                request=entry.event,
                response=next((one for one in responses if one.attempt == entry.event.attempt), None),
            )
            for entry in self.entries
            if isinstance(entry.event, UpstreamRequest)
        )

    @cached_property
    def response(self) -> tuple[int, ClientResponse] | None:
        """What the client got, and where; None if nothing."""
        found = [(entry.seq, entry.event) for entry in self.entries if isinstance(entry.event, ClientResponse)]
        return found[-1] if found else None

    @property
    def status(self) -> int | None:
        """The status that the client got."""
        return self.response[1].status if self.response is not None else None

    def sent_on(self, one: PickerStream) -> tuple[UpstreamAttempt, ...]:
        """The attempts for which the EPP of the stream `one` let the whole request go: until another was asked."""
        release = one.release
        if release is None or not one.passed:
            return ()
        until = min((other.at for other in self.asked if other.at > one.at), default=math.inf)
        return tuple(attempt for attempt in self.attempts if release.seq < attempt.at < until)

    @property
    def fails_open(self) -> bool:
        """Whether the gateway goes on without an EPP that can't be asked."""
        return self.gateway.failure_mode == "open"

    def left_behind(self, one: PickerStream) -> bool:
        """Whether the gateway did without this EPP after a time, as it may: it fails open, or sent nothing on. What the
        EPP said later comes too late."""
        sent_on = any(attempt.at > one.at for attempt in self.attempts)
        return one.given_up >= PATIENCE and (self.fails_open or not sent_on)

    def left_in_response(self, one: PickerStream) -> bool:
        """Whether the gateway fails open, and passed on a response of which this EPP said nothing for a time."""
        return self.fails_open and one.unanswered >= PATIENCE

    def unsteered(self, attempt: UpstreamAttempt) -> bool:
        """Whether the gateway fails open, and may have made an attempt without an EPP, as one could not be asked."""
        pool = self.backend_of(attempt.endpoint)
        asked = [one for one in self.asked if one.at < attempt.at and (pool is None or one.epp in ("", pool))]
        failed = any(one.unavailable or self.left_behind(one) for one in asked)
        down = bool(self.epps_down if pool is None else self.epps_down & {pool})
        return self.fails_open and (failed or down)

    @property
    def bodyless(self) -> bool:
        """Whether HTTP gives the response no body."""
        return self.status in (204, 304) or (self.opened is not None and self.opened.method == "HEAD")

    @property
    def cut(self) -> bool:
        """Whether the client's response ended too early. Without any framing the connection's end is its end."""
        return self.framed and self.response is not None and not self.response[1].complete

    @property
    def framed(self) -> bool:
        """Whether the response that the client got says where it ends."""
        fields = self.response[1].headers if self.response is not None else ()
        own = any(header(fields, name) is not None for name in (b"content-length", b"transfer-encoding"))
        return own or (self.opened is not None and self.opened.http == 2)

    def settled(self, attempt: UpstreamAttempt) -> bool:
        """Whether the response of an attempt is one to pass on, after which there is nothing to retry."""
        return attempt.status is not None and attempt.status < 500 and attempt.status not in self.gateway.retry_statuses

    @cached_property
    def answering(self) -> tuple[UpstreamAttempt, ...]:
        """The attempts of which the client may have got the response: the last, unless others were settled as well, as
        where requests are hedged. Then the bodies that the client got and the EPP was told say whose it is."""
        able = [one for one in self.attempts if one is self.attempts[-1] or self.settled(one)]
        if len(able) < 2:
            return tuple(able)
        shown = [one.stream.response for one in self.asked if one.stream.response.end is not None]
        seen = [_told(direction) for direction in shown]
        seen += [whole_body(self.response[1]) or b""] if self.response is not None else []
        own = [one for one in able if one.body in seen and not self.bodyless]
        return tuple(own or [one for one in able if one.status == self.status] or able[-1:])

    @property
    def final(self) -> UpstreamAttempt | None:
        """The attempt whose response the client got; None for a reply that is, or may be, the gateway's own."""
        last = self.answering[-1] if self.answering else None
        if last is None or last.status is None or self.response is None:
            return None
        own = self._maybe_own(last) if last.status == self.status else not self._restated(last, self.response[1])
        return None if own else last

    def _restated(self, last: UpstreamAttempt, got: ClientResponse) -> bool:
        """Whether the client surely got the `last` attempt's response, with another status.

        A reply of the gateway's own has another body; once a model server has answered, it is always an error. So a
        success is the `last` attempt's, unless it is another's, as where requests are hedged, or of gRPC.
        """
        if not got.complete or any(one.stream.immediate is not None for one in self.asked):
            return False
        if got.body and last.body == whole_body(got):
            return True
        came, went = last.status or 0, got.status or 0
        if went >= 300 or went in {one.status for one in self.attempts}:
            return False
        return (came >= 400 and not self.grpc) or (came < 300 and {came, went}.isdisjoint((203, 206)))

    def _maybe_own(self, last: UpstreamAttempt) -> bool:
        """Whether an error that the client got may be the gateway's, of the `last` attempt's status by chance."""
        if last.status is None or last.status < 400:
            return False
        got = whole_body(self.response[1]) if self.response is not None and not self.bodyless else None
        if got is not None and last.body not in (None, got):
            return not (self.settled(last) and self._shown(last))
        if not self.gateway.retries or last.status not in self.gateway.retry_statuses:
            return False
        texts = [text for one in self.asked for text in (one.destination.header, one.destination.metadata) if text]
        lists = [[canonical(item) for item in parse_list(text).endpoints] for text in texts]
        later = [item for own in lists if last.endpoint in own for item in own[own.index(last.endpoint) + 1 :]]
        return any(self.conduct(item) != "serves" for item in later)

    @property
    def failed(self) -> UpstreamAttempt | None:
        """The last attempt, if its response is an error that can't be the gateway's own, an EPP was told all of it, and
        the client got the status, be it with another body."""
        last = self.attempts[-1] if self.attempts else None
        if last is None or last.status != self.status or (last.status or 0) < 500 or not self._shown(last):
            return None
        return None if last.status in (502, 503, 504, *self.gateway.retry_statuses) else last

    def _shown(self, last: UpstreamAttempt) -> bool:
        """Whether the EPP that was asked last was told this response with its body, and let it go."""
        response = self.asked[-1].stream.response if self.asked else None
        if response is None or not response.complete or not last.body or self.grpc:
            return False
        told = values_of(sent_headers(response), ":status")
        return [*told] == [b"%d" % (last.status or 0)] and last.body == _told(response)

    @cached_property
    def aborted(self) -> bool:
        """Whether the client went away."""
        return any(isinstance(entry.event, ClientAborted) for entry in self.entries)

    @property
    def expired(self) -> bool:
        """Whether the client gave up waiting for its response."""
        complete = self.response is not None and self.response[1].complete
        waits = [entry.event for entry in self.entries if isinstance(entry.event, Wait)]
        others = (A_CONNECTION, STREAMS_END)
        return not complete and any(wait.outcome == "expired" and wait.what not in others for wait in waits)

    @cached_property
    def client_destinations(self) -> tuple[str, ...]:
        """The endpoints that the client itself named in destination headers."""
        texts = [value.decode("latin-1") for value in values(self.client_headers, DESTINATION.encode())]
        return tuple(one for text in texts for one in parse_list(text).endpoints)

    @property
    def subset(self) -> frozenset[str] | None:
        """The endpoints of which the gateway was told to make a subset hint; None if it was not."""
        asked = self.opened.note.get("subset") if self.opened is not None else None
        return frozenset(map(canonical, asked)) if asked is not None else None

    @property
    def subset_owed(self) -> bool:
        """Whether the client named endpoints of a subset by the header that, as the profile says, makes the hint."""
        return bool(self.subset and self.opened is not None and self.opened.note.get("subset_owed"))

    # -- what stands around it -----------------------------------------------------------------------------------------

    @property
    def gateway(self) -> GatewayFacts:
        """What its vendor says of the gateway."""
        return self.facts.context.gateway or GatewayFacts()

    @property
    def backends(self) -> tuple[BackendFact, ...]:
        """The gateway's pools, if it has several."""
        found = self.gateway.backends
        return found if len(found) > 1 else ()

    @property
    def splits(self) -> bool:
        """Whether the client asked for the route that splits requests over the pools."""
        name = self.gateway.split_header.lower().encode()
        return bool(name and self.backends) and header(self.client_headers, name) is not None

    def backend_of(self, endpoint: str) -> str | None:
        """The name of the EPP in whose pool the endpoint is, where there are several pools."""
        return next((one.epp for one in self.backends if endpoint in map(canonical, one.endpoints)), None)

    @cached_property
    def known(self) -> frozenset[str]:
        """The endpoints that the gateway knows; empty if that is not known."""
        own = [endpoint for backend in self.gateway.backends for endpoint in backend.endpoints]
        if not own:
            states = self.facts.episode.pool.between(self.entries[0].seq, self.entries[-1].seq)
            own = [endpoint for pods in states for pod in pods for endpoint in pod.endpoints if pod.eligible]
        return frozenset(map(canonical, own))

    def pool_of(self, epp: str) -> frozenset[str]:
        """The endpoints of the pool of an EPP; of one pool, or where it is not known whose they are, all that are."""
        own = [endpoint for backend in self.backends if backend.epp == epp for endpoint in backend.endpoints]
        return frozenset(map(canonical, own)) or self.known

    def conduct(self, endpoint: str) -> str:
        """How the pod at `endpoint` took this request: `serves`, `refuses`, `resets`, `503`."""
        names = {
            pod.name for _, state in self.facts.episode.pool.states for pod in state.pods
            if endpoint in map(canonical, pod.endpoints)
        }  # fmt: skip
        found = "serves"
        for entry, event in self.facts.episode.of(PodConduct):
            if entry.seq < self.entries[0].seq and event.pod in names:
                found = event.conduct
        return found

    @cached_property
    def epps_down(self) -> frozenset[str]:
        """The EPPs that did not listen when the request began."""
        found: dict[str, bool] = {}
        for entry, event in self.facts.episode.of(EppConduct):
            if entry.seq < self.entries[0].seq:
                found[event.epp] = event.up
        return frozenset(name for name, up in found.items() if not up)

    # -- findings ------------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """What came of the request, in words."""
        tried = f"it went to {', '.join(map(str, self.attempts))}" if self.attempts else "it went to no model server"
        if self.response is None:
            return f"{tried}, and the client got no response"
        details = f" ({self.response[1].details})" if self.response[1].details else ""
        cut = "" if self.response[1].complete else ", cut off"
        return f"{tried}, and the client got {self.status}{details}{cut}"

    def fail(
        self,
        requirement: str,
        expected: Sequence[str] | str,
        actual: str = "",
        *,
        at: DecodedMessage | UpstreamAttempt | int | None = None,
        hint: str = "",
        verdict: Verdict = Verdict.FAIL,
    ) -> Finding:
        """A violation in this exchange. `at` is where; default: at the client's response."""
        seq = at.seq if isinstance(at, DecodedMessage) else at.at if isinstance(at, UpstreamAttempt) else at
        if seq is None and self.response is not None:
            seq = self.response[0]
        return violation(
            requirement,
            expected,
            actual or self.describe(),
            exchange=self.exchange,
            seq=seq if seq is not None else self.entries[-1].seq,
            hint=hint,
            nature=Nature.CONDUCT,
            verdict=verdict,
        )


def _told(direction: StreamDirection) -> bytes:
    """The body that the EPP was told."""
    return b"".join(message.body for message in direction.bodies)
