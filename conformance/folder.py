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
import time
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

    def clear(self, until: float) -> None:
        """Remove all that is in it until the monotonic clock says `until`; what can't be removed is left.

        Folders may be nested deeper than this process may open or recurse: what is in a folder is moved up. A mount
        can't be moved, so nothing in one is touched.
        """
        removing = True
        while removing:
            removing = False
            with os.scandir(self.descriptor) as entries:
                for entry in entries:
                    if time.monotonic() > until:
                        return
                    removing |= self.unlink(entry.name) or self._dissolve(entry.name, until)

    def _dissolve(self, name: str, until: float) -> bool:
        """Move what is in a folder up, and remove it. Whether anything of it was removed or moved."""
        done = False
        with contextlib.suppress(OSError):
            moved = self._beside(name[:16])
            self._move(name, moved)
            with contextlib.closing(self._permitted(moved)) as folder, os.scandir(folder.descriptor) as entries:
                for entry in entries:
                    if time.monotonic() > until:
                        return done
                    done |= folder.unlink(entry.name) or folder.move_up(entry.name, self)
            os.rmdir(moved, dir_fd=self.descriptor)
            done = True
        return done

    def unlink(self, name: str) -> bool:
        """Remove a file or a link, if that is possible. Whether it was."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except OSError:
            return False
        return True

    def move_up(self, name: str, to: Folder) -> bool:
        """Move a folder into another, under a random name, if that is possible. Whether it was."""
        beside = self._beside("")
        try:
            try:
                os.rename(name, beside, src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)
            except PermissionError:  # moving a folder needs the right to write to it
                self._permitted(name).close()
                os.rename(name, beside, src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)
        except OSError:
            return False
        return True

    def _permitted(self, name: str) -> Folder:
        """A folder in this one, with all rights for its owner where this process is that."""
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            status = os.fstat(found)
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU and status.st_dev == os.fstat(self.descriptor).st_dev:
                Path(f"/proc/self/fd/{found}").chmod(stat.S_IRWXU)
        finally:
            os.close(found)
        return self.inner(name)

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
