"""Snapshots of exchanges: written, compared, different, of another format; with the reference EPP and faulty ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

EPP = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
TEST = """
    import pytest

    def test_picks(proxy, epp_snapshot):
        epp_snapshot(proxy.send(subset=["{b}"]))
        epp_snapshot(proxy.send(prompt="fresh", headers=[["x-tenant", "gold"]]), "any")

    @pytest.mark.parametrize("subset", [["{nobody}"], []])
    def test_nothing(proxy, epp_snapshot, subset):
        epp_snapshot(proxy.send(subset=subset))
"""


@pytest.fixture
def snap(run, pytester: pytest.Pytester):
    """Run the tests against a reference EPP, perhaps with a fault."""
    pytester.makepyfile(test_mine=TEST)

    def start(*arguments: object, fault: str = "") -> pytest.RunResult:
        return run("--epp", EPP + (f" --fault {fault}" if fault else ""), "--epp-fixtures-only", *arguments)

    return start


def files(pytester: pytest.Pytester) -> list[Path]:
    return sorted((pytester.path / "epp_snapshots").rglob("*.yaml"))


def test_a_stored_snapshot_is_compared_in_later_runs(snap, pytester: pytest.Pytester) -> None:
    missing = snap()
    missing.assert_outcomes(failed=3)
    missing.stdout.fnmatch_lines(["*there is no snapshot '1' in epp_snapshots/test_mine/test_picks.yaml*"])
    missing.stdout.fnmatch_lines(["*hint: --epp-update-snapshots writes it*"])
    assert not files(pytester)

    snap("--epp-update-snapshots").assert_outcomes(passed=3)
    written = {path.name: path.read_text() for path in files(pytester)}
    assert set(written) == {"test_picks.yaml", "test_nothing[subset0].yaml", "test_nothing[subset1].yaml"}
    assert "'{endpoint 1}" in written["test_picks.yaml"]
    assert "127." not in "".join(written.values())

    snap().assert_outcomes(passed=3)
    changed = snap(fault="metadata-differs")
    assert changed.parseoutcomes()["failed"] >= 1
    changed.stdout.fnmatch_lines(
        ["*the answers differ from the snapshot 'any' in*", "-*x-gateway-destination-endpoint*"]
    )
    changed.stdout.fnmatch_lines(["*hint: --epp-update-snapshots takes them, if they are right*"])
    assert {path.name: path.read_text() for path in files(pytester)} == written


def test_a_snapshot_that_can_not_be_compared(snap, pytester: pytest.Pytester) -> None:
    snap("--epp-update-snapshots").assert_outcomes(passed=3)
    picks, other, odd = (
        pytester.path / "epp_snapshots/test_mine" / name
        for name in ("test_picks.yaml", "test_nothing[subset0].yaml", "test_nothing[subset1].yaml")
    )
    picks.write_text(picks.read_text().replace("format: 1", "format: 7"))
    other.write_text("format: [")
    odd.write_text("- 1\n")
    result = snap()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*has format 7, and this version of the suite compares format 1*"])
    result.stdout.fnmatch_lines(["*write it again with --epp-update-snapshots*"])
    result.stdout.fnmatch_lines(["*subset0?.yaml:*"])
    result.stdout.fnmatch_lines(["*subset1?.yaml holds no snapshots*"])
