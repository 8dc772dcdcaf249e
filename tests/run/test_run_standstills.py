"""A machine that stands still again and again: whatever the suite then can't tell is its own trouble."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.standstills import standstills

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"
REFERENCE = [sys.executable, "-m", "reference_epp", "--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}"]
ONCE = ("-k", "destination.completion[http=1]", "--body-mode", "full-duplex")


GATEWAY = [
    *(sys.executable, "-m", "reference_gateway", "--listen=127.0.0.1:{port}", "--epp={epp}", "--endpoints={endpoints}"),
    "--protocol-version={version}",
]


def report(folder: Path, command: list[str], *flags: str) -> dict:
    """That of a run during which suite and target stand still again and again, longer than an answer may take."""
    profile = {
        "timeouts": {"answer": 0.5, "convergence": 1, "start": 60},
        "discovery": {"file": {"reread": 0.05}, "scrapes": False},
        "start": {"command": command},
    }
    return standing(folder, profile, ("--jobs", "1", *flags), seconds=(0.7, 1.3))


def standing(folder: Path, profile: dict, flags: Sequence[str], **how: Any) -> dict:
    """The report of a run of the profile during which the suite stands still again and again (`standstills`)."""
    (folder / "profile.yaml").write_text(json.dumps(profile))
    flags = ("--profile", "profile.yaml", "-q", "-o", "r", *flags)
    run = subprocess.Popen([sys.executable, "-m", "conformance", "run", *flags], cwd=folder)
    with standstills(run.pid, between=(0.2, 0.8), seed=1, **how):
        run.wait()
    return json.loads((folder / "r/report.json").read_text())


def test_a_right_target_is_accused_of_nothing(tmp_path: Path) -> None:
    chosen = ("-k", "destination.completion*", "-k", "destination.every-connection*")
    made = report(tmp_path, REFERENCE, *chosen, "--body-mode", "full-duplex")
    assert {row["verdict"] for row in made["requirements"]}.isdisjoint({"fail", "warn"})


def test_a_wrong_answer_stays_one(tmp_path: Path) -> None:
    made = report(tmp_path, [*REFERENCE, "--fault=metadata-differs"], *ONCE)
    assert [row["id"] for row in made["requirements"] if row["verdict"] == "fail"] == ["EPP-DEST-05"]
