"""A deadline that expired while the suite's own loop was late is a harness error, and no finding."""

from __future__ import annotations

import asyncio
import errno
import functools
import time
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.evidence.episode import HarnessTrouble
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
from ext_proc.http2.errors import ConnectTimedOut
from ext_proc.record import Recorder


class _Runner(SimpleNamespace):
    """As much of a runner as a health check needs; its target can't be reached."""

    def __init__(self, late: float, problem: Exception) -> None:
        async def health_channel() -> Any:
            raise problem

        super().__init__(
            version="next",
            profile=load_profile(REFERENCE),
            recorder=Recorder(),
            redactor=Redactor(),
            lag=LagMeter(),
            crashed=False,
            target=SimpleNamespace(health_channel=health_channel, withheld=lambda _seconds, _ago: 0.0),
            pool=SimpleNamespace(synced=True, endpoints={}),
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
    catalogue = Catalogue.load()
    instance = next(one for one in load(catalogue) if one.id == "health.liveness")
    runner: Any = _Runner(late, problem)
    work = Work(id=instance.id, instance=instance, mode="full-duplex")
    done = asyncio.run(execute(runner, work, EppExecution))
    episode, context = done.episode, done.context
    assert any(True for _ in episode.of(HarnessTrouble)) is (verdict == "error")
    assert {one.requirement: one.verdict for one in judge(episode, context, catalogue)}["EPP-HLTH-01"] == verdict


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
def test_which_troubles_of_the_loop_are_our_own(context: dict, ours: bool):
    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(DefectWatch())
        began = time.monotonic()
        loop.call_exception_handler({"message": "", **context})
        assert not defect_since(time.monotonic() + 1)
        return defect_since(began)

    assert bool(asyncio.run(main())) is ours
