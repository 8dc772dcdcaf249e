"""From the flags of a face to the settings of a run."""

from __future__ import annotations

import random

from conformance.planning.selection import selection
from conformance.run.data_plane.plane import chosen
from conformance.run.session import RunSettings
from conformance.targets.flags import SelectionFlags, TargetFlags
from conformance.targets.profile import Profile
from conformance.targets.resolve import protocol_versions


def run_settings(target: TargetFlags, what: SelectionFlags) -> RunSettings:
    """The settings of a run of `what` against `target`; what no flag says has its default. Raises `UsageError`."""
    resolved = target.resolve()
    plane = chosen(target.data_plane)
    profile = resolved.profile
    return RunSettings(
        profile=plane.driven(profile) if isinstance(profile, Profile) else profile,
        data_plane=plane,
        versions=protocol_versions(profile, what.protocol_version or ()),
        selection=selection(what),
        seed=random.randrange(2**32) if what.seed is None else what.seed,
        scenario_paths=tuple(what.scenarios or ()),
        values=resolved.values,
        command=target.command_line(what.scenarios or ()),
    )
