"""Binding model servers at endpoints that the target knows, and the error where that can't be done."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.errors import UsageError
from fake_modelserver import Address, AddressUnavailableError, FleetError, bind


def check_bindable(endpoints: Sequence[str]) -> None:
    """Raises `UsageError` for the first of `endpoints` at which no model server can be bound on this machine."""
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        try:
            bind(host.strip("[]"), int(port)).close()
        except FleetError as problem:
            raise cant_bind(problem) from problem


def cant_bind(problem: FleetError) -> UsageError:
    """The error for an endpoint that the target knows and that the suite can't serve."""
    if isinstance(problem, AddressUnavailableError):
        return UsageError(
            f"no model server can be bound at {Address(problem.address, problem.port)}: {problem.reason}",
            hint="the suite's own model servers must stand at the endpoints that the target knows: give it endpoints "
            "of this machine, such as 127.0.0.1:8001,127.0.0.1:8002",
        )
    return UsageError(problem.message, hint=problem.hint)
