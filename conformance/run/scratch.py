"""The scratch folder of a running target: gone when the suite lets go of it, at the latest when the next one is made.

It has two parts. The target may do what it likes in its own; the other has the suite's files, such as the endpoints,
which containers see read-only.

A suite that is killed can't clean up. Each folder has a file that its process keeps locked; what is not locked any more
has no owner. The kernel ends a lock with the process, so that a process id that is used again deceives no one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from conformance.folder import Folder

PREFIX = "epp-conformance-"
LOCK = ".lock"


class ScratchFolder:
    """A new folder in the system's place for temporary files; those that have no owner any more are removed first."""

    def __init__(self) -> None:
        clear()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.work, self.own = self.path / "work", self.path / "suite"
        self.work.mkdir()
        self._files = Folder.at(self.path).inner(self.own.name, make=True)
        lock = os.open(self.path / f"{LOCK}.new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (self.path / f"{LOCK}.new").rename(self.path / LOCK)  # it can be found when it is locked, not before
        self.remove = weakref.finalize(self, _remove, self.path, lock)
        """Remove it with all that is in it. Idempotent; at the latest when the interpreter exits."""

    def write(self, name: str, text: str) -> Path:
        """Write a file among the suite's own."""
        self._files.write(name, text.encode())
        return self.own / name


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def clear() -> None:
    """Remove this user's scratch folders that no process owns."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        try:
            found = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # another user's, or just removed
            continue
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:
            pass  # it is at work
        finally:
            os.close(found)
