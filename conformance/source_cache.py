"""What is built from the suite's own data files, kept between processes: reading them takes longer than most commands.

    catalogue = kept("catalogue", sources, build)

A kept value is a pickle, and loading a pickle runs code: it is read only from a folder and a file that this user
owns and nobody else can write, and never through a link. Its key is the digest of the sources, of the code that reads
them, and of the versions of Python and pydantic, so a stale value is not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

import pydantic

from conformance.folder import Folder, open_regular

T = TypeVar("T")

READERS = ("errors.py", "source_cache.py", "strict_yaml.py", "validation.py", "verdict.py", "requirements", "scenario")
"""The code, below this package, that makes values of the sources."""

MOST_BYTES = 16_777_216
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def kept(name: str, sources: Iterable[Traversable], build: Callable[[], T]) -> T:
    """The value of `build()`, which depends on `sources` alone: from the cache where it is there, else built and kept.

    Raises what `build` raises. A cache that can't be read or written is not an error.
    """
    path = _folder() / f"{name}-{_key(name, sources)}.pickle"
    if (raw := _read(path)) is not None:
        with contextlib.suppress(Exception):  # made by a defect or another Python: build again
            return pickle.loads(raw)  # type: ignore[no-any-return]
    value = build()
    with contextlib.suppress(OSError, pickle.PicklingError, TypeError):
        _write(path, pickle.dumps(value, pickle.HIGHEST_PROTOCOL), f"{name}-")
    return value


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111 - no error without a home
    return home / "epp-conformance"


def _key(name: str, sources: Iterable[Traversable]) -> str:
    digest = hashlib.sha256(f"{name} {sys.version} {pydantic.VERSION} {Path(__file__).parent}".encode())
    here = Path(__file__).parent
    code = (file for one in READERS for file in ([here / one] if one.endswith(".py") else (here / one).glob("*.py")))
    for source in (*sources, *sorted(code)):
        raw = source.read_bytes()
        digest.update(f"\n{source.name} {len(raw)}\n".encode() + raw)
    return digest.hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    """The bytes of a file that only this user can have written; else None."""
    with (
        contextlib.suppress(OSError),
        _private(path.parent) as folder,
        open_regular(path.name, MOST_BYTES, within=folder) as file,
    ):
        return file.read() if _only_ours(file.fileno()) else None
    return None


def _write(path: Path, raw: bytes, prefix: str) -> None:
    """Keep one value under this name, and remove those of the same kind that it replaces."""
    if not path.is_absolute():  # a user without a home
        return
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    with _private(path.parent) as folder:
        folder.write(path.name, raw)
        os.chmod(path.name, 0o600, dir_fd=folder.descriptor)
        _remove_old(folder, prefix)


KEPT = 8
"""Values of a kind that stay: several checkouts and versions of Python share the folder."""


def _remove_old(folder: Folder, prefix: str) -> None:
    here: int = folder.descriptor
    names = [name for name in os.listdir(here) if name.startswith(prefix)]
    names.sort(key=lambda name: os.stat(name, dir_fd=here, follow_symlinks=False).st_mtime_ns, reverse=True)
    for name in names[KEPT:]:
        folder.remove(name)


@contextlib.contextmanager
def _private(path: Path) -> Iterator[Folder]:
    """The folder, opened; raises PermissionError if another user could have put something into it."""
    with contextlib.closing(Folder.at(path.parent)) as outer, contextlib.closing(outer.inner(path.name)) as folder:
        if not _only_ours(folder.descriptor):
            raise PermissionError(f"{path}: others may write it")
        yield folder


def _only_ours(descriptor: int) -> bool:
    state = os.fstat(descriptor)
    return state.st_uid == os.geteuid() and not state.st_mode & _OTHERS_MAY_WRITE
