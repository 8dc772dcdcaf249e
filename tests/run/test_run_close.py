"""Closing a runner: whatever of it fails, the target is stopped and the scratch folder is gone."""

from __future__ import annotations

import select
from os import close, pidfd_open

import pytest

from conformance.run.engine import EngineThread
from conformance.run.epp.discovery import WatchedFile
from conformance.run.epp.runner import EppRunner
from conformance.targets.resolve import load_profile


def test_an_endpoints_file_that_cannot_be_restored_keeps_no_target_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: WatchedFile) -> None:
        raise OSError("read-only now")

    monkeypatch.setattr(WatchedFile, "restore", refuses)
    with EngineThread() as engine:
        runner = EppRunner(load_profile("reference"), "1.0.0", {}, seed=1, lag=engine.lag, status=lambda _: None)
        engine.call(runner.__aenter__())
        process = runner.target._watched.process
        assert process is not None
        alive = pidfd_open(process.pid)
        folder = runner._folder.path
        with pytest.raises(OSError, match="read-only now"):
            engine.call(runner.close())
        assert select.select([alive], [], [], 10)[0], "it still runs"
        close(alive)
        assert not folder.exists()
