"""How many cores a process may use: those that it is given, unless its container has a quota of fewer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.run.engine import cores

pytestmark = pytest.mark.program

QUOTA, PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "what is this"}, 8),
        ({QUOTA: "-1\n", PERIOD: "100000\n"}, 8),
        ({QUOTA: "300000\n", PERIOD: "100000\n"}, 3),
        ({QUOTA: "300000\n"}, 8),
        ({QUOTA: "300000\n", PERIOD: "0\n"}, 8),
    ],
    ids=str,
)
def test_a_quota_of_the_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files, found) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == found
