"""How the pool reaches the target: a file that it watches, the Kubernetes API, or endpoints that it knows already.

A channel publishes the pool and says when it was *delivered*: a fact that a wrong EPP reaches as well as a right one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from conformance.errors import IncompleteError, UsageError
from conformance.folder import Folder, open_regular
from conformance.run.epp.members import Member, PoolSpec
from conformance.targets.profile import File
from conformance.targets.template import FileTemplate

LARGEST = 64 * 1024 * 1024
"""Bytes of a file that a run replaces and restores."""


class PoolDiscovery(Protocol):
    """One way for the target to learn its pool."""

    async def publish(self, members: Sequence[Member], spec: PoolSpec | None) -> None:
        """Make this the pool; with `spec` None the pool object itself is gone."""

    async def delivered(self, timeout: float) -> bool:
        """Wait until what was published last was handed to the target; False if that took longer than `timeout`."""


class FixedEndpoints:
    """The target knows its endpoints; there is nothing to publish."""

    async def publish(self, members: Sequence[Member], spec: PoolSpec | None) -> None:
        """Nothing to do: the plan admits no scenario that needs another pool."""

    async def delivered(self, timeout: float) -> bool:  # noqa: ARG002 - part of the interface
        """Always."""
        return True


class WatchedFile:
    """A file with the eligible endpoints, replaced atomically; delivered once it stood for a re-read window.

    A file that was there before the run has its owner and mode during the run too, and its content again afterwards.
    `tell` gets it in words if something else took the file's place or its folder: then the file is made again.
    """

    def __init__(self, path: Path, settings: File, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._settings = settings
        self._original = _Original.of(path)
        self._template = FileTemplate(settings.template)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            place = path.parent.resolve(strict=True)
            self._outer, self._name = Folder.at(place.parent), place.name or "."
            self._folder = self._outer.inner(self._name)
        except OSError as problem:
            raise _unwritable(path, problem) from problem

    async def publish(self, members: Sequence[Member], spec: PoolSpec | None) -> None:
        """Write the endpoints of the eligible pods, or remove the file if the pool is gone."""
        if spec is None:
            self._again(lambda: self._folder.remove(self._path.name))
            return
        facts = [member.fact for member in members]
        endpoints = [endpoint for fact in facts if fact.eligible for endpoint in fact.endpoints]
        content = self._template.render(endpoints=endpoints, pods=facts).encode()
        self._again(lambda: self._write(content))

    async def delivered(self, timeout: float) -> bool:  # noqa: ARG002
        """After the re-read window."""
        await asyncio.sleep(self._settings.reread)
        return True

    def restore(self) -> None:
        """Make the file what it was before the run. One that was not there before is left to its folder's owner."""
        original = self._original
        if original is None:
            return
        if original.link is None:
            self._write(original.content)
        else:
            self._folder.link(self._path.name, original.link)

    def _again(self, change: Callable[[], None]) -> None:
        """Change the file; where its place is taken, or gone, make room for it, which loses nothing."""
        try:
            change()
        except OSError as problem:
            try:
                self._folder.close()
                self._folder = self._outer.inner(self._name, make=True)
                if isinstance(problem, IsADirectoryError):
                    self._folder.move_aside(self._path.name)
                change()
            except OSError as still:
                raise _unwritable(self._path, still) from still
            self._tell(f"the file of its endpoints was made again, as something had happened to it: {problem.strerror}")

    def _write(self, content: bytes) -> None:
        with self._folder.writing(self._path.name) as file:
            file.write(content)
            if self._original is not None:
                self._original.give_mode(file.fileno())


def _unwritable(path: Path, problem: OSError) -> IncompleteError:
    return IncompleteError(
        f"the endpoints file {path} can't be written: {problem.strerror or problem}",
        hint="is its place taken by something else, or is there no room?",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Original:
    """A file of the user's, as it was before the run. `link` is where it led, if it was a symbolic link."""

    content: bytes
    mode: int
    owner: tuple[int, int]
    link: str | None

    @classmethod
    def of(cls, path: Path) -> _Original | None:
        """What is at `path`; None if nothing is. Raises `UsageError` if it can't be read, hence not be restored."""
        try:
            with open_regular(path, LARGEST, follow=True) as file:
                status = os.fstat(file.fileno())
                return cls(
                    content=file.read(LARGEST),
                    mode=stat.S_IMODE(status.st_mode),
                    owner=(status.st_uid, status.st_gid),
                    link=str(path.readlink()) if path.is_symlink() else None,
                )
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise UsageError(
                f"the endpoints file {path} can't be read: {problem.strerror}",
                hint="the run writes over it and restores it at its end",
            ) from problem

    def give_mode(self, file: int) -> None:
        """Give an open file the same owner, as far as that is allowed, and mode."""
        with contextlib.suppress(OSError):  # only root gives files away
            os.chown(file, *self.owner)
        os.chmod(file, self.mode)
