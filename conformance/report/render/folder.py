"""The folder of a report: what is in it, and how a run fills it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from conformance.errors import UsageError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.store import EvidenceWriter
from conformance.folder import Folder
from conformance.planning.results import COUNTEREXAMPLE
from conformance.report.document.model import Report, report_text

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


def make_folder(output: Path) -> Folder:
    """The folder `output`, where a report can be written, also over one that is there. Raises `UsageError`."""
    place = output
    try:
        output.mkdir(parents=True, exist_ok=True)
        folder = Folder.at(output)
        probe = f".{secrets.token_hex(8)}"
        folder.create(probe).close()
        folder.remove(probe)
        for place in (output / name for name in _NAMES):
            if place.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if place.exists() and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileExistsError, NotADirectoryError) as problem:
        raise UsageError(
            f"no report can be written to {place}: {problem.strerror}", hint="--output is a folder, and a file is there"
        ) from None
    except OSError as problem:
        raise UsageError(
            f"no report can be written to {place}: {problem.strerror}",
            hint="give another folder with --output; a container must run as a user who may write it (--user)",
        ) from None
    return folder


@contextlib.contextmanager
def reserved(output: Path, own: Sequence[str] = OF_A_RUN) -> Iterator[Folder]:
    """The folder `output`, made, for this run alone: two runs would mix their evidence. It is removed again if nothing
    was written. Raises `UsageError`.

    The files that the run writes, `own` by their names or globs, are removed first: where it breaks, the report of an
    earlier run must not be taken for its report.
    """
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    folder = make_folder(output)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            try:
                fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                what = f"another run is writing its report to {output}"
                raise UsageError(what, hint="give another folder with --output") from None
        for path in [path for name in own for path in output.glob(name)]:
            with contextlib.suppress(OSError):
                folder.remove(path.name)
        yield folder
    finally:
        folder.close()
        with contextlib.suppress(OSError):  # it holds a report
            for one in made:
                one.rmdir()


def write_all(report: Report, folder: Folder) -> tuple[Path, ...]:
    """Write the report in every form; the evidence is there already. The first path is that of the HTML."""
    from conformance.report.render.html import html
    from conformance.report.render.junit import junit
    from conformance.report.render.markdown import summary

    folder.write(REPORT, report_text(report).encode())
    evidence = folder.path / EVIDENCE
    kept = evidence.is_file()
    page = html(report, evidence if kept else None)
    for name, text in ((JUNIT, junit(report)), (MARKDOWN, summary(report)), (HTML, page)):
        folder.write(name, text.encode())
    written = (HTML, REPORT, *((EVIDENCE,) if kept else ()), JUNIT, MARKDOWN)
    return tuple(folder.path / name for name in written)


class EvidenceKeeper:
    """Writes every judged episode in its own thread, so that packing never makes the engine's loop late.

    Use as a context manager; leaving it finishes the file, or removes it if the run broke.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder, self._file = folder, folder.create(EVIDENCE)
        self.writer = EvidenceWriter(folder.path / EVIDENCE, self._file)
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
        problem = error or self._problem
        try:
            with self._file:
                self.writer.close()
                self._folder.keep(EVIDENCE, self._file)
        except OSError as unfinished:
            problem = problem or unfinished
        if problem is None:
            return
        self._folder.remove(EVIDENCE)
        if error is None:
            if isinstance(problem, OSError):
                raise OSError(problem.errno, problem.strerror, str(self.writer.path)) from None
            raise problem

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._problem is None:
                try:
                    self.writer.add(*item)
                except Exception as problem:  # noqa: BLE001 - raised where the run ends
                    self._problem = problem
