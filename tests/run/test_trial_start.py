"""A second copy of a target, started to see whether it takes a configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from conformance.errors import IncompleteError
from conformance.run.data_plane.stimuli import prepare
from conformance.run.epp.target import Target
from conformance.run.epp.trial_start import StartOutcome, trial_start
from conformance.run.processor import ProcessorTime
from conformance.run.scratch import ScratchFolder
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import Exchange
from conformance.targets.profile import Discovery, File, Profile, Start, Timeouts

pytestmark = pytest.mark.program

PROGRAM = """
import asyncio, sys
from ext_proc.server import serve

async def handler(stream):
    await stream.recv()
    if sys.argv[2] == "waits":
        await asyncio.Event().wait()

async def main():
    if sys.argv[2] == "hangs":
        await asyncio.Event().wait()
    await serve("127.0.0.1", int(sys.argv[1]), handler)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def started(folder: Path, what: str) -> StartOutcome:
    """What is found of a copy that does `what` with its first request, or hangs before it listens."""
    (folder / "epp.py").write_text(PROGRAM)
    command = ("env", f"PYTHONPATH={Path.cwd()}", "{python}", str(folder / "epp.py"), "{port}", what)
    profile = Profile(
        name=what,
        address="127.0.0.1:{port}",
        start=Start(command=command),
        discovery=Discovery(file=File()),
        timeouts=Timeouts(start=1 if what == "hangs" else 60, answer=1 if what == "waits" else 60, stop=0.3),
    )
    request = prepare(
        Exchange(ending="envoy"),
        index=0,
        mode="full-duplex",
        profile=profile,
        endpoints={NOBODY: ("127.0.0.1:9",)},
        pool=(),
        rng=Random(1),
    )
    first = Target(profile, "1.0.0", {"workdir": str(folder)}, emit=lambda _: None)
    return asyncio.run(trial_start(first, request, "", lambda _: False, ScratchFolder()))


def test_a_copy_that_answers_has_started(tmp_path: Path) -> None:
    assert started(tmp_path, "answers").started


def test_a_copy_that_neither_answers_nor_ends_in_time_is_inconclusive(tmp_path: Path) -> None:
    """It may read its configuration only after it listens, and have got no processor to end with its complaint."""
    with pytest.raises(IncompleteError, match="neither answered nor ended"):
        started(tmp_path, "waits")


def test_a_copy_that_does_not_listen_in_time_has_not_started(tmp_path: Path) -> None:
    outcome = started(tmp_path, "hangs")
    assert not outcome.started
    assert "refused after 1 s" in outcome.output


def test_a_copy_without_processor_time_is_inconclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessorTime, "withheld", lambda _, seconds, __: 0.8 * seconds)
    with pytest.raises(IncompleteError, match=r"got no processor for 0\.8 of the 1\.0 s"):
        started(tmp_path, "hangs")
