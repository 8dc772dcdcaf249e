"""The endpoint picker in Rust: built, its own tests, and a run against 1.0.0 whose report is verified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import needs_rust

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "rust-epp"
BUILT = ROOT / "build" / "rust-epp"
"""Kept from run to run: the crates take about a minute of processor time."""


@pytest.mark.program
@needs_rust
@pytest.mark.timeout(900)
def test_the_rust_example_conforms(tmp_path: Path) -> None:
    for task in ("build", "test"):
        command = ["cargo", task, "--locked", "--quiet", "--target-dir", BUILT]
        built = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=600)
        assert built.returncode == 0, built.stdout + built.stderr

    program = BUILT / "debug" / "rust-epp"
    profile = tmp_path / "profile.yaml"
    text = (EXAMPLE / "profile.yaml").read_text()
    assert "target/debug/rust-epp" in text
    profile.write_text(text.replace("target/debug/rust-epp", str(program)))
    command = [sys.executable, "-m", "conformance", "run", "--profile", profile, "--output", tmp_path / "report"]
    ran = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads((tmp_path / "report" / "report.json").read_text())["result"] == "conformant"

    verify = [sys.executable, "-m", "conformance", "report", "verify", tmp_path / "report"]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=100)
    assert verified.returncode == 0, verified.stdout + verified.stderr
