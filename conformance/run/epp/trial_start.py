"""Whether the target starts with some configuration: a second copy of it is started beside the first, and ended."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from conformance.errors import IncompleteError, TargetUnreachableError
from conformance.run.data_plane.plane import FakeDataPlane
from conformance.run.data_plane.replies import MayDial
from conformance.run.data_plane.stimuli import Prepared
from conformance.run.epp.target import Target
from conformance.run.processor import starved
from conformance.run.running_target import PORT_TRIES
from conformance.run.scratch import ScratchFolder
from ext_proc.record import Recorder
from fake_proxy.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """What became of a start: `output` says why it did not come up."""

    started: bool
    output: str = ""


def written(folder: ScratchFolder, configuration: str) -> str:
    """The path of a new file with `configuration` in it."""
    return str(folder.write(f"reporter-{secrets.token_hex(4)}.yaml", configuration))


async def trial_start(
    first: Target, request: Prepared, configuration: str, may_dial: MayDial, folder: ScratchFolder
) -> StartOutcome:
    """Start a copy of `first` with `configuration` in `{reporterConfig}`.

    It has started when it answers `request`, and has not ended by then. Its events are in no log: what it says to the
    request is not judged. Raises `IncompleteError` for one that does neither in time, as it may be about to do either,
    and for one that got no processor to listen in time.
    """
    for _ in range(PORT_TRIES):
        recorder = Recorder()
        path = written(folder, configuration)
        target = first.another({"reporterConfig": path}, recorder.emit)
        try:
            await target.start()
            plane = FakeDataPlane(lambda target=target: target, recorder, may_dial)  # type: ignore[misc]
            pace = Pace(deadline=first.profile.timeouts.answer)
            outcome = await plane.carry_out(request, "start", note={}, pace=pace, fresh_connection=False)
            await target.given_time_to_end() if outcome.stream is not None and outcome.stream.how == "lost" else None
            if outcome.expired and not target.crashed:
                what = f"a second copy of the target neither answered nor ended within {pace.deadline:g} s"
                raise IncompleteError(what, hint="give it longer: timeouts.answer")
            if not target.crashed:
                return StartOutcome(started=True)
            problem = (await target.explain_end()).message
        except TargetUnreachableError as unreachable:
            patience = first.profile.timeouts.start
            busy = starved(target.withheld(patience, 0.0), patience, "a second copy that listens")
            if busy and not target.crashed:
                raise IncompleteError(busy, hint="give it longer: timeouts.start") from unreachable
            problem = unreachable.message
        finally:
            taken = target.lost_its_port
            await target.stop()
        if not taken:
            return StartOutcome(started=False, output=problem)
    raise TargetUnreachableError(f"a second copy found no free port: {problem}")
