"""With pytest-xdist: how the work is shared out, and how a worker hands over what it found."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

from conformance.events import AnomalySeen, RunEvent, ScenarioFinished
from conformance.pytest_plugin.hooks import Hooks
from conformance.pytest_plugin.suite import PluginSuite


class ByBatch(LoadGroupScheduling):  # type: ignore[misc]
    """Gives all scenarios of a batch to one worker, since running one of them runs them all."""

    WITH = ("load", "loadgroup", "worksteal")
    """Values of `--dist` that it stands in for. The others give all scenarios to one worker, or to each."""

    def __init__(self, config: pytest.Config, log: Any, batches: Mapping[str, str]) -> None:
        super().__init__(config, log)
        self._batches = batches

    def _split_scope(self, nodeid: str) -> str:
        """What goes to one worker in one piece: the batch, or a test or an `xdist_group` of the vendor's."""
        return self._batches.get(nodeid) or super()._split_scope(nodeid)


class XdistWorker(Hooks):
    """Writes its events to its own file, which the controller reads in the end."""

    def __init__(self, config: pytest.Config, suite: PluginSuite) -> None:
        super().__init__(config, suite)
        worker: dict[str, Any] = config.workerinput  # type: ignore[attr-defined]
        self._file: IO[bytes] = (Path(worker["epp_parts"]) / f"{worker['workerid']}.events").open("wb")
        suite.listen(self._keep)

    def _keep(self, event: RunEvent) -> None:
        if isinstance(event, ScenarioFinished | AnomalySeen):
            pickle.dump(event, self._file)

    def pytest_sessionfinish(self) -> None:
        """Everything is in the file before the controller looks at it."""
        self.suite.close()
        self._file.close()


def events(parts: Path) -> Iterator[RunEvent]:
    """What the workers found. The files are our own, in a folder that only we can write to."""
    for path in sorted(parts.glob("*.events")):
        with path.open("rb") as file:
            while True:
                try:
                    yield pickle.load(file)
                except (EOFError, pickle.UnpicklingError):  # the end, or a worker that was killed in the midst of it
                    break
