"""The scratch folder of a runner: a container can't write to the suite's part, and it is gone whatever fails."""

from __future__ import annotations

import select
from os import close, pidfd_open
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.run import running_target
from conformance.run.engine import EngineThread
from conformance.run.epp.discovery import WatchedFile
from conformance.run.epp.runner import EppRunner
from conformance.run.scratch import clear
from conformance.strict_yaml import load
from conformance.targets.profile import Profile
from conformance.targets.resolve import load_profile

pytestmark = pytest.mark.program


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
        folder = runner.folder.path
        with pytest.raises(OSError, match="read-only now"):
            engine.call(runner.close())
        assert select.select([alive], [], [], 10)[0], "it still runs"
        close(alive)
        clear()
        assert not folder.exists()


def test_a_container_sees_the_files_of_the_suite_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    async def start(*_: object, folders: dict[Path, str], **__: object) -> None:
        seen.update({path.name: mode for path, mode in folders.items()})
        raise UsageError("no engine")

    monkeypatch.setattr(running_target, "start_container", start)
    text = "start: {image: some, network: host, args: ['{endpointsFile}', '{workdir}']}\ndiscovery: {file: {}}\n"
    profile = load(text, Profile)
    with EngineThread() as engine:
        runner = EppRunner(profile, "1.0.0", {}, seed=1, lag=engine.lag, status=lambda _: None)
        with pytest.raises(UsageError, match="no engine"):
            engine.call(runner.__aenter__())
    assert seen == {"work": "rw", "suite": "ro"}
