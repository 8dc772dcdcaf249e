"""A target that ends when nothing is under way: the next episode has it, or the last one, and it is a finding."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest

from conformance.judges import judge
from conformance.planning.plan import Selection, Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import EngineThread
from conformance.run.execution import WorkDone, execute
from conformance.run.roles import runner_of
from conformance.run.session import RunSettings, run
from conformance.run.target_runner import TargetRunner
from conformance.scenario.loader import load
from conformance.selftest.deviation import deviations, select
from conformance.selftest.gateway import gateway_profile
from conformance.selftest.model_server import server_profile
from conformance.targets.gateway import AnyProfile
from conformance.targets.resolve import load_profile
from conformance.verdict import Verdict

pytestmark = pytest.mark.program


def a_gateway() -> AnyProfile:
    return gateway_profile(*select(deviations("variants", "data-plane"), ["full-duplex"]))


def a_model_server() -> AnyProfile:
    return server_profile(*select(deviations("variants", "model-server"), ["right"]))


each_role = pytest.mark.parametrize(
    ("profile_of", "version", "scenario", "requirement"),
    [
        pytest.param(lambda: load_profile("reference"), "1.0.0", "destination.chat", "ENV-27", id="epp"),
        pytest.param(a_gateway, "1.0.0", "gateway.follows-ipv6", "DP-EXTP-01", id="data-plane"),
        pytest.param(a_model_server, "next", "server.answers-with-an-object", "MS-API-01", id="model-server"),
    ],
)


async def kill(runner: TargetRunner) -> None:
    process = runner.target._watched.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await runner.target.given_time_to_end()


@each_role
def test_a_target_that_ends_between_two_episodes_is_not_conformant(profile_of, version, scenario, requirement) -> None:
    catalogue, profile = Catalogue.load(), profile_of()
    instance = next(one for one in load(catalogue) if one.scenario.id == scenario)
    work = Work(version="1.0.0", id=instance.id, instance=instance, mode="full-duplex" if profile.role == "epp" else "")
    role = runner_of(profile.role)

    def told(done: WorkDone) -> Verdict:
        found = judge(done.episode, done.context, catalogue)
        return next(one.verdict for one in found if one.requirement == requirement)

    informs = dataclasses.replace(instance, scenario=instance.scenario.model_copy(update={"provisional": True}))

    async def trial(runner: TargetRunner) -> tuple[Verdict, Verdict, Verdict]:
        async with runner:
            before = await execute(runner, work, role.execution)
            await kill(runner)
            await runner.restart_target()
            await execute(runner, dataclasses.replace(work, instance=informs), role.execution)
            after, later = [await execute(runner, work, role.execution) for _ in range(2)]
            return told(before), told(after), told(later)

    with EngineThread() as engine:
        runner = role.runner(profile, version, {}, seed=1, lag=engine.lag, status=lambda _: None)
        assert engine.call(trial(runner)) == (Verdict.PASS, Verdict.FAIL, Verdict.PASS)


@each_role
@pytest.mark.parametrize("ends", [True, False])
def test_a_target_that_ends_after_its_last_episode_is_not_conformant(
    profile_of, version, scenario, requirement, ends, monkeypatch
) -> None:
    asked = TargetRunner.ends

    async def dying(runner: TargetRunner):
        if ends:
            await kill(runner)
        return await asked(runner)

    monkeypatch.setattr(TargetRunner, "ends", dying)
    selection = Selection(scenarios=(scenario,))
    settings = RunSettings(profile=profile_of(), versions=(version,), selection=selection, seed=1, jobs=1)
    (outcome,) = run(settings, lambda _: None).versions
    broken = [row.requirement.id for row in outcome.requirements if row.verdict is Verdict.FAIL]
    assert broken == ([requirement] if ends else [])
