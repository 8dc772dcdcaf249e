"""The options of the pytest plugin: the flags of `epp-conformance run`, each with the prefix `--epp`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.targets.flags import OF_OTHER_ROLES, Flag, SelectionFlags, TargetFlags, flags

FIXTURES_ONLY = "Collect no scenarios, only offer the fixtures: as where files are named (`pytest test_mine.py`)."


def add_options(group: pytest.OptionGroup) -> None:
    """Add every option to `group`."""
    for flag in (*options(TargetFlags), *options(SelectionFlags)):
        name = f"--{option_name(flag).replace('_', '-')}"
        if flag.type is bool:
            group.addoption(name, action="store_true", help=flag.help)
        else:
            action = "append" if flag.repeated else "store"
            group.addoption(
                name, action=action, type=flag.type, metavar=flag.metavar or flag.name.upper(), help=flag.help
            )
    group.addoption("--epp-report", metavar="DIR", help="Write report, evidence, HTML and JUnit here.")
    group.addoption("--epp-fixtures-only", action="store_true", help=FIXTURES_ONLY)
    group.addoption("--epp-update-snapshots", action="store_true", help="Take what comes into the snapshots of tests.")


def options(group: type[TargetFlags] | type[SelectionFlags]) -> Iterator[Flag]:
    """The flags of a group that pytest has: a gateway or a model server is named by its profile."""
    return (flag for flag in flags(group) if flag.name not in OF_OTHER_ROLES)


def option_name(flag: Flag) -> str:
    """What pytest calls a flag: `epp_endpoints_file`."""
    return flag.name if flag.name == "epp" else f"epp_{flag.name}"
