"""Files in folders that somebody else can write to: the target, or another user of the machine.

A path says nothing about what is there a moment later: a link, a FIFO or another folder may take the place of any part
of it. So a folder is opened once, and everything in it is reached from its descriptor, by name, without following
links. What is written is a new file with a name nobody can foresee, moved to its place when it is whole; what is read
is a regular file, up to a bound.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDWR
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """A folder that is open. All methods raise `OSError`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path
        """Where it was when it was opened: for people."""
        self.close = weakref.finalize(self, os.close, descriptor)
        """Close the descriptor; at the latest when nobody has the folder any more. Idempotent."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """The folder at a path of the user's, whose links are followed."""
        return cls(os.open(path, _FOLDER), path)

    def inner(self, name: str, *, make: bool = False) -> Folder:
        """A folder in this one; with `make` it need not be there yet."""
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self.descriptor)
        found = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.descriptor)
        return Folder(found, self.path / name)

    def create(self, name: str) -> IO[bytes]:
        """A new file in place of what is called `name`, to be written piece by piece."""
        self.remove(name)
        return os.fdopen(os.open(name, _NEW, 0o666, dir_fd=self.descriptor), "wb")

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file that takes the place of what is called `name` when it is whole; until then that stays as it was.

        An `OSError` names the file, which that of a full disk does not.
        """
        beside = self._beside(name)
        try:
            with self.create(beside) as file:
                yield file
            self._move(beside, name)
        except BaseException as problem:
            with contextlib.suppress(OSError):
                self.remove(beside)
            if isinstance(problem, OSError):
                raise OSError(problem.errno, problem.strerror, str(self.path / name)) from None
            raise

    def keep(self, name: str, file: IO[bytes]) -> None:
        """Put a file that was made by `create` back in its place, if something else took that."""
        file.flush()
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(file.fileno())):
                return
        with os.fdopen(os.dup(file.fileno()), "rb") as source, self.writing(name) as copy:
            source.seek(0)
            shutil.copyfileobj(source, copy)

    def write(self, name: str, content: bytes) -> None:
        """Put a file with this content in place of what is called `name`."""
        with self.writing(name) as file:
            file.write(content)

    def link(self, name: str, target: str) -> None:
        """Put a symbolic link in place of what is called `name`."""
        beside = self._beside(name)
        os.symlink(target, beside, dir_fd=self.descriptor)
        self._move(beside, name)

    def move_aside(self, name: str) -> None:
        """Give what is called `name` another name."""
        self._move(name, f"{name}.{secrets.token_hex(4)}")

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def _move(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    @staticmethod
    def _beside(name: str) -> str:
        return f".{name}.{secrets.token_hex(8)}"


def open_regular(
    path: str | Path, most: int, *, within: Folder | None = None, follow: bool = False
) -> io.BufferedReader:
    """A regular file of at most so many bytes, for reading. With `follow`, the path is the user's and may be a link.

    Raises `OSError`, for a link (ELOOP), another kind of file (EINVAL) and a larger one (EFBIG), too.
    """
    flags = _FILE & ~os.O_NOFOLLOW if follow else _FILE
    descriptor = os.open(path, flags, dir_fd=within.descriptor if within is not None else None)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        if found.st_size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
