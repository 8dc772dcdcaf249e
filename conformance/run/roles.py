"""What runs the targets of each role. A new role adds a line here, and one to `conformance.roles`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.planning.plan import Work
from conformance.run.capture import Capture
from conformance.run.epp.execute import EppExecution
from conformance.run.epp.runner import EppRunner
from conformance.run.execution import Execution
from conformance.run.gateway.execute import GatewayExecution
from conformance.run.gateway.runner import GatewayRunner
from conformance.run.model_server.execute import ModelServerExecution
from conformance.run.model_server.runner import ModelServerRunner
from conformance.run.target_runner import TargetRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRunner:
    """How scenarios of a role are run."""

    runner: Callable[..., TargetRunner]
    """A target with its surroundings, from the arguments of `TargetRunner`."""
    execution: Callable[[Any, Work, Capture], Execution]
    """What carries out the steps of a scenario on such a runner."""


RUNNERS: Mapping[str, RoleRunner] = {
    "epp": RoleRunner(runner=EppRunner, execution=EppExecution),
    "data-plane": RoleRunner(runner=GatewayRunner, execution=GatewayExecution),
    "model-server": RoleRunner(runner=ModelServerRunner, execution=ModelServerExecution),
}
