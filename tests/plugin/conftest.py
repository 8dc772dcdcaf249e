"""Running pytest with the plugin: `pytester` in subprocesses, so that each run is a whole one."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run pytest in a process of its own."""

    def start(*arguments: object) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=110)

    return start
