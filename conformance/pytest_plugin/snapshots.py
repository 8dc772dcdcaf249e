"""Snapshots of one's own exchanges: what the endpoint picker answered, compared with a stored form.

Each test has one file, `epp_snapshots/MODULE/TEST.yaml` beside its module, so that workers never write the same one.
The form and its normalisation are those of `conformance.reading.normal_form`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UsageError
from conformance.pytest_plugin.fixtures import Sent
from conformance.reading.normal_form import normal_form
from conformance.strict_yaml import dump, parse

FORMAT = 1
"""Of the files: a step with each change of the normal form, which makes older files incomparable."""

FOLDER = "epp_snapshots"
UPDATE = "--epp-update-snapshots"


class AnswerSnapshots:
    """Compares exchanges of one test with its file, or (`update`) takes them into it."""

    def __init__(self, path: Path, *, update: bool) -> None:
        self.path = path
        self._update = update
        self._taken: dict[str, Any] = {}

    def __call__(self, sent: Sent, name: str | None = None) -> None:
        """Fail the test unless the answers to `sent` are as stored. `name` tells several apart; default: 1, 2, …"""
        __tracebackhide__ = True
        name = name or str(len(self._taken) + 1)
        if name in self._taken:
            pytest.fail(f"two snapshots of this test are called {name!r}", pytrace=False)
        self._taken[name] = form = normal_form(sent.conversation, namespace=sent.destination_namespace)
        if self._update:
            return
        stored = self._stored()
        if name not in stored:
            raise _failed(f"there is no snapshot {name!r} in {self._shown}", f"{UPDATE} writes it")
        before, now = (dump(one).splitlines() for one in (stored[name], form))
        if difference := list(difflib.unified_diff(before, now, "stored", "now", lineterm="", n=4)):
            text = "\n".join(difference)
            raise _failed(
                f"the answers differ from the snapshot {name!r} in {self._shown}:\n{text}",
                f"{UPDATE} takes them, if they are right",
            )

    def finish(self) -> None:
        """Write the file, if that is asked for and there is something to write."""
        if not (self._update and self._taken):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        head = f"# Snapshots of epp-conformance; `pytest {UPDATE}` writes them.\n"
        self.path.write_text(head + dump({"format": FORMAT, "exchanges": self._taken}), encoding="utf-8")

    @property
    def _shown(self) -> str:
        return os.path.relpath(self.path)

    def _stored(self) -> dict[str, Any]:
        if not self.path.is_file():
            return {}
        try:
            data = parse(self.path, name=self._shown).data
        except UsageError as problem:
            raise _failed(str(problem), f"{UPDATE} writes it again") from None
        match data:
            case {"format": found, "exchanges": dict(exchanges)} if found == FORMAT:
                return exchanges
            case {"format": found}:
                what = f"{self._shown} has format {found!r}, and this version of the suite compares format {FORMAT}"
            case _:
                what = f"{self._shown} holds no snapshots"
        raise _failed(what, f"look at what the EPP answers now, and write it again with {UPDATE}")


@pytest.fixture
def epp_snapshot(request: pytest.FixtureRequest) -> Iterator[AnswerSnapshots]:
    """Compares what was answered with what is stored: `epp_snapshot(proxy.send(...))`."""
    snapshots = snapshots_of(request)
    yield snapshots
    snapshots.finish()


def snapshots_of(request: pytest.FixtureRequest) -> AnswerSnapshots:
    """The snapshots of a test."""
    name = re.sub(r"[^\w.\[\]=-]+", "_", request.node.name)[:150]
    owner = request.node.cls.__name__ + "." if request.node.cls is not None else ""
    path = request.path.parent / FOLDER / request.path.stem / f"{owner}{name}.yaml"
    return AnswerSnapshots(path, update=bool(request.config.getoption("epp_update_snapshots")))


def _failed(what: str, hint: str) -> BaseException:
    """The failure of a test, without a traceback."""
    return pytest.fail.Exception(f"{what}\n  hint: {hint}", pytrace=False)
