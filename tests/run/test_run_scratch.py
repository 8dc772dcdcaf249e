"""Scratch folders: those without an owner are removed, whatever is in them, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.run import scratch
from conformance.run.scratch import PREFIX, ScratchFolder, clear

NOBODY = 65534

pytestmark = pytest.mark.program

OWNER = """
from conformance.run.scratch import ScratchFolder
folder = ScratchFolder()
folder.write("kubeconfig", "secret")
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
    clear()
    assert left.is_dir(), "its owner runs"
    owner.kill()
    owner.wait()
    clear()
    assert not left.exists()
    assert folder.path.is_dir(), "this process owns it"
    folder.release()
    folder.release()
    clear()
    assert not folder.path.exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes of a run start at once, and each removes the folders that have no owner."""
    make, made = tempfile.mkdtemp, []

    def removed_once(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", removed_once)
    folder = ScratchFolder()
    assert str(folder.path) == made[1]
    folder.release()


def test_other_folders_stay(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (outside := tmp_path_factory.mktemp("outside") / "file").write_text("")
    (place / f"{PREFIX}link").symlink_to(outside.parent)
    (place / f"{PREFIX}file").write_text("")
    (place / "other").mkdir()
    clear()
    assert {path.name for path in place.iterdir()} == {f"{PREFIX}link", f"{PREFIX}file", "other"}
    assert outside.exists()


def _deep(work: Path, _: Path) -> None:
    here = os.open(work, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 200, dir_fd=here)
        here, outer = os.open("d" * 200, os.O_RDONLY, dir_fd=here), here
        os.close(outer)
    os.close(here)


def _links(work: Path, outside: Path) -> None:
    (work / "folder").symlink_to(outside)
    (work / "file").symlink_to(outside / "file")
    os.mkfifo(work / "fifo")


def _closed(work: Path, _: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "file").write_text("")
    for path in (work / "a" / "b" / "file", work / "a" / "b", work / "a"):
        path.chmod(0)


LEFT: dict[str, Callable[[Path, Path], None]] = {
    "nothing": lambda *_: None,
    "1,500 nested folders": _deep,
    "names that are no UTF-8": lambda work, _: Path(os.fsdecode(os.fsencode(work) + b"/\xff\xfe/\n")).mkdir(
        parents=True
    ),
    "links": _links,
    "folders that nobody may enter": _closed,
}
"""What a target may leave in its folder; it knows a folder of somebody else."""


@pytest.mark.parametrize("what", LEFT)
def test_whatever_a_target_leaves_is_removed(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """By a user who is not root: root may enter every folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o777)
        (outside := Path(place, "outside")).mkdir()
        (outside / "file").write_text("of the user")
        monkeypatch.setattr(tempfile, "tempdir", place)
        if not (child := os.fork()):
            try:
                if not os.geteuid():
                    os.setuid(NOBODY)
                folder = ScratchFolder()
                LEFT[what](folder.work, outside)
                folder.release()
                for _ in range(10):  # a busy machine needs more than one removal
                    clear()
                os._exit(folder.path.exists())
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert [path.name for path in Path(place).iterdir()] == ["outside"]
        assert (outside / "file").read_text() == "of the user"


def test_the_time_of_a_removal_is_bounded_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ScratchFolder()
    for number in range(300):
        (folder.work / str(number)).touch()
    folder.release()
    with monkeypatch.context() as bounded:
        bounded.setattr(scratch, "MOST_SECONDS", -1)
        clear()
    assert len(list(folder.work.iterdir())) == 300
    clear()
    assert not folder.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_mount_is_left_alone(tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    (source / "file").write_text("of the user")
    folder = ScratchFolder()
    (inner := folder.work / "deep" / "mount").mkdir(parents=True)
    if subprocess.run(["mount", "--bind", source, inner], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        folder.release()
        clear()
        assert (source / "file").read_text() == "of the user"
    finally:
        for path in folder.path.rglob("mount"):
            subprocess.run(["umount", path], check=True)
