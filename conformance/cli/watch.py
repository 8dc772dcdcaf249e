"""`run --watch`: run again when what is tested, or what tests it, changes; what failed comes first."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from conformance.cli.console import err, show_error
from conformance.errors import ConformanceError, UnknownNameError, UsageError
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.cli.run_and_report import ReportedRun
    from conformance.report.document.model import Report
    from conformance.run.session import RunSettings
    from conformance.targets.flags import SelectionFlags, TargetFlags

LOOK = 0.2
"""Seconds between two looks at the files. A build replaces its program, which a watch of the kernel's on the file
would lose; a look at a few files costs nothing."""

SETTLED = 0.5
"""Seconds without a further change after which a build is taken to be done."""

NAMED = 3
"""Changed files that are named; of others there is a number."""

FAILED = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE)

State: TypeAlias = dict[Path, tuple[int, int, int]]
"""Of each file its time of change, size and inode."""


def failed_scenarios(report: Report) -> list[str]:
    """The scenarios of a report that failed, or could not be judged, each once; generated conversations are none.

    Where all pass and a requirement failed all the same, those in which that is clearest.
    """
    from conformance.planning.results import GENERATED_ID
    from conformance.report.document.failures import concerns

    rows = [row for row in report.results if row.verdict in FAILED]
    rows = rows or [one.occurrences[0].result for one in concerns(report) if one.occurrences]
    return list(dict.fromkeys(row.id.partition("@")[0] for row in rows if row.id != GENERATED_ID))


@dataclasses.dataclass(slots=True, kw_only=True)
class Watch:
    """Runs `once` again and again and `show`s each. `named` are paths that a user names; reports go to `output`."""

    once: Callable[[SelectionFlags], ReportedRun]
    show: Callable[[ReportedRun], None]
    what: SelectionFlags
    named: Sequence[Path]
    output: Path
    code: int = 4
    """The exit code of the last run that came to its end."""
    failed: list[str] = dataclasses.field(default_factory=list)

    def until_interrupted(self, target: TargetFlags, settings: Callable[[SelectionFlags], RunSettings]) -> int:
        """Run, and again after each change, until Ctrl-C. The exit code of the last run that came to its end.

        Raises `UsageError` for wrong flags before the first run, and if there is nothing to watch.
        """
        first = settings(self.what)
        paths = [*self.named, *_paths(target, self.what, first)]
        if missing := [path for path in self.named if not path.exists()]:
            raise UsageError(f"--watch-path {missing[0]}: there is no such file or folder")
        if not paths:
            raise UsageError("there is nothing to watch", hint="name files or folders with --watch-path")
        self._say(f"watching {_listed(paths)}; --watch-path adds to it, Ctrl-C ends it")
        try:
            while True:
                seen = self._state(paths)  # before the run: what changes meanwhile is run again at once
                self._run()
                changed = self._change(paths, seen)
                self._say(f"{_listed(changed)} changed")
        except KeyboardInterrupt:
            return self.code

    def _run(self) -> None:
        """One run, of what failed and then of everything. Only what failed, if some of that still does."""
        try:
            if self.failed:
                self._say(f"first what failed: {', '.join(self.failed[:NAMED])}{_more(len(self.failed) - NAMED)}")
                try:
                    self._finish(self.once(dataclasses.replace(self.what, scenario=self.failed)))
                except UnknownNameError:
                    self.failed = []  # a scenario was renamed or removed
                if self.failed:
                    return
            self._finish(self.once(self.what))
        except ConformanceError as problem:
            show_error(problem)
            self.code = problem.exit_code

    def _finish(self, done: ReportedRun) -> None:
        if not done.interrupted:
            self.code = done.code  # before it is shown: Ctrl-C may come as soon as something is
            self.failed = failed_scenarios(done.report)
        self.show(done)
        if done.interrupted:
            raise KeyboardInterrupt

    def _change(self, paths: Sequence[Path], before: State) -> list[Path]:
        """Wait for a change, and until nothing changes any more; a file that is gone is waited for. What changed."""
        while (now := self._state(paths)) == before:
            time.sleep(LOOK)
        while True:
            time.sleep(SETTLED)
            later = self._state(paths)
            if later == now and all(path.exists() for path in paths):
                break
            now = later
        if now == before:
            return self._change(paths, before)
        return [path for path in {**before, **now} if before.get(path) != now.get(path)]

    def _state(self, paths: Sequence[Path]) -> State:
        state: State = {}
        for path in (one for given in paths for one in self._files(given)):
            try:
                found = path.stat()
            except OSError:  # just removed
                continue
            state[path] = (found.st_mtime_ns, found.st_size, found.st_ino)
        return state

    def _files(self, path: Path) -> Iterator[Path]:
        """The files of a folder, without hidden ones, Python's caches and the report that is written; or the file, and
        the modules beside a Python script."""
        if not path.is_dir():
            yield path
            if path.suffix == ".py":
                yield from path.parent.glob("*.py")
            return
        output = self.output.absolute()
        for folder, inner, names in os.walk(path):
            inner[:] = [
                one
                for one in inner
                if not one.startswith((".", "__pycache__")) and Path(folder, one).absolute() != output
            ]
            yield from (Path(folder, name) for name in names if not name.startswith("."))

    def _say(self, text: str) -> None:
        err().print(f"epp-conformance: {text}")


def _paths(target: TargetFlags, what: SelectionFlags, settings: RunSettings) -> Iterator[Path]:
    """What a run is made of: the program and the files that its command names, the profile, scenario files."""
    start = settings.profile.start
    commands = [start.command or (), *((one.command or ()) for one in getattr(start, "versions", {}).values())]
    folder = Path(start.workdir or ".")
    for word in dict.fromkeys(word for words in commands for word in words):
        filled = word.replace("{binary}", settings.values.get("binary", ""))
        on_path = shutil.which(filled) if "/" not in filled and filled else None
        path = Path(on_path) if on_path else folder / filled
        if filled and path.is_file():
            yield path
    if target.epp is not None and target.epp.startswith("python:"):
        module = target.epp.split(":")[1].partition(".")[0]
        yield from (path for path in (Path(module), Path(f"{module}.py")) if path.exists())
    if target.profile is not None and Path(target.profile).is_file():
        yield Path(target.profile)
    yield from what.scenarios or ()


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths[:NAMED]) + _more(len(paths) - NAMED)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
