"""The folder of a report: what is in it, and how a run fills it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from conformance.errors import UsageError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.store import EvidenceWriter
from conformance.planning.results import COUNTEREXAMPLE
from conformance.report.document.model import Report, write_report

if TYPE_CHECKING:
    from conformance.evidence.episode import Context, Episode

REPORT, EVIDENCE, HTML, JUNIT, MARKDOWN = "report.json", "evidence.ndjson.gz", "report.html", "junit.xml", "summary.md"
LOAD, LOAD_PAGE, LOAD_EVIDENCE = "load.json", "load.html", "load-evidence.ndjson.gz"
LOAD_STATISTICS = "locust_stats.csv"
OF_A_RUN = (REPORT, EVIDENCE, HTML, JUNIT, MARKDOWN, COUNTEREXAMPLE.format("*"))
_NAMES = (*OF_A_RUN[:-1], LOAD, LOAD_PAGE, LOAD_EVIDENCE, LOAD_STATISTICS)


def evidence_of(path: Path) -> Path:
    """The evidence of the report, or of the load, in a folder; a file is what it is. Raises `UsageError`."""
    if not path.is_dir():
        return path
    for found in (path / EVIDENCE, path / LOAD_EVIDENCE):
        if found.exists():
            return found
    what = f"no evidence in the folder {path.absolute()}: no such file as {EVIDENCE}"
    raise UsageError(what, hint="name the folder of a report or of a load, or a file that `tap --record` wrote")


def make_folder(output: Path) -> None:
    """Make sure that a report can be written there, also over one that is there. Raises `UsageError`."""
    place = output
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
        for place in (output / name for name in _NAMES):
            with contextlib.suppress(FileNotFoundError):
                place.open("r+b").close()
    except (FileExistsError, NotADirectoryError) as problem:
        raise UsageError(
            f"no report can be written to {place}: {problem.strerror}", hint="--output is a folder, and a file is there"
        ) from None
    except OSError as problem:
        raise UsageError(
            f"no report can be written to {place}: {problem.strerror}",
            hint="give another folder with --output; a container must run as a user who may write it (--user)",
        ) from None


@contextlib.contextmanager
def reserved(output: Path, own: Sequence[str] = OF_A_RUN) -> Iterator[None]:
    """The folder `output`, made, for this run alone: two runs would mix their evidence. It is removed again if nothing
    was written. Raises `UsageError`.

    The files that the run writes, `own` by their names or globs, are removed first: where it breaks, the report of an
    earlier run must not be taken for its report.
    """
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    make_folder(output)
    folder = os.open(output, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                what = f"another run is writing its report to {output}"
                raise UsageError(what, hint="give another folder with --output") from None
        for path in [path for name in own for path in output.glob(name)]:
            with contextlib.suppress(OSError):
                path.unlink()
        yield
    finally:
        os.close(folder)
        with contextlib.suppress(OSError):  # it holds a report
            for one in made:
                one.rmdir()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[Path]:
    """A full disk, as Python has it, does not say which file: so that its error names `path`."""
    try:
        yield path
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """So that `path` is written whole, or is not there. As `naming`."""
    try:
        with naming(path):
            yield path
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def write_all(report: Report, output: Path) -> tuple[Path, ...]:
    """Write the report in every form; the evidence is there already. The first path is that of the HTML."""
    from conformance.report.render.html import html
    from conformance.report.render.junit import junit
    from conformance.report.render.markdown import summary

    evidence = output / EVIDENCE
    with whole(output / REPORT) as path:
        write_report(report, path)
    page = html(report, evidence if evidence.is_file() else None)
    for name, text in ((JUNIT, junit(report)), (MARKDOWN, summary(report)), (HTML, page)):
        with whole(output / name) as path:
            path.write_text(text, encoding="utf-8")
    written = (HTML, REPORT, *((EVIDENCE,) if evidence.is_file() else ()), JUNIT, MARKDOWN)
    return tuple(output / name for name in written)


class EvidenceKeeper:
    """Writes every judged episode in its own thread, so that packing never makes the engine's loop late.

    Use as a context manager; leaving it finishes the file, or removes it if the run broke.
    """

    def __init__(self, path: Path) -> None:
        self.writer = EvidenceWriter(path)
        self._path = path
        self._queue: queue.SimpleQueue[tuple[str, Episode, Context] | None] = queue.SimpleQueue()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="epp-conformance-evidence", daemon=True)

    def __call__(self, event: RunEvent) -> None:
        """Keep the episode of a finished scenario. A handler: returns at once."""
        if isinstance(event, ScenarioFinished) and event.episode is not None and event.context is not None:
            self._queue.put((event.result.id, event.episode, event.context))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join()
        with whole(self._path):
            self.writer.close()
            if error is None and self._problem is not None:
                raise self._problem
        if error is not None:
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._problem is None:
                try:
                    self.writer.add(*item)
                except Exception as problem:  # noqa: BLE001 - raised where the run ends
                    self._problem = problem
