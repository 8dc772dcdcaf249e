"""Running pytest with the plugin: `pytester` in subprocesses, so that each run is a whole one."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run pytest in another process."""

    def start(*arguments: object) -> pytest.RunResult:
        without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # loading it takes half of such a run
        return pytester.runpytest_subprocess(*without, *arguments, timeout=110)

    return start
