"""The plugin once a target is named: its hooks, and the one report, also of several workers."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.errors import ConformanceError
from conformance.folder import Folder
from conformance.pytest_plugin import fixtures, snapshots
from conformance.pytest_plugin.hooks import Hooks, usage_error
from conformance.pytest_plugin.items import ConformanceCollector, InvariantItem, batches_by_item, invariant_reports
from conformance.pytest_plugin.settings import fixtures_only, settings_of
from conformance.pytest_plugin.suite import SUITE, PluginSuite
from conformance.report.render.folder import EvidenceKeeper, reserved, write_all

if TYPE_CHECKING:
    from conformance.report.document.model import Report

PLUGIN = "epp-conformance-active"


def install(config: pytest.Config) -> None:
    """Read the options and register what does the work. Raises `pytest.UsageError`."""
    folder: Folder | None = None
    try:
        worker = getattr(config, "workerinput", None)
        settings = settings_of(config, seed=worker["epp_seed"] if worker else None)
        if (output := config.getoption("epp_report")) and worker is None:
            stack = contextlib.ExitStack()
            folder = stack.enter_context(reserved(Path(output)))
            config.add_cleanup(stack.close)
        suite = PluginSuite(settings)
        if worker is None and not fixtures_only(config):
            for version in settings.versions:
                suite.session(version)  # what is wrong with the selection is said here, and not by each worker
    except ConformanceError as problem:
        raise usage_error(problem, config) from None
    config.stash[SUITE] = suite
    config.addinivalue_line("markers", "epp_conformance: a scenario or an invariant of epp-conformance")
    config.pluginmanager.register(_worker(config, suite) if worker else Plugin(config, suite, folder), PLUGIN)
    config.pluginmanager.register(fixtures, f"{PLUGIN}-fixtures")
    config.pluginmanager.register(snapshots, f"{PLUGIN}-snapshots")


def _worker(config: pytest.Config, suite: PluginSuite) -> Hooks:
    from conformance.pytest_plugin.workers import XdistWorker

    return XdistWorker(config, suite)


class Plugin(Hooks):
    """Without pytest-xdist, and as its controller: writes the report."""

    def __init__(self, config: pytest.Config, suite: PluginSuite, folder: Folder | None) -> None:
        super().__init__(config, suite)
        self._parts: Path | None = None
        self._keeper: EvidenceKeeper | None = None
        self._report: Report | None = None
        self._left_out: list[InvariantItem] = []
        self._note = self._one_worker() if self._distributed else ""
        self._folder = folder
        if folder is not None:
            self._keeper = EvidenceKeeper(folder)
            self._keeper.__enter__()
            suite.listen(self._keeper)

    @property
    def _distributed(self) -> bool:
        return bool(getattr(self.config.option, "tx", None)) and self.config.option.dist != "no"

    def _one_worker(self) -> str:
        """Two processes must not change one pool: if the target can't be had twice, there is one worker."""
        reason = self.suite.settings.profile.only_one_at_a_time
        if reason is None or len(self.config.option.tx) < 2:
            return ""
        self.config.option.tx = self.config.option.tx[:1]
        self.config.option.numprocesses = 1
        return f"epp-conformance: one worker only: {reason}"

    def pytest_report_header(self) -> list[str]:
        """What is tested."""
        settings = self.suite.settings
        name = settings.profile.name or self.config.getoption("epp") or "reference"
        line = f"epp-conformance: target {name}, protocol {', '.join(settings.versions)}, seed {settings.seed}"
        left_out = "epp-conformance: no scenarios, only the fixtures" if fixtures_only(self.config) else ""
        return [one for one in (line, left_out, self._note) if one]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object:
        """Scenarios that share a pool go to one worker; all else as with `--dist loadgroup`."""
        from conformance.pytest_plugin.workers import ByBatch

        return ByBatch(config, log, batches_by_item(self.suite)) if config.getvalue("dist") in ByBatch.WITH else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what all must have in common."""
        if self._parts is None:
            self._parts = Path(tempfile.mkdtemp(prefix="epp-conformance-"))
        node.workerinput["epp_fixtures_only"] = fixtures_only(self.config)
        node.workerinput["epp_seed"] = self.suite.settings.seed
        node.workerinput["epp_parts"] = str(self._parts)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """`-k` for a scenario leaves out the invariants, too, which is not always meant."""
        self._left_out += [item for item in items if isinstance(item, InvariantItem)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """After the loop: as a controller, take what the workers found, and judge the invariants over all of it."""
        outcome = yield
        if self._parts is not None:
            from conformance.pytest_plugin.workers import events

            for event in events(self._parts):
                self.suite.take(event)
            for report in invariant_reports(self._invariants(session)):
                session.testscollected += 1
                session.config.hook.pytest_runtest_logreport(report=report)
        return outcome

    def _invariants(self, session: pytest.Session) -> list[InvariantItem]:
        """As a controller, which collects nothing: the invariants that `-k`, `-m` and `--deselect` leave."""
        if fixtures_only(self.config):
            return []
        found = ConformanceCollector.of(session, self.suite, with_invariants=True).collect()
        items: list[pytest.Item] = [item for item in found if isinstance(item, InvariantItem)]
        choose = self.config.pluginmanager.subset_hook_caller("pytest_collection_modifyitems", remove_plugins=[self])
        choose(session=session, config=self.config, items=items)
        return [item for item in items if isinstance(item, InvariantItem)]

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self.suite.settle()
        if self._keeper is not None:
            self._keeper.__exit__(None, None, None)
        if not self.suite.has_results:
            return
        self._report = self.suite.report(self._keeper.writer if self._keeper else None)
        if self._folder is not None:
            write_all(self._report, self._folder)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The suite's own summary."""
        if self._report is None:
            return
        from conformance.report.render.text import summary_text

        folder = self.config.getoption("epp_report")
        terminalreporter.section("Endpoint Picker Protocol")
        for line in summary_text(self._report, [Path(folder) / "report.html"] if folder else []).plain.splitlines():
            terminalreporter.write_line(line)
        if self._left_out and self.suite.stopped is None:
            broken = ", ".join(item.name for item in self._left_out if item.is_broken)
            terminalreporter.write_line(
                f"deselected   {len(self._left_out)} invariants, rules that hold over all scenarios; "
                f"{f'broken: {broken}' if broken else 'what was run breaks none'} (--epp-scenario keeps them)",
                red=bool(broken),
            )

    def pytest_unconfigure(self) -> None:
        """Stop everything, and remove what the workers left."""
        super().pytest_unconfigure()
        if self._parts is not None:
            shutil.rmtree(self._parts, ignore_errors=True)
