"""A live tap: relay, record, judge, tell.

async with LiveTap(settings, show=print, warn=print) as tap:
    ...                     # data planes connect to tap.address
tap.tally, tap.summary()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from conformance.errors import UsageError
from conformance.printable import plural
from conformance.run.engine import LagMeter
from conformance.tap.gathering import Gathered, Gathering
from conformance.tap.judge_process import JudgingProcess
from conformance.tap.judging import JudgedExchange, JudgingSettings
from conformance.tap.metrics import Readings, Tally, serve_metrics
from conformance.tap.redaction import LiveRedaction
from conformance.verdict import Verdict
from ext_proc.http2.address import format_address
from ext_proc.http2.errors import BadAddress, ConnectFailed
from ext_proc.http2.tls import ClientTls, ServerTls
from ext_proc.record import Recorder
from ext_proc.relay import Recording, RecordingLimits, Tap, open_tap

LOOK = 1.0
"""Seconds between two looks for exchanges that wait too long."""

REASONS = 10
"""Reasons why data planes can't connect that are told, each once: who looks for open ports has many. So many reasons
are told why exchanges can't be judged, too, each once in `TELL` looks."""

TELL = 10
"""Looks between two words about what was left out, or about an EPP that can't be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """A live tap. `metrics` is host and port of the metrics page, None for none; `every`th streams are recorded."""

    host: str
    port: int
    upstream: str
    judging: JudgingSettings
    listen_tls: ServerTls | None = None
    upstream_tls: ClientTls | None = None
    connect_timeout: float = 5.0
    every: int = 1
    limits: RecordingLimits = field(default_factory=RecordingLimits)
    redaction: LiveRedaction = field(default_factory=LiveRedaction)
    metrics: tuple[str, int] | None = None


class LiveTap:
    """A running live tap. `show` gets findings as they come, `warn` what else is to be said, both as text.

    Entering it raises `UsageError` for addresses and files that can't be used.
    """

    def __init__(self, settings: LiveSettings, *, show: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.tally = Tally()
        self.metrics_port: int | None = None
        self._settings = settings
        self._show = show
        self._warn = warn
        loop = asyncio.get_running_loop()
        self._recorder = Recorder()
        self._process = JudgingProcess(settings.judging, self._judged, warn)
        self._lag = LagMeter()
        self._gathering = Gathering(
            self._gathered, loop.time, deadline=settings.judging.context.deadline, late=self._lag.total
        )
        self._recorder.listen(self._gathering)
        self._tap: Tap | None = None
        self._beside: tuple[asyncio.Task[None], ...] = ()
        self._cut = 0
        self._told: set[str] = set()
        self._problems: set[str] = set()
        """What kept judges from judging, told lately."""
        self._stop_metrics: Callable[[], None] = lambda: None

    @property
    def tap(self) -> Tap:
        """The relay."""
        assert self._tap is not None, "the live tap is not entered"
        return self._tap

    @property
    def address(self) -> str:
        """`host:port` for data planes."""
        return self.tap.address

    @property
    def left_out(self) -> int:
        """Exchanges that were not judged because judging was behind, or broke."""
        return self.tap.counts.declined + self.tally.unjudged + self._process.late + self._process.lost

    async def __aenter__(self) -> Self:
        settings = self._settings
        recording = Recording(
            recorder=self._recorder,
            capture=settings.redaction,
            every=settings.every,
            admit=lambda: self._gathering.has_room() and self._process.has_room(),
            limits=settings.limits,
        )
        try:
            self._tap = await open_tap(
                settings.host,
                settings.port,
                settings.upstream,
                listen_tls=settings.listen_tls,
                upstream_tls=settings.upstream_tls,
                connect_timeout=settings.connect_timeout,
                recording=recording,
                unreachable=self._unreachable,
                unopened=self._unopened,
            )
        except BadAddress as problem:
            raise UsageError(f"{problem.where}: {problem.what}", hint=problem.hint) from None
        except OSError as problem:
            what = f"{format_address(settings.host, settings.port)}: {problem.strerror}"
            raise UsageError(what, hint="choose another address with --listen") from None
        try:
            if settings.metrics is not None:
                readings = Readings(
                    counts=self._tap.counts,
                    tally=self.tally,
                    open_streams=lambda: self.tap.streams,
                    waiting=lambda: self._process.waiting,
                    lost=lambda: self._process.lost,
                )
                self.metrics_port, self._stop_metrics = serve_metrics(readings, *settings.metrics)
            await self._process.start()
        except BaseException:
            await self._tap.close()
            raise
        loop = asyncio.get_running_loop()
        self._beside = (loop.create_task(self._look()), loop.create_task(self._lag.run()))
        for task in self._beside:
            task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._beside:
            task.cancel()
        async with contextlib.AsyncExitStack() as stack:  # each of them, also where one is cancelled
            stack.callback(self._stop_metrics)
            stack.push_async_callback(self._process.close)
            stack.push_async_callback(self.tap.close)
            self._gathering.stop()  # first: that streams end now is not the data plane's doing
            await asyncio.gather(*self._beside, return_exceptions=True)

    async def drain(self, seconds: float) -> None:
        """Let open streams end, for at most `seconds` (or until this is cancelled), and have no new ones opened."""
        try:
            if seconds:
                if self.tap.streams:
                    what = f"waiting up to {seconds:g} s for {_open(self.tap.streams)} to end, and taking no new ones"
                    self._warn(f"{what}; interrupt again to end at once")
                await self.tap.drain(seconds)
        finally:
            if self.tap.streams:
                self._warn(f"cutting {_open(self.tap.streams)}")

    @property
    def exit_code(self) -> int:
        """1 if a rule was broken, 3 if something could not be recorded or judged, 4 if something was left out, or
        nothing was seen of the EPP."""
        tally = self.tally
        if tally.violating:
            return 1
        if self.tap.counts.failures or tally.problems or self._process.lost or tally.of(Verdict.ERROR):
            return 3
        return 4 if self.left_out or tally.untold == tally.judged else 0

    def summary(self) -> str:
        """What was relayed, judged and found."""
        counts, tally = self.tap.counts, self.tally
        lines = [
            f"{plural(counts.streams, 'stream')} relayed, {tally.judged} judged, {tally.violating} with a broken rule"
        ]
        if tally.untold:
            lines.append(
                f"{plural(tally.untold, 'tells', 'tell')} nothing of the EPP, "
                "as those do that end before it said anything"
            )
        elif not tally.judged:
            lines.append("so nothing is known of the EPP")
        if counts.sampled_out:
            lines.append(f"{plural(counts.sampled_out, 'was', 'were')} sampled out, as asked")
        if behind := self.left_out - self._process.lost:
            lines.append(
                f"{plural(behind, 'was', 'were')} left out, as judging was behind: absence of findings says less"
            )
        if self._process.lost:
            written = ", and may be among the transcripts" if self._settings.judging.record is not None else ""
            lines.append(
                f"{plural(self._process.lost, 'was', 'were')} lost with the process that judges{written}: "
                "trouble of our own"
            )
        if tally.unwritten:
            lines.append(
                f"{plural(tally.unwritten, 'is', 'are')} not among the transcripts, which could not be written"
            )
        if tally.partial:
            lines.append(
                f"{plural(tally.partial, 'was', 'were')} judged by the beginning, up to a limit or a silence of minutes"
            )
        if counts.failures or tally.problems:
            lines.append(f"{counts.failures + tally.problems} could not be recorded or judged: trouble of our own")
        if counts.lost:
            lines.append(f"{plural(counts.lost, 'was', 'were')} open when the connection to the EPP broke")
        if counts.refused:
            lines.append(
                f"{plural(counts.refused, 'stream was', 'streams were')} refused, "
                "as the EPP takes no more at a time, or was leaving"
            )
        if counts.unreachable:
            lines.append(
                f"{plural(counts.unreachable, 'connection was', 'connections were')} cut, "
                "as the EPP could not be reached"
            )
        if counts.unopened:
            why = "no TLS could be agreed on, or no HTTP/2 was spoken"
            lines.append(
                f"{plural(counts.unopened, 'connection of a data plane was', 'connections of data planes were')} cut, "
                f"as {why}"
            )
        lines += [f"  {count:6} × {requirement}" for requirement, count in tally.of(Verdict.FAIL)]
        return "\n".join(lines)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _gathered(self, gathered: Gathered) -> None:
        if not self._process.offer(gathered):
            self.tally.unjudged += 1

    def _unreachable(self, problem: ConnectFailed) -> None:
        """Say so at once, and later how often: a data plane connects again many times a second."""
        self._cut += 1
        if self._cut == 1:
            self._warn(f"the EPP can't be reached, the data plane's connection is cut: {problem}")

    def _unopened(self, why: str) -> None:
        if why not in self._told and len(self._told) < REASONS:
            self._told.add(why)
            self._warn(f"a data plane's connection is cut: {why}")

    def _judged(self, one: JudgedExchange) -> None:
        self.tally.add(one)
        if one.problem and one.problem not in self._problems and len(self._problems) < REASONS:
            self._problems.add(one.problem)  # what breaks once breaks for every exchange of its kind
            self._warn(f"{one.exchange}: {one.problem}")
        for text in one.shown:
            self._show(text)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What goes on beside the relaying ends when it is cancelled, or it broke."""
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.tally.problems += 1
            self._warn(f"silent streams may be missed from now on, relaying goes on: {problem!r}")

    async def _look(self) -> None:
        told = looks = 0
        while True:
            await asyncio.sleep(LOOK)
            self._gathering.look()
            looks += 1
            if self.left_out > told and (not told or looks % TELL == 0):
                self._warn(
                    f"judging is behind the traffic: {plural(self.left_out - told, 'stream was', 'streams were')} left "
                    "out of it; relaying is not affected"
                )
                told = self.left_out
            if looks % TELL == 0:
                self._problems.clear()
            if self._cut and looks % TELL == 0:
                if self._cut > 1:
                    self._warn(
                        f"{plural(self._cut - 1, 'more connection was', 'more connections were')} cut, "
                        "as the EPP could not be reached"
                    )
                self._cut = 0


def _open(streams: int) -> str:
    return plural(streams, "open stream")
