"""A run from its settings to its report: for `run` and `certify`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from conformance.cli.progress import progress
from conformance.errors import IncompleteError
from conformance.outcome import RunOutcome, exit_code
from conformance.report.build import build
from conformance.report.folder import EVIDENCE, EvidenceKeeper, make_folder, write_all
from conformance.report.model import Report
from conformance.report.redaction import Redactor
from conformance.requirements.catalogue import Catalogue
from conformance.run.events import RunEvent, RunFinished
from conformance.run.session import RunSettings, run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """A finished run: its report, the files written, the exit code, and why it stopped early, if it did."""

    report: Report
    paths: tuple[Path, ...]
    code: int
    stopped: IncompleteError | None

    @property
    def evidence(self) -> Path:
        """Where the evidence is."""
        return self.paths[0].with_name(EVIDENCE)


def conduct(settings: RunSettings, output: Path, *, quiet: bool = False) -> Conducted:
    """Run, and write report, evidence, HTML, JUnit and Markdown into the folder `output`.

    A target that can't be reached or passes no gate, and Ctrl-C, still give a report. Raises `UsageError` before
    anything is started, and whatever is a defect of the suite.
    """
    make_folder(output)
    redactor = Redactor.of(settings.profile)
    settings = dataclasses.replace(settings, redactor=redactor)
    outcome, stopped = None, None
    with EvidenceKeeper(output / EVIDENCE) as keeper, progress(quiet=quiet) as shown:

        def handler(event: RunEvent) -> None:
            nonlocal outcome
            keeper(event)
            shown(event)
            if isinstance(event, RunFinished):
                outcome = event.outcome

        try:
            run(settings, handler)
        except IncompleteError as problem:
            stopped = problem
    assert outcome is not None, "a run that ends without an error has an outcome"
    report = build(
        outcome,
        catalogue=Catalogue.load(),
        profile=settings.profile,
        evidence=keeper.writer,
        redactor=redactor,
        stopped=stopped.message if stopped else "",
    )
    paths = write_all(report, output)
    return Conducted(report=report, paths=paths, code=_code(outcome, stopped), stopped=stopped)


def _code(outcome: RunOutcome, stopped: IncompleteError | None) -> int:
    return exit_code(outcome) or (stopped.exit_code if stopped else 0)
