"""Health Checking (EPP-HLTH-*, `next`): the Check call, and the services liveness, readiness and ext_proc's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.evidence.episode import Expectation, HealthProbe, PoolState, ProcessExited, ProcessStarted
from conformance.judges.episode_view import EpisodeView
from conformance.judges.epp import expectation
from conformance.judges.exchange_view import AnswerKind
from conformance.judges.findings import passed, recorded
from conformance.judges.registry import judge_of_episode
from conformance.verdict import Finding, Verdict
from ext_proc.protocol import EXT_PROC_SERVICE, LIVENESS, READINESS
from ext_proc.record import Entry

SERVING, NOT_SERVING = "SERVING", "NOT_SERVING"
UNIMPLEMENTED, UNAVAILABLE, NOT_FOUND = 12, 14, 5

_OF_SERVICE = {LIVENESS: "EPP-HLTH-02", READINESS: "EPP-HLTH-03", EXT_PROC_SERVICE: "EPP-HLTH-04"}

Probe = tuple[Entry, HealthProbe]


@judge_of_episode(*(f"EPP-HLTH-{number:02}" for number in range(1, 7)))
def health(episode_view: EpisodeView) -> Iterator[Finding]:
    """The health service is there, and its services say what they should at the time."""
    probes = list(episode_view.episode.of(HealthProbe))
    if not probes or episode_view.crash is not None:
        return
    served = [one for one in probes if one[1].grpc_status not in (UNIMPLEMENTED, UNAVAILABLE)]
    named = [one for one in probes if one[1].service in _OF_SERVICE]  # for others no answer is named
    if named and not any(one in served for one in named):
        yield _ruling(named[0], "EPP-HLTH-01", "an answer to Check", "The profile names the port of health checks.")
        return
    if served:
        yield passed("EPP-HLTH-01")
    for probe in probes:
        match probe[1].service:
            case service if service == LIVENESS:
                good = probe[1].serving == SERVING
                yield passed("EPP-HLTH-02") if good else _ruling(probe, "EPP-HLTH-02", f"{LIVENESS} is {SERVING}")
            case service if service == READINESS:
                yield from _readiness(probe, "EPP-HLTH-03")
            case service if service == EXT_PROC_SERVICE:
                yield from _like_readiness(episode_view, probes, probe)
            case _:
                yield recorded("EPP-HLTH-05", _say(probe), exchange=probe[1].exchange, seq=probe[0].seq)
    yield from _kept_promises(episode_view, probes)


def _readiness(probe: Probe, requirement: str) -> Iterator[Finding]:
    synced = probe[1].pool_synced
    if probe[1].serving is None:
        yield _ruling(probe, requirement, f"a status of {probe[1].service}")
    elif synced is not None:
        wanted = SERVING if synced else NOT_SERVING
        because = "the pool was synced" if synced else "the pool was not synced yet"
        if probe[1].serving == wanted:
            yield passed(requirement)
        else:
            hint = "" if synced else "It is SERVING, and there has been no pool since it started."
            yield _ruling(probe, requirement, f"{probe[1].service} is {wanted}: {because}", hint)


def _like_readiness(episode_view: EpisodeView, probes: Sequence[Probe], probe: Probe) -> Iterator[Finding]:
    """The service named like ext_proc's has the status of readiness; without that at hand, what it should be."""
    twin = next((one for one in probes if one[1].service == READINESS and _same_time(episode_view, one, probe)), None)
    if twin is None:
        yield from _readiness(probe, "EPP-HLTH-04")
    elif probe[1].serving == twin[1].serving and probe[1].serving is not None:
        yield passed("EPP-HLTH-04")
    elif twin[1].serving is not None or probe[1].serving is None:
        yield _ruling(probe, "EPP-HLTH-04", f"the status of readiness: {twin[1].serving}")


def _same_time(episode_view: EpisodeView, one: Probe, other: Probe) -> bool:
    """Whether nothing that changes readiness happened between two probes."""
    first, last = sorted((one[0].seq, other[0].seq))
    changes = (PoolState, ProcessStarted, ProcessExited)
    between = (entry for entry in episode_view.episode.entries if first < entry.seq < last)
    return one[1].pool_synced == other[1].pool_synced and not any(isinstance(e.event, changes) for e in between)


def _kept_promises(episode_view: EpisodeView, probes: Sequence[Probe]) -> Iterator[Finding]:
    for entry, probe in probes:
        if probe.service != READINESS or probe.serving != SERVING:
            continue
        following = next((one for one in episode_view.exchanges if one.conversation.span[0] > entry.seq), None)
        if following is not None and following.answer in (AnswerKind.ENDPOINT, AnswerKind.IMMEDIATE):
            yield passed("EPP-HLTH-06")


def expected_health(episode_view: EpisodeView, *, blamed: frozenset[str | None]) -> Iterator[Finding]:
    """What the scenario expects of each check; `blamed`: labels of checks with which fault was already found."""
    if episode_view.exit is not None:
        return
    for probe in episode_view.episode.of(HealthProbe):
        expected: Expectation | None = episode_view.context.expectations.get(probe[1].exchange or "")
        requirement = _about(expected, episode_view, probe[1].service) if expected is not None else None
        if expected is None or not expected.health or requirement is None:
            continue
        if _is(probe[1]) & {one.lower().replace("_", "-") for one in expected.health}:
            yield passed(requirement)
        elif probe[1].exchange not in blamed:
            yield _ruling(probe, requirement, " or ".join(expected.health))


def _about(expected: Expectation, episode_view: EpisodeView, service: str) -> str | None:
    """The requirement that an expectation is about: that of the service, if the scenario names it too."""
    own = _OF_SERVICE.get(service, "")
    if expected.requirement is None and own in episode_view.context.requirements:
        return own
    return expectation.about(expected, episode_view)


def _is(probe: HealthProbe) -> set[str]:
    if probe.serving is not None:
        return {probe.serving.lower().replace("_", "-")}
    return {"not-found"} if probe.grpc_status == NOT_FOUND else {"error"}


def _say(probe: Probe) -> str:
    found = probe[1]
    return f"Check({found.service!r}): {found.serving or f'gRPC status {found.grpc_status}'}"


def _ruling(probe: Probe, requirement: str, expected: str, hint: str = "") -> Finding:
    return Finding(
        requirement=requirement,
        verdict=Verdict.FAIL,
        expected=(expected,),
        actual=_say(probe),
        hint=hint,
        exchange=probe[1].exchange,
        seq=probe[0].seq,
    )
