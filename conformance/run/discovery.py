"""How the pool reaches the target: a file that it watches, the Kubernetes API, or endpoints that it knows already.

A channel publishes the pool and says when it was *delivered*: a fact that a wrong EPP reaches as well as a right one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jinja2 import Environment, StrictUndefined, TemplateError

from conformance.errors import UsageError
from conformance.run.members import Member
from conformance.targets.profile import File


class Channel(Protocol):
    """One way for the target to learn its pool."""

    async def publish(self, members: Sequence[Member], ports: Sequence[int], *, exists: bool) -> None:
        """Make this the pool. `ports` are its target ports; with `exists` False the pool object itself is gone."""

    async def delivered(self, timeout: float) -> bool:
        """Wait until what was published last was handed to the target; False if that took longer than `timeout`."""


class FixedEndpoints:
    """The target knows its endpoints; there is nothing to publish."""

    async def publish(self, members: Sequence[Member], ports: Sequence[int], *, exists: bool) -> None:
        """Nothing to do: the plan admits no scenario that needs another pool."""

    async def delivered(self, timeout: float) -> bool:  # noqa: ARG002 - part of the interface
        """Always."""
        return True


class WatchedFile:
    """A file with the eligible endpoints, replaced atomically; delivered once it stood for a re-read window."""

    def __init__(self, path: Path, settings: File) -> None:
        self._path = path
        self._settings = settings
        try:
            environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
            self._template = environment.from_string(settings.template)
        except TemplateError as problem:
            raise UsageError(f"discovery.file.template: {problem}", hint="it is a Jinja2 template") from problem

    async def publish(self, members: Sequence[Member], ports: Sequence[int], *, exists: bool) -> None:  # noqa: ARG002
        """Write the endpoints of the eligible pods, or remove the file if the pool is gone."""
        if not exists:
            self._path.unlink(missing_ok=True)
            return
        facts = [member.fact for member in members]
        endpoints = [endpoint for fact in facts if fact.eligible for endpoint in fact.endpoints]
        try:
            text = self._template.render(endpoints=endpoints, pods=facts)
        except TemplateError as problem:
            raise UsageError(f"discovery.file.template: {problem}") from problem
        scratch = self._path.with_name(f".{self._path.name}.new")
        scratch.write_text(text)
        scratch.replace(self._path)

    async def delivered(self, timeout: float) -> bool:  # noqa: ARG002
        """After the re-read window."""
        await asyncio.sleep(self._settings.reread)
        return True
