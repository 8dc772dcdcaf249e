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

Without `--epp` or `--epp-profile` nothing of the suite is imported: this module holds only the options.
"""

from __future__ import annotations

import pytest

NAMED_BY = ("epp", "epp_profile")
"""Options that name a target, and so turn the plugin on."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `epp-conformance run`, each with the prefix `--epp`."""
    group = parser.getgroup("epp-conformance", "conformance to the Endpoint Picker Protocol")
    add = group.addoption
    add("--epp", metavar="TARGET", help="test this endpoint picker: reference, HOST:PORT, 'cmd:COMMAND', image:IMAGE")
    add("--epp-profile", metavar="FILE|NAME", help="test the endpoint picker of this profile")
    add("--epp-binary", metavar="PATH", help="the program that fills {binary} in the profile")
    add("--epp-endpoints", metavar="IP:PORT,…", action="append", help="endpoints that the target knows")
    add("--epp-endpoints-file", metavar="PATH", help="file that the target watches: one endpoint a line")
    add("--epp-body-mode", metavar="MODE", action="append", help="full-duplex, buffered, streamed, none; repeatable")
    add("--epp-tls", metavar="MODE", help="plaintext, unverified or verified")
    add("--epp-ca", metavar="PEM", help="what must have signed the target's certificate")
    add("--epp-protocol-version", metavar="VERSION|all", action="append", help="versions to judge; repeatable")
    add("--epp-scenario", metavar="ID|GLOB", action="append", help="only these scenarios; repeatable")
    add("--epp-exclude", metavar="ID|GLOB", action="append", help="not these scenarios; repeatable")
    add("--epp-requirement", metavar="ID", action="append", help="only scenarios of this requirement; repeatable")
    add("--epp-level", metavar="LEVEL", action="append", help="only requirements of this level; repeatable")
    add("--epp-section", metavar="NAME", action="append", help="only scenarios of this section; repeatable")
    add("--epp-smoke", action="store_true", help="only the smoke set")
    add("--epp-slow", action="store_true", help="slow scenarios too")
    add("--epp-scenarios", metavar="DIR|FILE", action="append", help="further scenario files; repeatable")
    add("--epp-seed", metavar="N", type=int, help="for the same prompts as in another run")
    add("--epp-report", metavar="DIR", help="write report, evidence, HTML and JUnit here")
    add("--epp-fixtures-only", action="store_true", help="collect no scenarios, only offer the fixtures")


def pytest_configure(config: pytest.Config) -> None:
    """Load the suite if a target is named."""
    if all(config.getoption(name) is None for name in NAMED_BY):
        return
    from conformance.pytest_plugin import plugin

    plugin.install(config)
