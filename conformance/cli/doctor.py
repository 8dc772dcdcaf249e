"""`epp-conformance doctor`: is this machine, and is this target, ready to be tested?"""

from __future__ import annotations

from typing import Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import TargetFlags


@options.spelt_out
def doctor(
    target: Annotated[TargetFlags, options.Taken(without=("data_plane",))],
) -> None:
    """Check the machine, and the target if one is named; say what to fix."""
    from conformance.cli.diagnose import target as diagnose
    from conformance.cli.diagnose_machine import machine
    from conformance.cli.diagnosis import show_answers
    from conformance.targets.resolve import protocol_versions

    well = show_answers(machine())
    if target == TargetFlags():
        raise typer.Exit(0 if well else 3)
    resolved = target.resolve()
    ready = show_answers(diagnose(resolved, protocol_versions(resolved.profile)[-1]))
    raise typer.Exit(4 if not ready else 0 if well else 3)
