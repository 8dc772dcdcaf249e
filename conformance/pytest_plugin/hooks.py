"""The hooks that a single process and a worker of pytest-xdist have in common."""

from __future__ import annotations

import re

import pytest

from conformance.errors import ConformanceError
from conformance.pytest_plugin.items import ConformanceCollector, InvariantItem, ScenarioItem
from conformance.pytest_plugin.settings import fixtures_only
from conformance.pytest_plugin.suite import PluginSuite


class Hooks:
    """What a single process and a worker have in common: collecting, and the end."""

    def __init__(self, config: pytest.Config, suite: PluginSuite) -> None:
        self.config = config
        self.suite = suite

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the suite's items behind the vendor's own tests."""
        if fixtures_only(self.config):
            return
        collector = ConformanceCollector.of(session, self.suite, with_invariants=not self.is_worker)
        try:
            found = collector.collect()
        except ConformanceError as problem:
            raise usage_error(problem, session.config) from None
        report = pytest.CollectReport(collector.nodeid, "passed", None, list(found))
        session.ihook.pytest_collectreport(report=report)  # the terminal counts what it is told of
        items.extend(found)

    @pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
    def pytest_keep_the_order(self, items: list[pytest.Item]) -> None:
        """The plan's order, whatever other plugins did: scenarios that share a pool follow each other.

        Pytest overlooks hooks whose names do not begin with `pytest_`, whatever their `specname`.
        """
        ours = [item for item in items if isinstance(item, ScenarioItem | InvariantItem)]
        ours.sort(key=lambda item: item.position)
        items[:] = [*(item for item in items if not isinstance(item, ScenarioItem | InvariantItem)), *ours]
        self.suite.selected = tuple((item.version, item.work_id) for item in ours if isinstance(item, ScenarioItem))

    @property
    def is_worker(self) -> bool:
        """Whether this is a worker of pytest-xdist."""
        return hasattr(self.config, "workerinput")

    def pytest_unconfigure(self) -> None:
        """Stop everything, whatever happened."""
        self.suite.close()


def usage_error(problem: ConformanceError, config: pytest.Config) -> pytest.UsageError:
    """The error, with the flags that it names as they are called here."""

    def as_here(flag: re.Match[str]) -> str:
        name = "report" if flag[1] == "output" else flag[1]
        return f"--epp-{name}" if hasattr(config.option, f"epp_{name.replace('-', '_')}") else flag[0]

    return pytest.UsageError(re.sub(r"(?<![\w-])--([a-z][a-z-]*)", as_here, str(problem)))
