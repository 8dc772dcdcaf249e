"""The endpoint picker in Go: built, run against 1.0.0 through the Kubernetes emulator, and its report verified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import needs_go

EXAMPLE = Path(__file__).parents[2] / "examples" / "go-epp"


@pytest.mark.program
@needs_go
@pytest.mark.timeout(600)
def test_the_go_example_conforms(tmp_path: Path) -> None:
    binary = tmp_path / "go-epp"
    built = subprocess.run(
        ["go", "build", "-o", binary, "."], cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=400
    )
    assert built.returncode == 0, built.stderr
    command = [sys.executable, "-m", "conformance", "run", "--profile", "go-epp", "--binary", binary]
    ran = subprocess.run(
        [*command, "--output", tmp_path / "report", "--quiet"], capture_output=True, text=True, check=False, timeout=200
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads((tmp_path / "report" / "report.json").read_text())["result"] == "conformant"

    verify = [sys.executable, "-m", "conformance", "report", "verify", tmp_path / "report"]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=100)
    assert verified.returncode == 0, verified.stdout + verified.stderr
