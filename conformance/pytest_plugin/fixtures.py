"""Fixtures for a vendor's own tests: `epp` (the target), `pool` (its pods) and `proxy` (the data plane)."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any, TypeVar

import pydantic
import pytest

from conformance.errors import ConformanceError
from conformance.evidence.episode import Context, Episode
from conformance.judges import judge
from conformance.planning.fixed import fixed_pool
from conformance.pytest_plugin.suite import SUITE, PluginSuite
from conformance.reading.conversation import Conversation
from conformance.reading.destination import Destination
from conformance.reading.endpoints import parse_list
from conformance.reading.stream_state import follow
from conformance.run.epp.runner import EppRunner
from conformance.run.epp.single import send_one
from conformance.scenario.pool import Load, Pod, PodState, Pool, PoolStep
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import Exchange
from conformance.targets.profile import Profile
from conformance.verdict import Finding, Verdict
from ext_proc.protocol import DESTINATION_NAMESPACE
from fake_proxy.client import HttpRequest
from fake_proxy.exchange import ExchangeOutcome

T = TypeVar("T")

__tracebackhide__ = True  # pytest shows the line of the test that a failure comes from, and none of this module


class Stage:
    """A lane for the fixtures: its target is started when it is first needed, and again after a scenario had one."""

    def __init__(self, suite: PluginSuite) -> None:
        self._suite = suite
        self._lane: EppRunner | None = None
        self._episodes = 0

    @property
    def lane(self) -> EppRunner:
        """The lane, its target running and past the gate. Fails the test if that can't be had."""
        if self._lane is None:
            settings, engine = self._suite.settings, self._suite.engine
            if not isinstance(settings.profile, Profile):
                pytest.fail(f"{settings.profile.name} is a gateway: there is no endpoint picker to give")
            lane = EppRunner(
                settings.profile,
                settings.versions[-1],
                dict(settings.values),
                seed=settings.seed,
                lag=engine.lag,
                status=lambda _: None,
                redactor=settings.redactor,
            )
            self.call(_entered(lane))
            self._lane = lane
        return self._lane

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the engine. Errors of the suite fail the test with their message, at the test's own line."""
        try:
            return self._suite.engine.call(work)
        except ConformanceError as problem:
            raise pytest.fail.Exception(str(problem)) from None

    def close(self) -> None:
        """Stop the target."""
        if self._lane is not None:
            self._suite.engine.call(self._lane.close())
            self._lane = None

    def judged(self, episode: Episode) -> tuple[Finding, ...]:
        """Every finding on an episode of this lane."""
        profile = self.lane.profile
        context = Context(
            version=self.lane.version,
            scenario="fixture",
            destination_namespace=profile.metadata.destination,
            subset_namespace=profile.metadata.subset,
            deadline=profile.timeouts.answer,
            claims=profile.claims,
        )
        return judge(episode, context, self._suite.catalogue)


async def _entered(lane: EppRunner) -> None:
    await lane.__aenter__()


class Epp:
    """The endpoint picker under test."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def address(self) -> str:
        """host:port of its ext_proc service."""
        return self._stage.lane.target.address

    @property
    def version(self) -> str:
        """The protocol version that it was started for."""
        return self._stage.lane.version

    @property
    def profile(self) -> Profile:
        """What its profile says."""
        return self._stage.lane.profile

    @property
    def output(self) -> str:
        """The last lines of its output, if the suite started it."""
        return self._stage.lane.target.output

    def restart(self) -> None:
        """Stop it and start it again; it is ready when this returns. Fails if the suite did not start it."""
        if not self.profile.started_by_us:
            pytest.fail("the suite did not start this target, so it can't restart it")
        self._stage.call(self._stage.lane.restart_target())


class PoolView:
    """The pods that the target may pick. Every change has settled when its method returns.

    The words are those of scenario files: `ready`, `selected`, `terminating`, `queue`, `running`, `kv`, `loras`, …
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """`ip:port` of each pod, one per port that it serves; `nobody` is in no pool."""
        pool = self._stage.lane.pool
        return {fact.name: fact.endpoints for fact in pool.facts} | {NOBODY: pool.endpoints[NOBODY]}

    @property
    def eligible(self) -> tuple[str, ...]:
        """Every endpoint that may be picked now."""
        return self._stage.lane.pool.eligible

    def reset(self, pods: Sequence[Mapping[str, Any]] | None = None, *, ports: int = 1) -> None:
        """Make exactly this pool; default: three idle pods `a`, `b` and `c` (or those that the target knows)."""
        fixed = self._stage.lane.profile.discovery.fixed
        if pods is None and fixed is not None:
            pool = fixed_pool(len(fixed.endpoints))
        else:
            pool = Pool(ports=ports) if pods is None else _made(Pool, {"pods": list(pods), "ports": ports})
        self._stage.call(self._stage.lane.pool.reset(pool))

    def add(self, name: str, **state: Any) -> None:
        """Add a pod: a model server on its own address."""
        self._change(PoolStep(add=(_made(Pod, {"name": name, **state}),)))

    def remove(self, *names: str) -> None:
        """Remove pods."""
        self._change(PoolStep(remove=names))

    def set(self, name: str, **state: Any) -> None:
        """Change a pod's standing (`ready=False`) or load (`queue=8`)."""
        load = {key: value for key, value in state.items() if key in Load.model_fields}
        if len(load) == len(state):
            self._known(name)
            self._stage.call(self._stage.lane.pool.load({name: _made(Load, load)}))
        else:
            self._change(PoolStep(set={name: _made(PodState, state)}))

    def _change(self, step: PoolStep) -> None:
        if self._stage.lane.profile.discovery.fixed is not None:
            pytest.fail("the endpoints of this target are fixed: only the load of its pods can be set")
        self._stage.call(self._stage.lane.pool.change(step))

    def _known(self, name: str) -> None:
        if name not in self.endpoints:
            pytest.fail(f"the pool has no pod {name!r}; it has {', '.join(self.endpoints)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sent:
    """One exchange, over: what the client got, what was said on the stream, and what the judges say about it."""

    outcome: ExchangeOutcome
    conversation: Conversation
    episode: Episode
    findings: tuple[Finding, ...]
    destination_namespace: str = DESTINATION_NAMESPACE

    @property
    def status(self) -> int | None:
        """The HTTP status that the client got; None if nothing."""
        return self.outcome.status

    @property
    def picked(self) -> tuple[str, ...]:
        """The endpoints that the target gave, in order; () if it gave none."""
        destination = Destination(
            conversation=self.conversation, stream=follow(self.conversation), namespace=self.destination_namespace
        )
        return parse_list(destination.given).endpoints if destination.given else ()

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that fail."""
        return tuple(finding for finding in self.findings if finding.verdict is Verdict.FAIL)


class Proxy:
    """The data plane in front of the target."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def pool(self) -> PoolView:
        """The pods behind it."""
        return PoolView(self._stage)

    def send(self, request: HttpRequest | None = None, **exchange: Any) -> Sent:
        """Send one request through the target to a model server, and wait for the end.

        `exchange` has the words of an `exchange` in scenario files (`subset`, `headers`, `body`, `sheddable`, `reply`,
        `mode`, `ending`, …; pods as `{a}`). With `request` the HTTP request is exactly that one, and `exchange` says
        the rest. The stream is drained unless `ending` says otherwise, so that all the target says is seen.
        """
        wanted = _made(Exchange, {"ending": "drain", **exchange})
        return self._stage.call(self._send(request, wanted))

    async def _send(self, request: HttpRequest | None, exchange: Exchange) -> Sent:
        lane = self._stage.lane
        single = await send_one(lane, exchange, request)
        return Sent(
            outcome=single.outcome,
            conversation=single.conversation,
            episode=single.episode,
            findings=self._stage.judged(single.episode),
            destination_namespace=lane.profile.metadata.destination,
        )


def _made(model: type[T], data: Mapping[str, Any]) -> T:
    """`data` as a `model` of the scenario schema. Fails the test with what is wrong."""
    from conformance.strict_yaml import FileError, dump, load

    assert issubclass(model, pydantic.BaseModel)
    try:
        return load(dump(_plain(data)), model, name=model.__name__)
    except FileError as error:
        raise pytest.fail.Exception("\n".join(problem.without_place for problem in error.problems)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


STAGE = pytest.StashKey[Stage]()


# -- the fixtures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def epp_stage(request: pytest.FixtureRequest) -> Stage:
    """The lane behind the fixtures; tests use `epp`, `pool` and `proxy`."""
    suite = request.config.stash[SUITE]
    stage = request.config.stash.setdefault(STAGE, Stage(suite))
    suite.use(stage)
    return stage


@pytest.fixture
def epp(epp_stage: Stage) -> Epp:
    """The endpoint picker under test, running: `address`, `version`, `profile`, `output`, `restart()`."""
    return Epp(epp_stage)


@pytest.fixture
def pool(epp_stage: Stage) -> PoolView:
    """Its pods: three idle ones at the start of each test. `add`, `remove`, `set`, `reset`, `endpoints`."""
    __tracebackhide__ = False  # no line of the test was reached: pytest would say that all are hidden
    view = PoolView(epp_stage)
    try:
        view.reset()
    except pytest.fail.Exception as problem:
        raise pytest.fail.Exception(problem.msg, pytrace=False) from None
    return view


@pytest.fixture
def proxy(epp_stage: Stage, pool: PoolView) -> Proxy:  # noqa: ARG001 - the pool is clean before the first request
    """The data plane: `proxy.send(...)` gives what came of one request."""
    return Proxy(epp_stage)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """To a test that failed with the pool, add which pod has which endpoint: an assertion shows addresses only."""
    report = yield
    used = getattr(item, "funcargs", {}).values()
    pool = next(
        (one.pool if isinstance(one, Proxy) else one for one in used if isinstance(one, PoolView | Proxy)), None
    )
    if call.when == "call" and report.failed and pool is not None:
        pods = (f"{name}: {', '.join(endpoints)}" for name, endpoints in pool.endpoints.items())
        report.sections.append(("epp-conformance", f"pods: {'; '.join(pods)}"))
    return report
