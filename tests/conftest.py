"""What holds for all tests: how many run side by side, and that no example of a property fails for its time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from conformance.run.engine import cores

LONG = (
    "cli/test_cli_kubernetes_readers", "run/test_run_order", "examples/test_rust_epp", "run/test_run_settling",
    "docs/test_samples", "adoption/test_action", "cli/test_cli_watch", "cli/test_cli_proxy", "packaging/test_wheel",
    "examples/test_go_epp", "cli/test_cli_selftest_model_servers",
)  # fmt: skip
"""Files with few tests that take minutes. They begin first, so that no worker is left alone with one at the end."""
FIRST = [Path(__file__).parent / f"{name}.py" for name in LONG]
assert all(file.exists() for file in FIRST)

settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Workers of `-n auto`: two a core, as half of the time of most tests is waiting for programs that they started."""
    return 2 * cores()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these first, then files with many tests; pytest-xdist keeps this order with `--no-loadscope-reorder`."""
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in FIRST, -count[item.path]))
