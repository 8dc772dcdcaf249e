"""What breaks in the suite's own code while a load runs is no finding about the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.load.exchange import LiveExchange
from conformance.load.traffic import Traffic

pytestmark = pytest.mark.program


def breaks(*_: Any, **__: Any) -> None:
    raise LookupError("what the suite got wrong")


@pytest.mark.parametrize(
    ("of", "method", "rate"),
    [
        (LiveExchange, "judge", 20),
        (LiveExchange, "judge", 1000),  # many are under way when connections are closed
        (LiveExchange, "due", 20),
        (Traffic, "_connections", 20),
    ],
)
def test_a_defect_of_the_suite_ends_the_load_and_accuses_nobody(
    cli, tmp_path: Path, monkeypatch, of: type, method: str, rate: int
) -> None:
    """In the callbacks of a connection, and in tasks that nobody waits for."""
    monkeypatch.setattr(of, method, breaks)
    ran = cli("load", "--rate", rate, "--seconds", "2", "-o", tmp_path / "r")
    assert ran.code == 3, ran.out + ran.err
    assert "LookupError: what the suite got wrong" in ran.err
    assert "a defect of the suite, not of the target" in ran.err
    assert not (tmp_path / "r" / "load.json").exists()
