"""The judges: pure functions from an episode in its context to findings.

    findings = judge(episode, context, catalogue)

One module per section of the protocol says what its rules are; `attribution` puts the sections in order, so that one
deviation gives one finding; `registry` knows every judge; here findings are weighed by what the catalogue
says a violation counts for in the version, and reduced to survival where the stimulus itself was off-contract.

No input or output, no clock, no randomness: the same episode always gives the same findings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from conformance.evidence.episode import Context, Episode, HarnessTrouble, Unmet
from conformance.judges import attribution
from conformance.judges.episode_view import EpisodeView
from conformance.judges.epp import (
    destination,
    errors,
    expectation,
    fallback,
    health,
    isolation,
    model,
    reporter,
    scores,
    streaming,
    subset,
    transparency,
    unexplained,
)
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.ext_proc import answering, bodies, header_mutations, immediate, ordering, responses, robustness
from conformance.judges.findings import FAIL, PASS
from conformance.judges.gateway import calling, failure, served, split
from conformance.judges.gateway import destination as gateway_destination
from conformance.judges.gateway import errors as gateway_errors
from conformance.judges.gateway import expectation as gateway_expectation
from conformance.judges.gateway import subset as gateway_subset
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.model_server import alone as server_alone
from conformance.judges.model_server import api as server_api
from conformance.judges.model_server import gauges as server_gauges
from conformance.judges.model_server import lora as server_lora
from conformance.judges.model_server import page as server_page
from conformance.judges.model_server import prefix as server_prefix
from conformance.judges.places import places
from conformance.judges.registry import JUDGES, Judge, Role
from conformance.judges.rules import Rules
from conformance.judges.server_view import ServerExchange
from conformance.reading.stream_state import StopKind
from conformance.verdict import NEGATIVE, Finding, Nature, Verdict
from ext_proc.record import Entry

__all__ = ["JUDGES", "Role", "Rules", "judge", "places", "unweighed"]

_SECTIONS = (
    ordering,
    answering,
    attribution,
    destination,
    subset,
    errors,
    fallback,
    model,
    scores,
    streaming,
    health,
    isolation,
    transparency,
    bodies,
    header_mutations,
    immediate,
    responses,
    robustness,
    reporter,
    calling,
    gateway_subset,
    gateway_destination,
    split,
    gateway_errors,
    served,
    failure,
    server_api,
    server_page,
    server_gauges,
    server_alone,
    server_lora,
    server_prefix,
)
"""Importing them registers their judges."""

_ALWAYS_FAILS = (Nature.HANG, Nature.CRASH)
_ABOUT_THE_ANSWER = (
    "attribution",
    "ext_proc.ordering",
    "ext_proc.answering",
    "ext_proc.robustness.process",
    "epp.health",
)
"""Judges after whose fault an expectation of the same answer has nothing to add."""


def judge(episode: Episode, context: Context, catalogue: Rules, *, roles: Sequence[Role] = ()) -> tuple[Finding, ...]:
    """Every finding on `episode`: violations, warnings and what is inconclusive, each with its exchange; then what was
    seen to hold and what did not arise, once per requirement.

    Judges of the role that `context` says is under test speak; `roles` may name several, where neither side is ours.

    Requirements that the catalogue does not have in `context.version` are left out. Where the harness had trouble, the
    exchanges concerned give no violations, and the scenario's requirements are `error`; without a scenario, those that
    would have been violated. A judge that raises is the suite's own defect and lets the exception through; who runs the
    suite makes it `error`.
    """
    episode_view = EpisodeView(episode, context, catalogue)
    given = unweighed(episode_view, roles)
    weighed = list(_weigh(episode_view, _unprovoked(episode_view, given) if len(roles) > 1 else given))
    weighed += _harness(episode, context, weighed)
    weighed += _silent(episode_view, weighed)
    return tuple(_collect(weighed))


def unweighed(episode_view: EpisodeView, roles: Sequence[Role] = ()) -> Iterator[Finding]:
    """The findings of all judges of `roles` (default: that of the context), before they are weighed."""
    roles = roles or (episode_view.context.role,)
    explained: set[str | None] = set()
    blamed: set[str | None] = set()
    for one, about_the_answer in _asked(tuple(roles)):
        for finding in _ask(episode_view, one):
            if about_the_answer and finding.negative and episode_view.effect(finding.requirement) in ("fail", "warn"):
                blamed.add(finding.exchange)
            if _counts(episode_view, finding):
                explained.add(finding.exchange)
            yield finding
    if episode_view.context.role == "data-plane":
        for exchange in episode_view.gateway_exchanges:
            yield from gateway_expectation.expectation(exchange, blamed=exchange.exchange in blamed)
        return
    for view in episode_view.exchanges_but_polls:
        unmet = list(expectation.expectation(view, blamed=view.exchange in blamed))
        yield from unmet
        if view.exchange not in explained and not any(_counts(episode_view, finding) for finding in unmet):
            yield from unexplained.unexplained(view)
    yield from health.expected_health(episode_view, blamed=frozenset(blamed))


def _unprovoked(episode_view: EpisodeView, given: Iterable[Finding]) -> Iterator[Finding]:
    """The findings without those about what an EPP did after the data plane broke the order in the same exchange.

    What is right then is not defined; but nothing excuses a crash, or an answer to another request.
    """
    undefined = {one.exchange: calling.undefined_since(one) for one in episode_view.gateway_exchanges}
    broken: dict[str | None, int] = {name: seq for name, seq in undefined.items() if seq is not None}
    for one in given:
        conduct = one.negative and one.nature in (Nature.CONDUCT, Nature.HANG) and not one.requirement.startswith("DP-")
        if not (conduct and one.exchange in broken and (one.seq is None or one.seq >= broken[one.exchange])):
            yield one


def _counts(episode_view: EpisodeView, finding: Finding) -> bool:
    """Whether a finding keeps an exchange from passing. A warning does not."""
    return (
        finding.negative and finding.verdict is not Verdict.WARN and episode_view.effect(finding.requirement) == "fail"
    )


@functools.cache
def _asked(roles: tuple[Role, ...]) -> tuple[tuple[Judge, bool], ...]:
    """The judges of `roles`, each with whether it is about the answer."""
    return tuple(
        (one, one.role == "data-plane" or name.startswith(_ABOUT_THE_ANSWER))
        for name, one in JUDGES.items()
        if one.role in roles
    )


def _ask(episode_view: EpisodeView, judge_: Judge) -> Iterable[Finding]:
    if judge_.of_episode is not None:
        return judge_.of_episode(episode_view)
    if judge_.of_gateway_exchange is not None:
        return chain.from_iterable(map(judge_.of_gateway_exchange, episode_view.gateway_exchanges))
    assert judge_.of_exchange is not None
    return chain.from_iterable(
        map(judge_.of_exchange, episode_view.exchanges if judge_.hygiene else episode_view.exchanges_but_polls)
    )


# -- weighing ----------------------------------------------------------------------------------------------------------


def _weigh(episode_view: EpisodeView, given: Iterable[Finding]) -> Iterator[Finding]:
    trouble = {event.exchange: (entry, event) for entry, event in episode_view.episode.of(HarnessTrouble)}
    seen_to_hold: set[str] = set()
    for finding in given:
        if finding.verdict is PASS:
            if finding.requirement in seen_to_hold:
                continue  # once is enough
            seen_to_hold.add(finding.requirement)
        effect = episode_view.effect(finding.requirement)
        if effect is None or not _kept(episode_view.context, finding):
            continue
        excuse = trouble.get(None) or trouble.get(finding.exchange) if finding.negative else None
        verdict = _verdict(finding, effect)
        if excuse is None:
            yield finding.weighed(verdict)
        elif not episode_view.context.requirements and verdict is not Verdict.NOT_APPLICABLE:
            yield _error(finding.requirement, *excuse)  # no scenario says which requirements are in doubt


def _verdict(finding: Finding, effect: str) -> Verdict:
    if finding.nature in _ALWAYS_FAILS or effect == "fail":
        return finding.verdict
    if effect == "warn":
        return Verdict.WARN if finding.verdict is Verdict.FAIL else finding.verdict
    return Verdict.NOT_APPLICABLE if finding.negative else finding.verdict


def _kept(context: Context, finding: Finding) -> bool:
    """Off-contract, only survival, cross-talk and membership are judged; of what holds, what the scenario is about."""
    if context.stimulus == "contract":
        return True
    if finding.negative:
        return finding.nature is not Nature.CONDUCT
    return finding.requirement in context.requirements


def _harness(episode: Episode, context: Context, found: Iterable[Finding]) -> Iterator[Finding]:
    """`error` for what the harness could not do, and what was unmet, on the requirements that the scenario names."""
    for entry, trouble in episode.of(HarnessTrouble):
        for requirement in context.requirements:
            yield _error(requirement, entry, trouble)
    failed = {finding.requirement for finding in found if finding.verdict is FAIL}
    for entry, unmet in episode.of(Unmet):
        for requirement in context.requirements:
            if requirement not in failed:
                verdict = Verdict(unmet.verdict)
                yield Finding(requirement=requirement, verdict=verdict, actual=unmet.what, seq=entry.seq)


def _error(requirement: str, entry: Entry, trouble: HarnessTrouble) -> Finding:
    return Finding(
        requirement=requirement,
        verdict=Verdict.ERROR,
        actual=trouble.what,
        exchange=trouble.exchange,
        seq=entry.seq,
        hint="This is a harness error, not a finding about the target.",
    )


def _silent(episode_view: EpisodeView, found: Iterable[Finding]) -> Iterator[Finding]:
    """Findings on requirements that the scenario names and no judge ruled on.

    Off-contract, silence means that the target survived. Where another rule was broken, this one was not reached. Else
    its condition did not arise, or the EPP did as it may: it closed the stream once the request was answered, asked to
    be shown no more of the request, or refused it. Where nothing bears on any of them, the scenario is inconclusive,
    and the finding tells what came back.
    """
    context, catalogue = episode_view.context, episode_view.rules
    if not context.requirements:
        return
    spoken_of = {finding.requirement for finding in found}
    broken = sorted({finding.requirement for finding in found if finding.verdict is FAIL})
    unspoken = spoken_of.isdisjoint(context.requirements)
    for name in context.requirements:
        effect = catalogue.effect(name, context.version)
        if effect is None or name in spoken_of:
            continue
        if context.stimulus == "off-contract":
            yield Finding(requirement=name, verdict=Verdict.PASS, actual="the target survived")
        elif broken:
            what = f"not reached: {', '.join(broken)} was broken before"
            yield Finding(requirement=name, verdict=Verdict.NOT_APPLICABLE, actual=what)
        elif context.role == "epp" and (why := _saw_no_more(episode_view)):
            yield Finding(requirement=name, verdict=Verdict.NOT_APPLICABLE, actual=f"not reached: {why}")
        elif effect != "fail" or catalogue.get(name).conditional:
            yield Finding(requirement=name, verdict=Verdict.NOT_APPLICABLE, actual="nothing in the scenario bore on it")
        elif unspoken:
            yield Finding(requirement=name, verdict=Verdict.INCONCLUSIVE, actual=_why_silent(episode_view))


def _why_silent(episode_view: EpisodeView) -> str:
    """What came back, where none of it bears on what the scenario is about."""
    asked: Iterable[ExchangeView | GatewayExchange | ServerExchange]
    match episode_view.context.role:
        case "epp":
            asked = episode_view.exchanges_but_polls
        case "data-plane":
            asked = episode_view.gateway_exchanges
        case "model-server":
            asked = episode_view.server.exchanges
    answers = [f"{one.exchange}: {one.describe()}" for one in asked]
    came = "; ".join(answers[:3]) or "there was no exchange"
    return f"nothing that was observed bears on it ({came})"


_REFUSALS = frozenset(range(400, 500)) - {429}
"""Codes that put a refusal down to the request, not to load."""


def _saw_no_more(episode_view: EpisodeView) -> str:
    """Why an EPP, as it may, was not shown the rest of an exchange, or chose no endpoint; empty if neither is so."""
    streams = [view.stream for view in episode_view.exchanges]
    if any(one.stop is not None and one.stop.kind is StopKind.CLOSED and one.request.complete for one in streams):
        return "the EPP closed the stream once the request was answered"
    if any(one.request.replaced and not one.request.header_only for one in streams):
        return "the EPP asked to be shown no more of the request (CONTINUE_AND_REPLACE)"
    asked = episode_view.exchanges_but_polls
    if asked and all(view.answer is AnswerKind.IMMEDIATE and view.code in _REFUSALS for view in asked):
        return f"the EPP refused each request ({', '.join(sorted({str(view.code) for view in asked}))})"
    return ""


_TELLING = (*NEGATIVE, Verdict.SKIPPED)


def _collect(weighed: Iterable[Finding]) -> Iterator[Finding]:
    """Telling findings as they are; of the rest, and only where nothing telling was found, one per requirement, and the
    first that shows something in an exchange beside it."""
    telling: list[Finding] = []
    neutral: dict[tuple[str, bool], Finding] = {}
    for finding in weighed:
        if finding.verdict in _TELLING:
            if finding not in telling:
                telling.append(finding)
        else:
            key = finding.requirement, finding.exchange is not None
            earlier = neutral.get(key)
            if earlier is None or (finding.verdict is PASS and earlier.verdict is not PASS):
                neutral[key] = finding
    told = {finding.requirement for finding in telling}
    yield from telling
    yield from (finding for (name, _), finding in neutral.items() if name not in told)
