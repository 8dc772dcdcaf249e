"""The episode: the unit of evidence, one ordered log of everything that happened around some exchanges.

`ext_proc.record` defines the events of an exchange; this module adds those of the whole episode (pool, scrapes,
health probes, processes, harness trouble) and the two values that judges get: `Episode` and `Context`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from conformance.described import Described
from conformance.evidence.model_server import ModelServerFacts
from conformance.evidence.reported import Attribute
from ext_proc import record_json
from ext_proc.protocol import DESTINATION_NAMESPACE, SUBSET_NAMESPACE
from ext_proc.record import Entry, Event

# -- events of the whole episode ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """What is true of a pod: its endpoints (`ip:port`, IPv6 bracketed) and whether an EPP may pick them.

    `known` is False for a pod that the suite serves but that the pool was never told of (other label, other namespace).
    """

    name: str
    endpoints: tuple[str, ...]
    ready: bool = True
    terminating: bool = False
    selected: bool = True

    @property
    def eligible(self) -> bool:
        """Ready, not terminating and selected by the pool (reading AMB-10 of "ready endpoints")."""
        return self.ready and self.selected and not self.terminating


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState(Event):
    """The whole pool after a change, at one of three moments.

    `asked`: the suite began to change it; `delivered`: the discovery channel handed it to the target (watch event sent,
    file re-read window passed); `effective`: from here on the target must act on it. A pick between `asked`
    and `effective` may follow either state.
    """

    kind: ClassVar[str] = "pool"
    phase: Literal["asked", "delivered", "effective"]
    pods: tuple[PodFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugesShown(Event):
    """Load that a pod's `/metrics` shows from here on, as the scenario names it (`queue`, `kv`, `running`, …)."""

    kind: ClassVar[str] = "gauges"
    pod: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthProbe(Event):
    """One `grpc.health.v1.Health/Check`: `serving` names the status, None when the call failed with `grpc_status`."""

    kind: ClassVar[str] = "health"
    service: str
    serving: str | None
    grpc_status: int
    pool_synced: bool | None = None
    """Whether the target had been told of a pool before the probe; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt(Event):
    """A copy of the target was started with a configuration of the reporter: did it come up? `output` says why not."""

    kind: ClassVar[str] = "start-attempt"
    configuration: str
    started: bool
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadConnection(Event):
    """From here on the target has a connection of which nothing is read. `stalled`: it was seen to have used the window
    of the stream on it, and else may have said nothing there."""

    kind: ClassVar[str] = "unread-connection"
    stalled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted(Event):
    """The target was started by us."""

    kind: ClassVar[str] = "process-started"
    pid: int
    """0 where it has none on this machine."""
    command: tuple[str, ...] = ()
    image: str | None = None
    """The digest of the image that it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExited(Event):
    """The target's process ended, by us (`asked`) or by itself; `code` is negative for a signal."""

    kind: ClassVar[str] = "process-exited"
    pid: int
    code: int
    asked: bool
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessTrouble(Event):
    """The harness could not do its part; what depends on it becomes `error`, never a finding about the target."""

    kind: ClassVar[str] = "harness-trouble"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet(Event):
    """A precondition of a scenario was not met in time, or cannot be met for this target."""

    kind: ClassVar[str] = "unmet"
    what: str
    verdict: Literal["inconclusive", "skipped"] = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodConduct(Event):
    """How a pod takes requests from here on; before the first such event all pods serve.

    `refuses`: nothing listens at its endpoints. `resets`: it resets the connection when a request has arrived. `503`:
    it answers each request so.
    """

    kind: ClassVar[str] = "pod-conduct"
    pod: str
    conduct: Literal["serves", "refuses", "resets", "503"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EppConduct(Event):
    """From here on the scripted EPP named `epp` listens, or not; before the first such event it does."""

    kind: ClassVar[str] = "epp-conduct"
    epp: str
    up: bool


# -- what judges read --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a scenario says must come back, beyond the rules that apply to every exchange.

    `answer`: acceptable kinds, any of: `endpoint`, an HTTP status (`503`), a class (`4xx`), `grpc-error`, `any`.
    `within`: endpoints (`ip:port`) that the pick must lie in. `absent`: endpoints that it must not name. `status`: what
    the HTTP client must get. `served_by`: the endpoints one of which must serve a request through a gateway under test;
    () if none may get it. `report`: what an attribute that the suite configures may be reported as; None: not at all.
    `starts`: whether a start succeeds. `requirement`: what is broken otherwise; default the first that the scenario
    names.
    """

    answer: tuple[str, ...] = ()
    within: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()
    status: tuple[int, ...] = ()
    served_by: tuple[str, ...] | None = None
    health: tuple[str, ...] = ()
    report: Mapping[str, tuple[float | None, ...]] = dataclasses.field(default_factory=dict)
    starts: bool | None = None
    requirement: str | None = None


EngineName = Literal["vllm", "vllm-rust", "vllm-0.10.2", "vllm-0.8.5", "sglang", "sglang-0.5.10", "trtllm-serve"]
"""Model servers by generation: releases whose pages of metrics differ in what endpoint pickers read. One without a
number is the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Described):
    """What a vendor says of the target (profile key `claims`), as far as a rule depends on it."""

    sheds: bool | None = None
    """It drops sheddable requests when its pool is saturated. Then it must do so with 429."""
    queues: bool = False
    """It may keep a request waiting, up to a time to live."""
    fallback_lists: bool | None = None
    """It gives several endpoints, in the order in which to try them."""
    body_rewrites: tuple[str, ...] = ()
    """JSON paths (`model`, `stream_options.include_usage`) that the target may change in a request body."""
    response_rewrites: tuple[str, ...] = ()
    """JSON paths that it may change in a response body."""
    several_ports: bool = True
    """False for a target of a time when pools had one port only."""
    ipv6: bool = True
    """False for a target that knows IPv4 endpoints only."""
    health: bool | None = None
    """It answers gRPC health checks. For the reader of the report: what it does is observed."""
    engines: tuple[EngineName, ...] = ()
    """Model servers whose gauges it reads. Whether they move its picks is found out for each, as information."""
    reporter: bool | None = None
    """It reports attributes of requests (Request Attribute Reporter)."""
    attributes: tuple[Attribute, ...] = ()
    """What it is configured to report; none: what the suite has it report with the file `{reporterConfig}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFact(Described):
    """One InferencePool behind a gateway."""

    epp: str
    """The name of its scripted EPP (`StreamOpened.epp`)."""
    endpoints: tuple[str, ...]
    """Its endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts(Described):
    """What a vendor says of the gateway under test (role data-plane), as far as a rule depends on it.

    Nothing here excuses a MUST: it tells how the gateway was configured, so that no more is asked of it than that.
    """

    follows: Literal["header", "metadata", "either"] | None = None
    """Where it reads the destination, when the two differ or one is missing; left out: what needs one of them alone is
    not applicable."""
    retries: int = 0
    """How often it tries a request again after a failed attempt; 0: retry is not configured."""
    retry_statuses: tuple[int, ...] = ()
    """Statuses of a model server that it takes for a failed attempt; those that it couldn't reach always are."""
    walks_list: bool | None = None
    """Whether it says that it walks the list; left out: it says nothing."""
    failure_mode: Literal["closed", "open"] = "closed"
    """What becomes of a request when the EPP can't be asked: it fails, or is sent on unsteered."""
    sends_subset: bool = False
    """Whether it was told to send a subset hint with each request: an empty list where `subsetHeader` is empty."""
    reports_served: bool | None = None
    """Whether it says that it reports the served endpoint; left out: it says nothing."""
    split_header: str = ""
    """A request header (with any value) by which a request takes a route that splits requests over both pools, about
    evenly. Then the second pool takes over for the first nowhere. Empty: it has no such route."""
    backends: tuple[BackendFact, ...] = ()
    """Its pools in the order in which it tries them. One, unless it fails over to a second, or splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What judges need beside the log. Stored with the evidence, so that the same judgement can be repeated."""

    version: str
    scenario: str
    """The id of the result, variables and body mode included."""
    requirements: tuple[str, ...] = ()
    stimulus: Literal["contract", "off-contract"] = "contract"
    provisional: bool = False
    destination_namespace: str = DESTINATION_NAMESPACE
    subset_namespace: str = SUBSET_NAMESPACE
    deadline: float = 10.0
    """Seconds within which the target must answer."""
    claims: Claims = dataclasses.field(default_factory=Claims)
    role: Literal["epp", "data-plane", "model-server"] = "epp"
    """Which side of the protocol is under test; the other sides are the suite's own."""
    gateway: GatewayFacts | None = None
    """What is said of the gateway under test; None in other roles."""
    model_server: ModelServerFacts | None = None
    """What is said of the model server under test; None in other roles."""
    expectations: Mapping[str, Expectation] = dataclasses.field(default_factory=dict)
    """By exchange id (or health probe label)."""
    strangers: tuple[str, ...] = ()
    """Of an episode out of a load: ids of requests of other episodes that the answers hold."""

    @property
    def stated(self) -> Claims | GatewayFacts | ModelServerFacts:
        """What the vendor says of the target, without what the run itself added."""
        if self.gateway is not None:
            return dataclasses.replace(self.gateway, backends=())
        return self.model_server or self.claims


E = TypeVar("E", bound=Event)


def by_kind(entries: Iterable[Entry]) -> Mapping[type[Event], Sequence[Entry]]:
    """The entries by the kind of their events, each kind in order."""
    found: dict[type[Event], list[Entry]] = {}
    for entry in entries:
        found.setdefault(type(entry.event), []).append(entry)
    return found


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One scenario instance as it happened: its own events, and those of pool and process while it ran."""

    id: str
    entries: tuple[Entry, ...]

    @cached_property
    def exchanges(self) -> Mapping[str, tuple[Entry, ...]]:
        """The entries of each exchange by its id, in order of opening."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.event.exchange is not None:
                found.setdefault(entry.event.exchange, []).append(entry)
        return {name: tuple(entries) for name, entries in found.items()}

    @cached_property
    def _sorted(self) -> Mapping[type[Event], Sequence[Entry]]:
        return by_kind(self.entries)

    def of(self, kind: type[E]) -> Iterator[tuple[Entry, E]]:
        """Every event of a kind with its entry, in order."""
        return ((entry, cast("E", entry.event)) for entry in self._sorted.get(kind, ()))

    @cached_property
    def pool(self) -> PoolHistory:
        """What the pool was, and when."""
        return PoolHistory(tuple(self.of(PoolState)))


@dataclass(frozen=True)
class PoolHistory:
    """The states of the pool in order of being asked for; empty when the pool was not observed (the tap)."""

    states: tuple[tuple[Entry, PoolState], ...]

    def between(self, first: int, last: int) -> tuple[tuple[PodFact, ...], ...]:
        """Every state that the target may rightly have acted on at some instant in `[first, last]` (sequence numbers).

        A change may be followed from the moment it was asked and must be followed from the moment it was effective, so
        between the two both states are right. Returns () if the pool was not observed.
        """
        asked: list[tuple[int, tuple[PodFact, ...]]] = []
        for entry, state in self.states:
            if entry.seq > last:
                break
            if state.phase == "asked" or not asked or asked[-1][1] != state.pods:
                asked.append((entry.seq, state.pods))
            if state.phase == "effective" and entry.seq <= first:
                asked = asked[-1:]
        return tuple(pods for _, pods in asked)


# -- serialisation -----------------------------------------------------------------------------------------------------


def to_json(episode: Episode, context: Context, pack: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """An episode with its context as one JSON object (a line of `evidence.ndjson.gz`). Nothing is lost.

    `pack` writes messages and bodies in another way than in full.
    """
    return {
        "episode": episode.id,
        "context": _without_defaults(context),
        "entries": [record_json.to_json(entry, pack) for entry in episode.entries],
    }


def from_json(body: Mapping[str, Any], unpack: Callable[[Any], bytes] | None = None) -> tuple[Episode, Context]:
    """What `to_json` wrote. Raises `ValueError` if it was not written by it."""
    try:
        entries = tuple(record_json.from_json(entry, unpack) for entry in body["entries"])
        if not isinstance(body["episode"], str):
            raise TypeError("an episode's id is text")
        return Episode(id=body["episode"], entries=entries), _context().validate_python(body["context"])
    except KeyError as problem:
        raise ValueError(f"not an episode: {problem} is missing") from problem
    except ValidationError as problem:
        first = problem.errors()[0]
        raise ValueError(f"not an episode: context.{'.'.join(map(str, first['loc']))}: {first['msg']}") from problem
    except (TypeError, AttributeError) as problem:
        raise ValueError(f"not an episode: {problem}") from problem


@functools.cache
def _context() -> TypeAdapter[Context]:
    return TypeAdapter(Context)


def _without_defaults(context: Context) -> dict[str, Any]:
    return _context().dump_python(context, mode="json", exclude_defaults=True)  # type: ignore[no-any-return]
