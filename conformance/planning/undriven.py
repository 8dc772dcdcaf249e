"""The part of a plan that is the same where the suite drives no data plane: it is what is tested, or there is none."""

from __future__ import annotations

from typing import ClassVar

from conformance.planning.plan import Mode
from conformance.scenario.pool import Pool
from conformance.scenario.schema import BodyMode, Scenario


class Undriven:
    """Traits of such a target (`Traits`), without those that its role adds."""

    __slots__ = ()

    mode: ClassVar[Mode]
    """What stands in the place of a request body mode."""

    @property
    def body_modes(self) -> tuple[BodyMode, ...]:
        """None are driven."""
        return ()

    @property
    def first_pool(self) -> Pool:
        """The ordinary pool; a model server is asked itself, and has none."""
        return Pool()

    def modes(self, scenario: Scenario) -> tuple[Mode, ...]:  # noqa: ARG002 - part of the interface
        """There is one way to send a request."""
        return (self.mode,)
