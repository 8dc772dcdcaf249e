"""The pytest plugin: the suite as tests, and fixtures for a vendor's own tests.

    pytest --epp reference                                  # one item per scenario and per universal requirement
    pytest --epp-profile my-epp.yaml -n 2                   # with pytest-xdist, each worker has its own target
    pytest --epp-profile my-epp.yaml --epp-fixtures-only    # only the vendor's own tests, with the fixtures

The fixtures exist when a target is named (best in `addopts`):

    def test_my_header(proxy, pool):
        pool.set("a", queue=9)
        sent = proxy.send(subset=["{b}"], headers=[["x-tenant", "gold"]])
        assert sent.picked == pool.endpoints["b"]
        assert not sent.violations

`epp` is the running target, `pool` its pods (three idle ones at the start of each test), `proxy` the data plane.

Without `--epp` or `--epp-profile` only this module and the declaration of its options are imported.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from conformance.pytest_plugin.options import add_options

NAMED_BY = ("epp", "epp_profile")
"""Options that name a target, and so turn the plugin on."""

FIXTURES = ("epp", "pool", "proxy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `epp-conformance run`, each with the prefix `--epp`."""
    add_options(parser.getgroup("epp-conformance", "conformance to the Endpoint Picker Protocol"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """To a fixture of the suite that is missing, as no target is named, add how one is named."""
    report = yield
    problem = call.excinfo.value if call.excinfo is not None else None
    if isinstance(problem, pytest.FixtureLookupError) and problem.argname in FIXTURES and not _is_on(item.config):
        what = f"the fixture {problem.argname!r} needs a target: --epp TARGET or --epp-profile FILE|NAME"
        report.sections.append(("epp-conformance", f"{what}, best in `addopts`"))
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Load the suite if a target is named."""
    if not _is_on(config):
        return
    from conformance.pytest_plugin import plugin

    plugin.install(config)


def _is_on(config: pytest.Config) -> bool:
    return any(config.getoption(name) is not None for name in NAMED_BY)
