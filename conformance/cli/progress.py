"""What is shown while a run goes on: on a terminal one line per section, drawn in place; elsewhere plain lines."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from conformance.cli.console import err, is_live
from conformance.events import (
    AnomalySeen,
    RunEvent,
    ScenarioFinished,
    Status,
    VersionStarted,
)
from conformance.printable import plural
from conformance.verdict import PRECEDENCE, Verdict

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

STEP = 0.1
"""Plain progress is one line for each tenth of the scenarios."""

_STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.ERROR: "bold magenta", Verdict.WARN: "yellow"}
_WORDS = {Verdict.NOT_APPLICABLE: "not applicable", Verdict.PASS: "passed", Verdict.FAIL: "failed"}


def progress(*, quiet: bool) -> Progress:
    """The progress that suits where it is shown."""
    if quiet:
        return Progress()
    return LiveProgress() if is_live() else PlainProgress()


class Progress:
    """A handler of the run's events, and a context manager around the run. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, event: RunEvent) -> None:
        """Take one event, on the engine's thread."""


class PlainProgress(Progress):
    """Lines for logs: what is waited for at the start, each tenth, each failure by its id."""

    def __init__(self) -> None:
        self._console = err()
        self._began = time.monotonic()
        self._done = self._total = self._next = 0
        self._counts: Counter[Verdict] = Counter()
        self._last_status = ""
        self._notes: set[str] = set()

    def __call__(self, event: RunEvent) -> None:
        """Print what the event is worth."""
        match event:
            case VersionStarted(version=version, total=total):
                self._total, self._done = total, 0
                self._next = max(1, round(total * STEP))
                self._counts.clear()
                self._print(f"protocol {version}: {plural(total, 'scenario')}")
            case Status(text=text) if self._done == 0 and text != self._last_status:
                self._last_status = text
                self._print(f"  {text}")
            case ScenarioFinished(result=result):
                self._done += 1
                self._counts[result.verdict] += 1
                if result.verdict in (Verdict.FAIL, Verdict.ERROR):
                    self._print(f"  {result.verdict.upper()} {result.id}")
                if self._done >= self._next or self._done == self._total:
                    self._next = self._done + max(1, round(self._total * STEP))
                    self._print(f"  {self._done}/{self._total} {counted(self._counts)} ({self._elapsed})")
            case AnomalySeen(anomaly=anomaly) if anomaly.text not in self._notes:
                self._notes.add(anomaly.text)
                self._print(f"  note: {anomaly.text}")

    @property
    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.1f} s"

    def _print(self, text: str) -> None:
        self._console.print(text)


class LiveProgress(Progress):
    """One line per section with its counts, the time elapsed, and what is waited for now."""

    def __init__(self) -> None:
        self._console = err()
        self._began = time.monotonic()
        self._version = ""
        self._total = self._done = 0
        self._status = "starting"
        self._sections: dict[str, Counter[Verdict]] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(self, console=self._console, refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: RunEvent) -> None:
        """Take the event into what is drawn next."""
        match event:
            case VersionStarted(version=version, total=total):
                self._version, self._total, self._done = version, total, 0
                self._sections = {}
            case Status(text=text):
                self._status = text
            case ScenarioFinished(result=result):
                self._done += 1
                self._status = ""
                self._sections.setdefault(result.section, Counter())[result.verdict] += 1
                if result.verdict in (Verdict.FAIL, Verdict.ERROR) and self._live is not None:
                    self._live.console.print(f"{result.verdict.upper()} {result.id}", style=_STYLES[result.verdict])
            case _:
                pass

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        """The lines as they stand now."""
        from rich.text import Text

        sections = dict(self._sections)  # the engine's thread writes to it
        width = max((len(name) for name in sections), default=0)
        for name, counts in sections.items():
            line = Text(f"  {name.ljust(width)}  ")
            for verdict in PRECEDENCE:
                if counts[verdict]:
                    line.append(
                        f"{counts[verdict]} {_WORDS.get(verdict, verdict)}  ", style=_STYLES.get(verdict, "dim")
                    )
            yield line
        elapsed = time.monotonic() - self._began
        of = f"protocol {self._version}  {self._done}/{self._total}" if self._version else "getting ready"
        yield Text(f"{of}  {elapsed:.0f} s  {self._status}", style="bold", overflow="ellipsis", no_wrap=True)


def counted(counts: Counter[Verdict]) -> str:
    """`12 passed, 1 failed`: every verdict that was given, the worst first."""
    return ", ".join(f"{counts[verdict]} {_WORDS.get(verdict, verdict)}" for verdict in PRECEDENCE if counts[verdict])
