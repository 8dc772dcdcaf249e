"""The cache of the suite's own data: used where only this user can have written it, and never needed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.source_cache import KEPT, kept


class Evil:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "epp-conformance"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source.yaml"
    file.write_text("1")
    return file


def failing() -> str:
    raise AssertionError("the value was built again")


def test_a_value_is_built_once_for_each_content(folder: Path, source: Path) -> None:
    assert kept("v", [source], lambda: "one") == "one"
    assert kept("v", [source], failing) == "one"
    source.write_text("2")
    assert kept("v", [source], lambda: "two") == "two"


def test_an_error_of_the_builder_is_raised_and_not_kept(folder: Path, source: Path) -> None:
    with pytest.raises(AssertionError):
        kept("v", [source], failing)
    assert kept("v", [source], lambda: "one") == "one"


def _world_writable_file(path: Path, other: Path) -> None:
    path.chmod(0o666)


def _world_writable_folder(path: Path, other: Path) -> None:
    path.parent.chmod(0o777)


def _link_to_a_file(path: Path, other: Path) -> None:
    path.rename(other)
    path.symlink_to(other)


def _link_to_a_folder(path: Path, other: Path) -> None:
    path.parent.rename(other)
    path.parent.symlink_to(other)


def _pipe(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _cut(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    "unsafe", [_world_writable_file, _world_writable_folder, _link_to_a_file, _link_to_a_folder, _pipe]
)
def test_a_file_that_others_may_have_written_is_not_loaded(
    folder: Path, source: Path, tmp_path: Path, unsafe: Callable[[Path, Path], None]
) -> None:
    kept("v", [source], lambda: "one")
    (path,) = folder.iterdir()
    path.write_bytes(pickle.dumps(Evil(tmp_path / "loaded")))
    unsafe(path, tmp_path / "other")
    assert kept("v", [source], lambda: "two") == "two"
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("broken", [_cut, _pipe])
def test_a_broken_file_is_replaced(
    folder: Path, source: Path, broken: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    kept("v", [source], lambda: "one")
    (path,) = folder.iterdir()
    broken(path, tmp_path)
    assert kept("v", [source], lambda: "two") == "two"
    assert kept("v", [source], failing) == "two"


def test_a_cache_that_cannot_be_written_is_no_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept("v", [source], lambda: "one") == "one"


def test_old_values_are_removed(folder: Path, source: Path) -> None:
    for number in range(KEPT + 3):
        source.write_text(str(number))
        kept("v", [source], lambda number=number: number)
    assert len(list(folder.iterdir())) == KEPT
