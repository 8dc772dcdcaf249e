"""What runs the targets of each role. A new role adds a case here, and a line to `conformance.roles`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.planning.plan import Work
from conformance.run.capture import Capture
from conformance.run.execution import Execution
from conformance.run.target_runner import TargetRunner
from conformance.scenario.schema import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRunner:
    """How scenarios of a role are run."""

    runner: Callable[..., TargetRunner]
    """A target with its surroundings, from the arguments of `TargetRunner`."""
    execution: Callable[[Any, Work, Capture], Execution]
    """What carries out the steps of a scenario on such a runner."""


def runner_of(role: Role) -> RoleRunner:
    """How scenarios of `role` are run; the other roles are not imported, so that a run begins sooner."""
    match role:
        case "epp":
            from conformance.run.epp.execute import EppExecution
            from conformance.run.epp.runner import EppRunner

            return RoleRunner(runner=EppRunner, execution=EppExecution)
        case "data-plane":
            from conformance.run.gateway.execute import GatewayExecution
            from conformance.run.gateway.runner import GatewayRunner

            return RoleRunner(runner=GatewayRunner, execution=GatewayExecution)
        case "model-server":
            from conformance.run.model_server.execute import ModelServerExecution
            from conformance.run.model_server.runner import ModelServerRunner

            return RoleRunner(runner=ModelServerRunner, execution=ModelServerExecution)
