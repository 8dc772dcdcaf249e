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

import pytest

from conformance.pytest_plugin.options import add_options

NAMED_BY = ("epp", "epp_profile")
"""Options that name a target, and so turn the plugin on."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `epp-conformance run`, each with the prefix `--epp`."""
    add_options(parser.getgroup("epp-conformance", "conformance to the Endpoint Picker Protocol"))


def pytest_configure(config: pytest.Config) -> None:
    """Load the suite if a target is named."""
    if all(config.getoption(name) is None for name in NAMED_BY):
        return
    from conformance.pytest_plugin import plugin

    plugin.install(config)
