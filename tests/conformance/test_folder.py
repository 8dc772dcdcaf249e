"""Files in folders that others can write to: links are not followed, and nothing but a regular file is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.folder import Folder, open_regular

TAKEN: dict[str, Callable[[Path, Path], object]] = {
    "nothing": lambda place, _: None,
    "file": lambda place, _: place.write_text("before"),
    "link": lambda place, outside: place.symlink_to(outside),
    "dangling link": lambda place, outside: place.symlink_to(outside.with_name("none")),
    "FIFO": lambda place, _: os.mkfifo(place),
}
"""What may be where a file is written, given a file of somebody else."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (path := tmp_path / "outside").write_text("of the user")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (path := tmp_path / "folder").mkdir()
    return Folder.at(path)


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("how", ["write", "create", "link"])
def test_a_file_takes_the_place_of_whatever_is_there(folder: Folder, outside: Path, taken: str, how: str) -> None:
    TAKEN[taken](folder.path / "name", outside)
    if how == "write":
        folder.write("name", b"new")
    elif how == "create":
        with folder.create("name") as file:
            file.write(b"new")
    else:
        (folder.path / "new").write_text("new")
        folder.link("name", "new")
    assert (folder.path / "name").read_text() == "new"
    assert outside.read_text() == "of the user"
    assert {path.name for path in folder.path.iterdir()} <= {"name", "new"}


@pytest.mark.parametrize("taken", ["link", "dangling link", "FIFO"])
def test_only_a_regular_file_is_read(folder: Folder, outside: Path, taken: str) -> None:
    TAKEN[taken](folder.path / "name", outside)
    with pytest.raises(OSError, match=r"regular|symbolic"):
        open_regular("name", 100, within=folder)


def test_a_large_file_is_not_read(folder: Folder) -> None:
    (folder.path / "name").write_bytes(bytes(11))
    with pytest.raises(OSError, match="too large"):
        open_regular("name", 10, within=folder)


def test_a_folder_that_became_a_link_is_not_entered(folder: Folder, tmp_path: Path) -> None:
    (folder.path / "inner").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        folder.inner("inner", make=True)
    assert not (tmp_path / "file").exists()


def test_a_file_that_fails_leaves_what_was_there(folder: Folder) -> None:
    folder.write("name", b"before")
    with pytest.raises(OSError, match=r"full.*name"), folder.writing("name"):
        raise OSError(28, "full")
    assert [(path.name, path.read_text()) for path in folder.path.iterdir()] == [("name", "before")]


def test_evidence_that_something_took_the_place_of_is_put_back(folder: Folder, outside: Path) -> None:
    with folder.create("name") as file:
        file.write(b"kept")
        (folder.path / "name").unlink()
        (folder.path / "name").symlink_to(outside)
        folder.keep("name", file)
    assert (folder.path / "name").read_bytes() == b"kept"
    assert outside.read_text() == "of the user"
