"""Scratch folders: what a killed suite leaves is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conformance.run.scratch import PREFIX, ScratchFolder

OWNER = """
from conformance.run.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "kubeconfig").write_text("secret")
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owner() -> subprocess.Popen[str]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ.copy()
    ) as process:
        yield process
        process.kill()


def test_the_folder_of_a_killed_process_is_removed(owner: subprocess.Popen[str]) -> None:
    left = Path(owner.stdout.readline().strip())
    folder = ScratchFolder()
    assert left.is_dir(), "its owner runs"
    owner.kill()
    owner.wait()
    ScratchFolder().remove()
    assert not left.exists()
    assert folder.path.is_dir(), "this process owns it"
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_other_folders_stay(place: Path) -> None:
    for name in (f"{PREFIX}mine", "other"):
        (place / name).mkdir()
        (place / name / "file").write_text("")
    (place / "other" / ".lock").write_text("")
    ScratchFolder().remove()
    assert {path.name for path in place.iterdir()} == {f"{PREFIX}mine", "other"}
