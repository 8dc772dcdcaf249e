"""From pytest's options to the settings of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.pytest_plugin.options import option_name, options
from conformance.run.request import run_settings
from conformance.targets.flags import SelectionFlags, TargetFlags

if TYPE_CHECKING:
    import pytest

    from conformance.run.session import RunSettings


def settings_of(config: pytest.Config, *, seed: int | None = None) -> RunSettings:
    """What the options say; `seed` is the controller's, in a worker. Raises `UsageError`."""

    def given(group: type[TargetFlags] | type[SelectionFlags]) -> dict[str, Any]:
        return {flag.name: config.getoption(option_name(flag)) for flag in options(group)}

    what = SelectionFlags(**given(SelectionFlags))
    return run_settings(
        TargetFlags(**given(TargetFlags)), what if seed is None else dataclasses.replace(what, seed=seed)
    )


def fixtures_only(config: pytest.Config) -> bool:
    """Whether the suite's scenarios are left out: that is asked for, or only files or tests of one's own are named."""
    named = [config.invocation_params.dir / Path(one.partition("::")[0]) for one in config.args]
    return bool(config.getoption("epp_fixtures_only") or (named and all(one.is_file() for one in named)))
