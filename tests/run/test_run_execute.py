"""A deadline that expired while the suite's own loop was late is a harness error, and no finding."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.evidence.episode import Episode, HarnessTrouble
from conformance.evidence.redaction import Redactor
from conformance.judges import judge
from conformance.planning.plan import Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.capture import Capture
from conformance.run.defects import DefectWatch, defect_since
from conformance.run.engine import LAGGING, LagMeter
from conformance.run.epp.execute import EppExecution
from conformance.run.execution import execute
from conformance.run.target_runner import TargetRunner
from conformance.scenario.loader import load
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict
from ext_proc.channel import Channel, dial
from ext_proc.http2.errors import ConnectionRefused, ConnectTimedOut
from ext_proc.record import Recorder
from ext_proc.server import serve
from reference_epp.endpoints import Pool
from reference_epp.health import Health

pytestmark = pytest.mark.program


class _Runner(SimpleNamespace):
    """As much of a runner as a health check needs."""

    def __init__(self, late: float, health_channel: Callable[[], Awaitable[Channel]]) -> None:
        super().__init__(
            version="next",
            profile=load_profile(REFERENCE),
            recorder=Recorder(),
            redactor=Redactor(),
            lag=LagMeter(),
            crashed=False,
            target=SimpleNamespace(health_channel=health_channel, withheld=lambda _seconds, _ago: 0.0),
            pool=SimpleNamespace(synced=True, endpoints={}, give_time=functools.partial(asyncio.sleep, 0)),
            too_early=SimpleNamespace(again=()),
        )
        self.lag.woke(now := time.monotonic() - 2 * late, now + late)
        self.kept_from = functools.partial(TargetRunner.kept_from, self)

    def capture(self, *, counts: bool) -> Capture:
        return Capture(self.recorder, "1", ())


@pytest.mark.parametrize("problem", [TimeoutError(), ConnectTimedOut("127.0.0.1:1", "no connection in time", "", 5.0)])
@pytest.mark.parametrize(
    ("late", "verdict"), [(0.0, "fail"), (LAGGING + 1, "error")], ids=["loop in time", "loop late"]
)
def test_a_health_check_without_an_answer(late: float, verdict: str, problem: Exception):
    async def health_channel() -> Channel:
        raise problem

    episode, verdicts = asyncio.run(_liveness(late, health_channel))
    assert any(True for _ in episode.of(HarnessTrouble)) is (verdict == "error")
    assert verdicts["EPP-HLTH-01"] == verdict


def test_a_health_port_that_opens_after_that_of_ext_proc():
    async def main() -> None:
        refusals = iter([ConnectionRefused("127.0.0.1:1", "connection refused", "")] * 2)
        async with contextlib.AsyncExitStack() as stack:

            async def health_channel() -> Channel:
                for refusal in refusals:
                    raise refusal
                server = await serve("127.0.0.1", 0, None, methods=Health(Pool()).methods())
                stack.push_async_callback(server.close)
                return await dial(server.address, timeout=10)

            _, verdicts = await _liveness(0.0, health_channel)
        assert (verdicts["EPP-HLTH-01"], verdicts["EPP-HLTH-02"]) == ("pass", "pass")

    asyncio.run(main())


async def _liveness(late: float, channel: Callable[[], Awaitable[Channel]]) -> tuple[Episode, dict[str, Verdict]]:
    """What `health.liveness` has to show, and the verdicts of it."""
    catalogue = Catalogue.load()
    instance = next(one for one in load(catalogue) if one.id == "health.liveness")
    runner: Any = _Runner(late, channel)
    work = Work(version="1.0.0", id=instance.id, instance=instance, mode="full-duplex")
    done = await execute(runner, work, EppExecution)
    return done.episode, {one.requirement: one.verdict for one in judge(done.episode, done.context, catalogue)}


@pytest.mark.parametrize(
    ("context", "ours"),
    [
        ({"exception": RuntimeError("broken")}, True),
        ({"exception": OSError(errno.EMFILE, "Too many open files")}, True),
        ({"exception": ConnectionResetError()}, False),
        ({"exception": RuntimeError("raised where the task is awaited"), "future": None}, False),
        ({"message": "a warning"}, False),
    ],
)
def test_defects_of_the_harness_are_told_from_other_errors_of_the_loop(context: dict, ours: bool):
    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(DefectWatch())
        began = time.monotonic()
        loop.call_exception_handler({"message": "", **context})
        assert not defect_since(time.monotonic() + 1)
        return defect_since(began)

    assert bool(asyncio.run(main())) is ours
