"""Rules for all tests: programs only under the marker `program`, few `smoke` tests, the order of files."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import settings
from programs import INSTALL, missing

from conformance.run.engine import cores

if TYPE_CHECKING:
    from collections.abc import Generator

SMOKE_TESTS = 100
"""At most so many tests of `make test` start programs: each command, role and output format once."""

STARTS_A_PROGRAM = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen",
}  # fmt: skip
"""Audit events of the interpreter."""

settings.register_profile("all", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)


class UnmarkedProgramError(AssertionError):
    """A test without the marker `program` started a program."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"{cause}: mark the test, or its file by `pytestmark`, with pytest.mark.program")


class ProgramGuard:
    """Refuses to start programs in tests without the marker, and knows the fixtures that start some."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.refused = ""
        self.setting_up: list[pytest.FixtureDef[Any]] = []
        self.fixtures: set[pytest.FixtureDef[Any]] = set()
        sys.addaudithook(self.on_event)
        spawn = uvloop.Loop.subprocess_exec

        async def subprocess_exec(loop: Any, protocol: Any, program: Any, *arguments: Any, **options: Any) -> Any:
            """As uvloop's, which raises no audit event."""
            sys.audit("subprocess.Popen", program, arguments, None, None)
            return await spawn(loop, protocol, program, *arguments, **options)

        uvloop.Loop.subprocess_exec = subprocess_exec

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in STARTS_A_PROGRAM or self.item is None:
            return
        self.fixtures.update(self.setting_up[-1:])
        if not self.item.get_closest_marker("program"):
            self.refused = f"the test starts a program ({event}{arguments[:1]})"
            raise UnmarkedProgramError(self.refused)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.item, self.refused = item, ""
        try:
            return (yield)
        finally:
            self.item = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        self.setting_up.append(fixturedef)
        try:
            return (yield)
        finally:
            self.setting_up.pop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A product that handles the error of `Popen` must not hide it, nor a fixture that ran for another test."""
        result = yield
        if self.refused:
            raise UnmarkedProgramError(self.refused)
        if not item.get_closest_marker("program"):
            for name, definitions in item._fixtureinfo.name2fixturedefs.items():
                if self.fixtures.intersection(definitions):
                    raise UnmarkedProgramError(f"the fixture {name} of the test starts a program")
        return result


def is_quick(config: pytest.Config) -> bool:
    """Whether this is `make test`, which leaves programs out."""
    return "not program" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if is_quick(config) else "all")
    config.pluginmanager.register(ProgramGuard())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name in one line the programs that are missing, and how to install each."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    left_out = [f"{count} {reason}" for reason, count in reasons.items() if reason in map(missing, INSTALL)]
    if left_out:
        terminalreporter.write_line(f"Tests left out: {'; '.join(sorted(left_out))}", yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers of `-n auto`: two a core where half of the time is waiting for programs."""
    return cores() if is_quick(config) else 2 * cores()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine with its argument or fixture `loop`, else with the suite's own engine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})

    pyfuncitem.funcargs.get("loop", uvloop.run)(bounded())
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that start programs first, so that the others fill the workers at the end; then files with many tests.

    pytest-xdist keeps this order with `--no-loadscope-reorder`.
    """
    smoke = sum(1 for item in items if item.get_closest_marker("smoke"))
    if smoke > SMOKE_TESTS:
        raise pytest.UsageError(f"{smoke} tests have the marker smoke, at most {SMOKE_TESTS} may have it")
    programs = {item.path for item in items if item.get_closest_marker("program")}
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in programs, -count[item.path]))
