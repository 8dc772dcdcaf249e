"""A run from its settings to its report: for `run` and `certify`."""

from __future__ import annotations

import dataclasses
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from conformance.cli.progress import progress
from conformance.errors import IncompleteError, UsageError
from conformance.outcome import RunOutcome, exit_code
from conformance.report.build import build
from conformance.report.evidence import EvidenceWriter
from conformance.report.model import Report, write_report
from conformance.report.redaction import Redactor
from conformance.requirements.catalogue import Catalogue
from conformance.run.events import RunEvent, RunFinished, ScenarioFinished
from conformance.run.session import RunSettings, run

if TYPE_CHECKING:
    from conformance.episode import Context, Episode

REPORT, EVIDENCE, HTML, JUNIT, MARKDOWN = "report.json", "evidence.ndjson.gz", "report.html", "junit.xml", "summary.md"


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
    settings = dataclasses.replace(settings, redact=redactor.text)
    outcome, stopped = None, None
    with EvidenceKeeper(output / EVIDENCE, redactor) as keeper, progress(quiet=quiet) as shown:

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


def make_folder(output: Path) -> None:
    """Make sure that a report can be written there. Raises `UsageError`."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise UsageError(
            f"no report can be written to {output}: {problem.strerror}", hint="give another folder with --output"
        ) from None


def write_all(report: Report, output: Path) -> tuple[Path, ...]:
    """Write the report in every form; the evidence is there already. The first path is `report.json`."""
    from conformance.report.html import html
    from conformance.report.junit import junit
    from conformance.report.markdown import summary

    evidence = output / EVIDENCE
    write_report(report, output / REPORT)
    (output / JUNIT).write_text(junit(report), encoding="utf-8")
    (output / MARKDOWN).write_text(summary(report), encoding="utf-8")
    (output / HTML).write_text(html(report, evidence if evidence.is_file() else None), encoding="utf-8")
    return tuple(output / name for name in (REPORT, HTML, JUNIT, MARKDOWN))


class EvidenceKeeper:
    """Writes every judged episode in a thread of its own, so that packing never makes the engine's loop late.

    Use as a context manager; leaving it finishes the file, or removes it if the run broke.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self.writer = EvidenceWriter(path)
        self._path = path
        self._redactor = redactor
        self._queue: queue.SimpleQueue[tuple[Episode, Context] | None] = queue.SimpleQueue()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="epp-conformance-evidence", daemon=True)

    def __call__(self, event: RunEvent) -> None:
        """Keep the episode of a finished scenario. A handler: returns at once."""
        if isinstance(event, ScenarioFinished) and event.episode is not None and event.context is not None:
            self._queue.put((event.episode, event.context))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join()
        self.writer.close()
        if error is not None:
            self._path.unlink(missing_ok=True)
        elif self._problem is not None:
            raise self._problem

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._problem is None:
                try:
                    self.writer.add(self._redactor.episode(item[0]), item[1])
                except Exception as problem:  # noqa: BLE001 - raised where the run ends
                    self._problem = problem


def _code(outcome: RunOutcome, stopped: IncompleteError | None) -> int:
    return exit_code(outcome) or (stopped.exit_code if stopped else 0)
