"""The scratch folders of running targets, which are removed after the report was written, or by a later run.

Each has two parts. The target may do what it likes in its own; the other has the suite's files, such as the endpoints,
which containers see read-only.

A suite that is killed can't clean up. Each folder is locked by its process; one that is not locked any more has no
owner. The kernel ends a lock with the process, so that a process id that is used again deceives no one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import tempfile
import time
import weakref
from pathlib import Path

from conformance.folder import Folder

PREFIX = ".epp-conformance-"
MOST_SECONDS = 5.0
"""Time of one removal: a target may leave a million files. Later runs remove the rest."""


class ScratchFolder:
    """A new folder in the system's place for temporary files."""

    def __init__(self) -> None:
        _clear_once()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            with contextlib.suppress(FileNotFoundError):  # another process removed it before it was locked
                folder = Folder.at(self.path)
                fcntl.flock(folder.descriptor, fcntl.LOCK_EX)
                if os.path.samestat(self.path.lstat(), os.fstat(folder.descriptor)):
                    break
        self.work, self.own = self.path / "work", self.path / "suite"
        self.work.mkdir()
        self._files = folder.inner(self.own.name, make=True)
        self.release = weakref.finalize(self, _release, folder)
        """Leave it to `clear`. Idempotent; at the latest when the interpreter exits."""

    def write(self, name: str, text: str) -> Path:
        """Write a file among the suite's own."""
        self._files.write(name, text.encode())
        return self.own / name


def _release(folder: Folder) -> None:
    fcntl.flock(folder.descriptor, fcntl.LOCK_UN)  # copies of this process may have the descriptor, too
    folder.close()


@atexit.register
def clear() -> None:
    """Remove this user's scratch folders that no process owns, as far as that is possible in `MOST_SECONDS`."""
    until = time.monotonic() + MOST_SECONDS
    with contextlib.suppress(OSError), contextlib.closing(Folder.at(Path(tempfile.gettempdir()))) as place:
        for path in place.path.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError), contextlib.closing(place.inner(path.name)) as folder:
                _remove(place, folder, until)


_clear_once = functools.cache(clear)
"""What earlier runs left; what this one leaves is removed after its report."""


def _remove(place: Folder, folder: Folder, until: float) -> None:
    if os.fstat(folder.descriptor).st_uid != os.geteuid():
        return
    fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else it is at work
    folder.clear(until)
    os.rmdir(folder.path.name, dir_fd=place.descriptor)
