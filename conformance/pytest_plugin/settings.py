"""From pytest's options to the settings of a run."""

from __future__ import annotations

import dataclasses
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
