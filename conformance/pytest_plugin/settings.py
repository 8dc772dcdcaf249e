"""From pytest's options to the settings of a run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from conformance.pytest_plugin.options import option_name, options
from conformance.run.request import run_settings
from conformance.targets.flags import SelectionFlags, TargetFlags

if TYPE_CHECKING:
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
    """Whether the suite's scenarios are left out: that is asked for, or only files or tests are named for this run."""
    if (worker := getattr(config, "workerinput", None)) is not None:
        return bool(worker["epp_fixtures_only"])  # a worker is given all paths as if they were named
    if config.getoption("epp_fixtures_only"):
        return True
    if config.args_source is not pytest.Config.ArgsSource.ARGS:  # `testpaths` are no wish for this run
        return False
    return all((config.invocation_params.dir / one.partition("::")[0]).is_file() for one in config.args)
