"""What holds for all tests: how many run side by side, and that no example of a property fails for its time."""

from __future__ import annotations

import pytest
from hypothesis import settings

from conformance.run.engine import cores

settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Workers of `-n auto`: two a core, as half of the time of most tests is waiting for programs that they started."""
    return 2 * cores()
