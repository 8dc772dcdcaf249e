"""Questions about a target, with answers for people: for `doctor` and `profile check`."""

from __future__ import annotations

from conformance.cli.diagnose_epp import endpoint_picker
from conformance.cli.diagnose_gateway import gateway
from conformance.cli.diagnose_model_server import model_server
from conformance.cli.diagnosis import Diagnosis
from conformance.run.engine import EngineThread
from conformance.targets.resolve import Resolved
from conformance.targets.resolve_gateway import ResolvedGateway
from conformance.targets.resolve_model_server import ResolvedModelServer


def target(resolved: Resolved | ResolvedGateway | ResolvedModelServer, protocol_version: str) -> list[Diagnosis]:
    """Start the target (if it is ours), wait until it is ready, send it one request, and look at what it does.

    Raises `UsageError` if it can't be started as it was asked for.
    """
    with EngineThread() as engine:
        if isinstance(resolved, Resolved):
            return endpoint_picker(resolved, protocol_version, engine)
        if isinstance(resolved, ResolvedModelServer):
            return model_server(resolved, protocol_version, engine)
        return gateway(resolved, protocol_version, engine)
