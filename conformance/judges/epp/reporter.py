"""The Request Attribute Reporter (RAR-*): what an EPP that claims it reports at the end of a response.

Scenarios state the numbers that must come, by the names of the suite's attributes (`conformance.evidence.reported`).
The value counts that is on the answer which ends the response: the last one to its body, or, where trailers end it,
that or the answer to them (RAR-OUT-06). Values on earlier answers are recorded (RAR-OUT-04), but where the end has none
the last of them is what the data plane is left with: metadata stays until it is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from conformance.evidence.episode import StartAttempt
from conformance.evidence.reported import Attribute, configured
from conformance.judges.episode_view import EpisodeView
from conformance.judges.epp import expectation
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed, recorded, violation
from conformance.judges.registry import judge_of_episode, judge_of_exchange
from conformance.reading.decoded_message import RESPONSE, DecodedMessage
from conformance.reading.stream_direction import StreamDirection
from conformance.reading.stream_state import StopKind
from conformance.verdict import Finding, Verdict
from ext_proc.headers import plain
from ext_proc.messages import Value
from ext_proc.protocol import DESTINATION

_STARTS = ("RAR-CFG-01", "RAR-CFG-02", "RAR-CFG-03", "RAR-CFG-05", "RAR-CFG-06")
_EVALUATION = tuple(f"RAR-EVAL-0{number}" for number in range(1, 9))
_OUTPUT = ("RAR-CFG-04", "RAR-OUT-01", "RAR-OUT-02", "RAR-OUT-03", "RAR-OUT-04", "RAR-OUT-06")


class ReportedValue(NamedTuple):
    """A value, and the answer that has it."""

    message: DecodedMessage
    value: Value

    @property
    def number(self) -> float | None:
        """The number; None if it is of another kind."""
        return self.value.number_value if self.value.WhichOneof("kind") == "number_value" else None


@judge_of_exchange(*_EVALUATION, *_OUTPUT)
def values(view: ExchangeView) -> Iterator[Finding]:
    """Each attribute of which the scenario says so is reported with its number, or not at all."""
    expected, response = view.expectation, view.stream.response
    if expected is None or not expected.report or not view.context.claims.reporter:
        return
    requirement = expectation.about(expected, view.facts)
    if requirement is None or any(one.partial for one in view.stream.answers):
        return
    attributes = configured(view.context.claims.attributes)
    for name, accepted in expected.report.items():
        if name not in attributes:
            continue
        if response.complete:
            yield from _value(view, requirement, attributes[name], accepted)
        elif response.headers is None and None not in accepted:
            yield from _left(view, requirement, attributes[name], accepted)


def _left(
    view: ExchangeView, requirement: str, attribute: Attribute, accepted: Sequence[float | None]
) -> Iterator[Finding]:
    """The finding about an EPP that closed the stream once the request was on its way, and so reports nothing."""
    stop = view.stream.stop
    if view.answer is AnswerKind.ENDPOINT and stop is not None and stop.kind is StopKind.CLOSED:
        shown = " / ".join(attribute.place)
        wanted = [f"{shown}: {_say(one)}" for one in accepted]
        at = stop.entry.seq if stop.entry is not None else None
        yield view.fail(requirement, wanted, f"{shown} is not reported: {stop.what} before the response", at=at)


def _value(
    view: ExchangeView, requirement: str, attribute: Attribute, accepted: Sequence[float | None]
) -> Iterator[Finding]:
    response = view.stream.response
    ends = _ends(response)
    found = [
        ReportedValue(one, value) for one in view.stream.answers if (value := _at(one, *attribute.place)) is not None
    ]
    last = next((one for one in reversed(found) if one.message in ends), None)
    shown = " / ".join(attribute.place)
    wanted = [f"{shown}: {_say(one)}" for one in accepted]
    if last is None and None not in accepted:
        yield _missing(view, requirement, attribute, wanted, found)
        return
    stays = last or next(reversed(found), None)
    if stays is not None and stays.number is None:
        actual = f"{shown}: {plain(stays.value)!r}, a {stays.value.WhichOneof('kind')}"
        yield view.fail("RAR-OUT-02", f"{shown} is a number_value", actual, at=stays.message)
        return
    number = stays.number if stays is not None else None
    if number not in accepted:
        at = stays.message if stays is not None else response.end
        yield view.fail(requirement, wanted, f"{shown}: {_say(number)}", at=at)
        return
    if view.facts.effect(requirement) == "info":
        yield recorded(requirement, f"{shown}: {_say(number)}", exchange=view.exchange)
    else:
        yield passed(requirement)
    if last is None:
        return
    yield from (passed(name) for name in ("RAR-OUT-01", "RAR-OUT-02"))
    if attribute.namespace is None:
        yield passed("RAR-CFG-04")
    if response.trailers is not None:
        yield passed("RAR-OUT-06")
    if len(found) > 1:
        yield recorded("RAR-OUT-04", f"{shown} is repeated: on {len(found)} answers", exchange=view.exchange)


def _missing(
    view: ExchangeView, requirement: str, attribute: Attribute, wanted: Sequence[str], early: Sequence[ReportedValue]
) -> Finding:
    """The finding where the end of the response has no value: whose it is depends on where else the value is."""
    shown = " / ".join(attribute.place)
    if early:
        one = early[-1].message
        own = "RAR-OUT-06" if view.stream.response.trailers is not None else "RAR-OUT-01"
        own = "RAR-OUT-03" if "RAR-OUT-03" in view.context.requirements else own
        return view.fail(own, f"{shown} on the answer that ends the response", "it is on an earlier one only", at=one)
    for one in view.stream.answers:
        if one.response is not None and attribute.name in one.response.dynamic_metadata.fields:
            return view.fail(requirement, wanted, f"{attribute.name} is in no namespace", at=one)
        for namespace in _namespaces(one):
            if _at(one, namespace, attribute.name) is not None and namespace != attribute.place[0]:
                own = "RAR-CFG-04" if attribute.namespace is None else requirement
                return view.fail(own, wanted, f"{attribute.name} is under {namespace}", at=one)
    return view.fail(requirement, wanted, f"{shown} is not reported", at=view.stream.response.end)


@judge_of_exchange("RAR-OUT-05")
def destination(view: ExchangeView) -> Iterator[Finding]:
    """What is reported with a response names no other destination."""
    if not view.context.claims.reporter or not view.destination.given:
        return
    namespace, reported = view.context.destination_namespace, False
    for one in view.stream.answers:
        if one.side == RESPONSE and namespace in _namespaces(one):
            reported = True
            value = _at(one, namespace, DESTINATION)
            if value is not None and plain(value) != view.destination.given:
                expected = f"the destination stays {view.destination.given}"
                yield view.fail("RAR-OUT-05", expected, f"with the response comes {plain(value)!r}", at=one)
                return
    if reported:
        yield passed("RAR-OUT-05")


@judge_of_episode(*_STARTS)
def starts(episode_view: EpisodeView) -> Iterator[Finding]:
    """The target starts with a right configuration, and not with a wrong one."""
    context = episode_view.context
    for entry, attempt in episode_view.episode.of(StartAttempt):
        wanted = context.expectations.get(attempt.exchange or "")
        requirement = expectation.about(wanted, episode_view) if wanted is not None else None
        if wanted is None or requirement is None or wanted.starts is None:
            if context.requirements:
                yield recorded(context.requirements[0], _started(attempt), exchange=attempt.exchange, seq=entry.seq)
        elif attempt.started is wanted.starts:
            if not wanted.starts:
                yield passed(requirement)
        else:
            refuses = "the target does not start" if not wanted.starts else "it starts with a right configuration"
            yield violation(
                requirement,
                refuses,
                _started(attempt),
                exchange=attempt.exchange,
                seq=entry.seq,
                verdict=Verdict.INCONCLUSIVE if wanted.starts else Verdict.FAIL,
                hint="" if not wanted.starts else "So nothing follows from its not starting with a wrong one.",
            )


def _started(attempt: StartAttempt) -> str:
    return "it starts" if attempt.started else f"it does not start: {attempt.output[-200:]}"


def _ends(response: StreamDirection) -> list[DecodedMessage]:
    """The answers that may carry the values."""
    trailers = response.trailers_answer
    return [*response.body_answers[-1:], *((trailers,) if trailers is not None else ())]


def _namespaces(message: DecodedMessage) -> list[str]:
    if message.response is None or not message.response.HasField("dynamic_metadata"):
        return []
    fields = message.response.dynamic_metadata.fields
    return sorted(name for name, value in fields.items() if value.WhichOneof("kind") == "struct_value")


def _at(message: DecodedMessage, namespace: str, name: str) -> Value | None:
    if namespace not in _namespaces(message):
        return None
    assert message.response is not None
    fields = message.response.dynamic_metadata.fields[namespace].struct_value.fields
    return fields.get(name)


def _say(number: float | None) -> str:
    return "left out" if number is None else f"{number:.17g}"
