"""A recorded conversation, sent again: to any target, judged by today's rules, compared in a normal form."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Literal

from conformance.errors import UsageError
from conformance.evidence.episode import Context, Episode, Expectation
from conformance.judges import Rules, judge
from conformance.planning.fixed import fixed_pool
from conformance.printable import plural
from conformance.reading.conversation import Conversation
from conformance.reading.normal_form import kept_whole, normal_form
from conformance.reading.recorded import Recorded, recorded_exchange
from conformance.run.epp.runner import EppRunner
from conformance.run.epp.single import Single, send_one
from conformance.scenario.pool import Pool
from conformance.scenario.references import resolve
from conformance.scenario.schema import Exchange
from conformance.strict_yaml import dump, load
from conformance.verdict import Finding, Verdict

Outcome = Literal["same", "different", "still failing", "fails now", "fixed"]
"""`same` and `different`: no rule is broken, then and now; the others say what became of the rules that are."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A conversation of a record that can be sent again, and what today's rules say of it."""

    conversation: Conversation
    context: Context
    recorded: Recorded
    broken: tuple[str, ...]
    """The requirements that it breaks."""

    @property
    def title(self) -> str:
        """Its name in the record, and what was asked."""
        exchange = self.recorded.exchange
        return f"{self.conversation.exchange}  {exchange.get('method', 'POST')} {exchange.get('path')}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it: `findings` are those that fail, `difference` lines of a diff of the normal forms."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    difference: tuple[str, ...]
    single: Single


def replayable(episode: Episode, conversation: Conversation, context: Context, broken: tuple[str, ...]) -> Replay:
    """The replay of a conversation of an endpoint picker's record, which breaks the requirements `broken`.

    Raises `UsageError` for what lacks something.
    """
    recorded = recorded_exchange(episode, conversation, subset_namespace=context.subset_namespace)
    if recorded.missing:
        live = conversation.opened is None
        raise UsageError(
            f"{conversation.exchange} can't be sent again: the record lacks {', '.join(recorded.missing)}",
            hint="record it with `tap --keep-bodies BYTES --keep-secrets`" if live else "take it from a whole record",
        )
    return Replay(conversation=conversation, context=context, recorded=recorded, broken=broken)


def broken_rules(episode: Episode, context: Context, rules: Rules) -> dict[str, tuple[str, ...]]:
    """The requirements that the conversations of `episode` break by today's rules, by the name of the exchange."""
    broken: dict[str, dict[str, None]] = {}
    for one in _failing(judge(episode, context, rules)):
        if one.exchange is not None:
            broken.setdefault(one.exchange, {})[one.requirement] = None
    return {exchange: tuple(names) for exchange, names in broken.items()}


def check_secrets(replay: Replay, lane: EppRunner) -> None:
    """Raise `UsageError` if the record lacks the value of a header which the profile does not have either."""
    requests = lane.profile.requests
    known = {name.lower() for name in (*requests.headers, *requests.secret_headers)}
    if lost := [name for name in replay.recorded.secret if name.lower() not in known]:
        raise UsageError(
            f"{replay.conversation.exchange} can't be sent again: {', '.join(lost)} was redacted in the record",
            hint="name a profile that has its value in `requests.secretHeaders`, or record it with --keep-secrets",
        )


async def send_again(replay: Replay, lane: EppRunner, rules: Rules) -> Replayed:
    """Send a conversation to the target of `lane`, on a pool like the recorded one. Raises `UsageError`."""
    await lane.prepare(_pool(replay, lane))
    exchange = load(dump(dict(replay.recorded.exchange)), Exchange, name=replay.conversation.exchange)
    single = await send_one(lane, exchange)
    context = dataclasses.replace(
        replay.context,
        version=lane.version,
        deadline=lane.profile.timeouts.answer,
        claims=lane.profile.claims,
        destination_namespace=lane.profile.metadata.destination,
        expectations=dict(_expected(replay, lane, single.conversation.exchange)),
    )
    findings = tuple(_failing(judge(single.episode, context, rules)))
    difference = tuple(_difference(replay, single.conversation, context))
    if lane.crashed:
        await lane.restart_target()
    return Replayed(
        outcome=_outcome(replay, findings, difference), findings=findings, difference=difference, single=single
    )


def _pool(replay: Replay, lane: EppRunner) -> Pool:
    pool = load(dump(dict(replay.recorded.pool)), Pool, name="pool")
    fixed = lane.profile.discovery.fixed
    if fixed is None:
        return pool
    if len(pool.pods) > len(fixed.endpoints):
        raise UsageError(
            f"{replay.conversation.exchange} needs {plural(len(pool.pods), 'endpoint')}, "
            f"the target knows {len(fixed.endpoints)}",
            hint="name more with --endpoints",
        )
    return fixed_pool(len(fixed.endpoints))


def _expected(replay: Replay, lane: EppRunner, exchange: str) -> Iterator[tuple[str, Expectation]]:
    """What the scenario of the record expected, of the pods as they are now."""
    expected = replay.context.expectations.get(replay.conversation.exchange)
    if expected is None:
        return

    def now(endpoints: tuple[str, ...]) -> tuple[str, ...]:
        named = tuple(replay.recorded.pods.get(one, one) for one in endpoints)
        return tuple(resolve(named, lane.pool.endpoints))

    within = None if expected.within is None else now(expected.within)
    yield exchange, dataclasses.replace(expected, within=within, absent=now(expected.absent))


def _failing(findings: tuple[Finding, ...]) -> Iterator[Finding]:
    return (one for one in findings if one.verdict is Verdict.FAIL)


def _difference(replay: Replay, now: Conversation, context: Context) -> Iterator[str]:
    bodies = kept_whole(replay.conversation)
    forms = (
        normal_form(replay.conversation, namespace=replay.context.destination_namespace, bodies=bodies),
        normal_form(now, namespace=context.destination_namespace, bodies=bodies),
    )
    if replay.conversation.opened is None:  # a tap hears neither what the client got nor whether Envoy ended it early
        forms = tuple({"answers": one["answers"]} for one in forms)  # type: ignore[assignment]
    if forms[0] == forms[1]:
        return
    before, after = (dump(form).splitlines() for form in forms)
    yield from difflib.unified_diff(before, after, "recorded", "replayed", lineterm="", n=2)


def _outcome(replay: Replay, findings: tuple[Finding, ...], difference: tuple[str, ...]) -> Outcome:
    if findings:
        return "still failing" if {one.requirement for one in findings} & {*replay.broken} else "fails now"
    if replay.broken:
        return "fixed"
    return "different" if difference else "same"
