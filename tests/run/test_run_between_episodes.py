"""A target that ends when no exchange is under way: the next episode has it, and it is a finding."""

from __future__ import annotations

import os
import signal

from conformance.judges import judge
from conformance.planning.plan import Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import EngineThread
from conformance.run.epp.execute import EppExecution
from conformance.run.epp.runner import EppRunner
from conformance.run.execution import WorkDone, execute
from conformance.scenario.loader import load
from conformance.targets.resolve import load_profile
from conformance.verdict import Verdict


def test_a_target_that_ends_between_two_episodes_is_not_conformant() -> None:
    catalogue = Catalogue.load()
    instance = next(one for one in load(catalogue) if one.id == "destination.chat")
    work = Work(id=instance.id, instance=instance, mode="full-duplex")

    def told(done: WorkDone) -> Verdict:
        found = judge(done.episode, done.context, catalogue)
        return next(one.verdict for one in found if one.requirement == "ENV-27")

    async def run(runner: EppRunner) -> tuple[Verdict, Verdict, Verdict]:
        async with runner:
            before = await execute(runner, work, EppExecution)
            process = runner.target._watched.process
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            await runner.target.given_time_to_end()
            await runner.restart_target()
            after, later = [await execute(runner, work, EppExecution) for _ in range(2)]
            return told(before), told(after), told(later)

    with EngineThread() as engine:
        runner = EppRunner(load_profile("reference"), "1.0.0", {}, seed=1, lag=engine.lag, status=lambda _: None)
        assert engine.call(run(runner)) == (Verdict.PASS, Verdict.FAIL, Verdict.PASS)
