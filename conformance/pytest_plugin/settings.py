"""From pytest's options to the settings of a run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli.options import selection
from conformance.cli.target_flags import Named
from conformance.run.session import RunSettings
from conformance.targets.resolve import protocol_versions

if TYPE_CHECKING:
    import pytest


def run_settings(config: pytest.Config, *, seed: int | None = None) -> RunSettings:
    """What the options say; `seed` is the controller's, in a worker. Raises `UsageError`."""
    option = config.getoption
    scenario_paths = [Path(path) for path in option("epp_scenarios") or ()]
    named = Named(
        epp=option("epp"),
        profile=option("epp_profile"),
        binary=option("epp_binary"),
        endpoints=option("epp_endpoints"),
        endpoints_file=_path(option("epp_endpoints_file")),
        body_mode=option("epp_body_mode"),
        tls=option("epp_tls"),
        ca=_path(option("epp_ca")),
        scenarios=scenario_paths,
    )
    resolved = named.resolve()
    if seed is None:
        given = option("epp_seed")
        seed = random.randrange(2**32) if given is None else given
    return RunSettings(
        profile=resolved.profile,
        versions=protocol_versions(resolved.profile, option("epp_protocol_version") or ()),
        selection=selection(
            option("epp_scenario"),
            option("epp_exclude"),
            option("epp_requirement"),
            option("epp_level"),
            option("epp_section"),
            smoke=option("epp_smoke"),
            slow=option("epp_slow"),
        ),
        seed=seed,
        scenario_paths=tuple(scenario_paths),
        values=resolved.values,
        command=named.command_line(),
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
