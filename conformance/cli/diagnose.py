"""Questions about a target, with answers for people: for `doctor` and `profile check`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from conformance.cli.console import err
from conformance.cli.diagnose_epp import endpoint_picker
from conformance.cli.diagnose_gateway import gateway
from conformance.cli.diagnose_model_server import model_server
from conformance.cli.diagnosis import Diagnosis
from conformance.errors import ConformanceError, UsageError
from conformance.run.engine import EngineThread
from conformance.run.roles import runner_of
from conformance.targets.resolve import Resolved
from conformance.targets.resolve_gateway import ResolvedGateway
from conformance.targets.resolve_model_server import ResolvedModelServer

_QUESTIONS: Mapping[str, tuple[str, Callable[[Any, float], AsyncIterator[Diagnosis]]]] = {
    "epp": ("target", endpoint_picker),
    "data-plane": ("gateway", gateway),
    "model-server": ("model server", model_server),
}
"""By role, what a target is called, and what is asked of its runner, given the seconds that it took to start."""


def target(resolved: Resolved | ResolvedGateway | ResolvedModelServer, protocol_version: str) -> list[Diagnosis]:
    """Start the target (if it is ours), wait until it is ready, send it one request, and look at what it does.

    What is waited for is printed. Raises `UsageError` if it can't be started as it was asked for.
    """
    with EngineThread() as engine:
        return engine.call(_target(resolved, protocol_version, engine))


async def _target(
    resolved: Resolved | ResolvedGateway | ResolvedModelServer, protocol_version: str, engine: EngineThread
) -> list[Diagnosis]:
    profile, answers = resolved.profile, list[Diagnosis]()
    name, questions = _QUESTIONS[profile.role]
    runner = runner_of(profile.role).runner
    began = time.monotonic()
    said = err()

    def status(text: str) -> None:
        said.print(f"  {text}")

    lane = runner(profile, protocol_version, dict(resolved.values), seed=0, lag=engine.lag, status=status)
    try:
        async with lane:
            async for answer in questions(lane, time.monotonic() - began):
                answers.append(answer)
    except UsageError:  # the same mistake is the same error in `run`
        raise
    except ConformanceError as problem:
        answers.append(Diagnosis(name=name, state="bad", text=problem.message, hint=problem.hint))
    return answers
