"""`epp-conformance load`: many requests at a time while the pool changes, every exchange judged."""

from __future__ import annotations

import contextlib
import random
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from conformance.cli import options
from conformance.cli.interrupt import nothing_to_interrupt
from conformance.load.bounds import MAX_AT_ONCE, MAX_RATE
from conformance.printable import plural
from conformance.targets.flags import OF_OTHER_ROLES, SelectionFlags, TargetFlags

if TYPE_CHECKING:
    from rich.status import Status

    from conformance.cli.patient_writer import PatientWriter
    from conformance.load.course import Snapshot
    from conformance.load.locust_master import LocustMaster
    from conformance.load.mix import LoadFile
    from conformance.load.run import LoadRun
    from conformance.load.settings import LoadSettings
    from conformance.run.engine import EngineThread
    from conformance.targets.profile import Profile

RATE, SECONDS = 100.0, 10.0
"""What is asked where no flag says how much: so many requests a second, for so long."""

_BIND = "127.0.0.1:5557"
_WAIT = 60.0


@options.spelt_out
def load(
    target: Annotated[TargetFlags, options.Taken(without=OF_OTHER_ROLES)],
    what: Annotated[SelectionFlags, options.Taken(only=("protocol_version", "seed"))],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="What is asked, how fast, and what becomes of the pool.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.01, max=MAX_RATE, help="Requests a second, answered or not."),
    ] = None,
    concurrent: Annotated[
        int | None,
        typer.Option(
            "--concurrent", metavar="N", min=1, max=MAX_AT_ONCE, help="So many at a time instead (closed loop)."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0.1, max=86_400, help="How long; default: 10.")
    ] = None,
    pods: Annotated[
        int | None, typer.Option("--pods", metavar="N", min=1, max=1000, help="Pods of the pool; default: 5.")
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="S", min=0, max=3600, help="In which a pool change must be followed; default: profile."
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=64, help="Processes that share the requests.")
    ] = 1,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, max=1000, help="Workers that share the requests (Locust)."),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option("--bind", metavar="HOST:PORT", help=f"Where workers connect; port 0: any; default: {_BIND}."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", metavar="S", min=1, max=3600, help=f"In which all workers have connected; default: {_WAIT:g}."
        ),
    ] = None,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, max=100_000, help="No more exchanges under way than this.")
    ] = 10_000,
    memory: Annotated[
        int, typer.Option("--memory", metavar="MIB", min=1, help="For exchanges that are remembered.")
    ] = 128,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Load a target on another machine, which must be yours to load.")
    ] = False,
    output: options.Output = Path("load-report"),
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Print a JSON object a second on standard output.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", min=0, max=65_535, help="Prometheus metrics; 0: any port."),
    ] = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Load an endpoint picker, and judge every exchange by every rule.

    Without FILE plain requests are sent, 100 a second for 10 seconds, to the endpoint picker that comes with the suite.
    Exit codes are those of `run`. Times are informational; they count from when each request was due.

    epp-conformance load --rate 500 --seconds 30

    epp-conformance load churn.yaml --epp 'cmd:./my-epp --port {port} --endpoints {endpointsFile}'
    """
    from conformance.cli.console import err, out, without_colour
    from conformance.cli.patient_writer import PatientWriter
    from conformance.cli.tap import listening
    from conformance.errors import UsageError
    from conformance.load import document
    from conformance.load.exposition import HOST, Exposition
    from conformance.load.many import ManyProcesses, ManyWorkers
    from conformance.load.run import LoadRun
    from conformance.load.settings import LoadSettings, check_arrivals, check_bounds, check_workers
    from conformance.report.render.folder import reserved
    from conformance.run.child_process import warm
    from conformance.run.engine import EngineThread, collect_seldom
    from conformance.targets.profile import Profile
    from conformance.targets.resolve import protocol_versions

    if no_color:
        without_colour()
    resolved = target.resolve()
    if not isinstance(resolved.profile, Profile):
        raise UsageError("load is for endpoint pickers", hint="name the profile of an EPP")
    if rate is not None and concurrent is not None:
        raise UsageError("--rate and --concurrent are two ways to load", hint="give one of them")
    if workers is not None and processes > 1:
        raise UsageError("--processes and --workers are two ways to share a load", hint="give one of them")
    for option, value in (("--bind", bind), ("--wait", wait)):
        if value is not None and workers is None:
            raise UsageError(f"{option} is for workers, and there are none", hint="add --workers N, or leave it out")
    version, *more = protocol_versions(resolved.profile, what.protocol_version or ())
    if more:
        raise UsageError(
            f"a load is judged by one version, not by {', '.join([version, *more])}",
            hint="give one --protocol-version, and load again for each other",
        )
    settings = LoadSettings(
        profile=resolved.profile,
        version=version,
        values=resolved.values,
        file=_file(file, rate, concurrent, seconds, pods, resolved.profile, alone=workers is None),
        seed=random.randrange(2**32) if what.seed is None else what.seed,
        grace=grace,
        at_once=at_once,
        memory=memory * 1024 * 1024,
        of=workers or processes,
    )
    check_arrivals(settings.file, at_once)
    check_bounds(settings.profile, remote=allow_remote)
    host, port = listening(_BIND if bind is None else bind, "--bind")
    if workers is not None:
        check_workers(settings.profile, host, remote=allow_remote)
    remarks = err()

    if not quiet:
        remarks.print(f"epp-conformance load: target {target.title}, {_what(settings)}, seed {settings.seed}")
    with reserved(output, own=()) as folder:
        collect_seldom()
        with (
            warm(processes if processes > 1 else 0),
            contextlib.nullcontext() if workers is None else _master(host, port, workers) as master,
            contextlib.nullcontext() if metrics_port is None else Exposition(metrics_port) as exposition,
            EngineThread() as engine,
            contextlib.nullcontext() if quiet else PatientWriter(sys.stderr) as said,
            PatientWriter(sys.stdout) if json_lines else contextlib.nullcontext() as lines,
            _Watch(lines, said) as watch,
        ):
            if exposition is not None:
                remarks.print(f"  metrics: http://{HOST}:{exposition.port}/metrics")

            def seen(snapshot: Snapshot) -> None:
                if exposition is not None:
                    exposition.renew(run, snapshot)
                watch(snapshot)

            def status(text: str) -> None:
                watch.say(f"  {text}")

            if master is not None:
                status(f"waiting for {plural(workers or 0, 'worker')} on port {master.port}")
                master.gather(_WAIT if wait is None else wait)
                run: LoadRun = ManyWorkers(settings, lag=engine.lag, status=status, watch=seen, master=master)
            else:
                kind = LoadRun if processes == 1 else ManyProcesses
                run = kind(settings, lag=engine.lag, status=status, watch=seen)
            _go(run, engine)
            statistics = "" if master is None else master.statistics()
        if lines is not None and lines.trouble:
            remarks.print(f"--json-lines: {lines.trouble}")
        results = remarks if json_lines else out()
        made = document.document(run, command=shlex.join(["epp-conformance", *sys.argv[1:]]))
        try:  # first: Ctrl-C often comes once the summary is there
            written = document.write(made, run, folder, statistics)
            nothing_to_interrupt()
        finally:  # a full disk costs the report, and not what came out
            for line in document.summary(run):
                results.print(line)
        results.print(f"report: {', '.join(map(str, written))}")
    raise typer.Exit(document.exit_code(run))


def _file(
    path: Path | None,
    rate: float | None,
    concurrent: int | None,
    seconds: float | None,
    pods: int | None,
    profile: Profile,
    *,
    alone: bool,
) -> LoadFile:
    """The load that the file and the flags name, of the target of `profile`; flags outweigh the file. `alone`: no other
    machine takes part."""
    from conformance.errors import UsageError
    from conformance.load import churn, mix, trouble
    from conformance.load.mix import Arrivals, LoadFile, MixedRequest
    from conformance.planning.fixed import pod_names
    from conformance.strict_yaml import FileError, load_located

    document = None
    if path is None:
        found = LoadFile(mix=(MixedRequest(name="plain"),))
    else:
        found, document = load_located(path, LoadFile, name=str(path))
    changes: dict[str, object] = {}
    if rate is not None or concurrent is not None or not found.arrivals:
        way: dict[str, object] = {"rate": rate or RATE} if concurrent is None else {"concurrent": concurrent}
        changes["arrivals"] = (Arrivals.model_validate({"seconds": seconds or SECONDS, **way}),)
    elif seconds is not None:
        raise UsageError("--seconds goes with --rate or --concurrent", hint="the file says how long each part takes")
    if pods is not None:
        if profile.discovery.fixed is not None:
            raise UsageError("--pods makes a pool, and this target's endpoints are fixed", hint="leave it out")
        changes["pods"] = pods
    found = found.model_copy(update=changes)
    if document is not None:
        fixed = profile.discovery.fixed
        problems = [
            *mix.problems(found.pod_names if fixed is None else pod_names(len(fixed.endpoints)), document),
            *churn.problems(
                found.churn, fixed=fixed is not None, pods=found.pods, seconds=found.seconds, document=document
            ),
            *trouble.problems(found.trouble, profile, found.seconds, document),
        ]
        if not alone:
            problems += [
                document.problem((name,), "machines have no common clock by which picks could be judged", _ON_ONE)
                for name in ("churn", "trouble")
                if getattr(found, name)
            ]
        if problems:
            raise FileError(problems)
    return found


_ON_ONE = "with --workers the pool stays as it is; --processes N shares such a load on one machine"


def _master(host: str, port: int, workers: int) -> LocustMaster:
    from conformance.load.locust_master import LocustMaster

    return LocustMaster(host, port, workers)


def _what(settings: LoadSettings) -> str:
    """What is about to happen, in a few words."""
    arrivals = settings.file.arrivals
    parts = []
    for one in arrivals[:4]:
        if one.rate is not None:
            rate = f"{one.rate[0]:g} to {one.rate[1]:g}" if isinstance(one.rate, tuple) else f"{one.rate:g}"
            parts.append(f"{rate} a second for {one.seconds:g} s")
        elif one.concurrent is not None:
            parts.append(f"{one.concurrent} at a time for {one.seconds:g} s")
        else:
            parts.append(f"{one.burst} at once every {one.every:g} s for {one.seconds:g} s")
    more = f", and {len(arrivals) - 4} parts more" if len(arrivals) > 4 else ""
    return f"version {settings.version}, " + ", then ".join(parts) + more


def _go(run: LoadRun, engine: EngineThread) -> None:
    """Run to the end, or until Ctrl-C: what was seen until then is the result. Before the load began it is none."""
    try:
        engine.call(run.run())
    except KeyboardInterrupt:
        if not run.began:
            raise


class _Watch:
    """Shows a snapshot every second: a line to `said`, or in place on a terminal; and as JSON to `lines`, if given."""

    def __init__(self, lines: PatientWriter | None, said: PatientWriter | None) -> None:
        from conformance.cli.console import err, is_live

        self._console = err()
        self._lines = lines
        self._said = said
        self._status: Status | None = None
        if is_live() and said is not None:
            self._status = self._console.status("starting")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._status is not None:
            self._console.print(text)
        elif self._said is not None:
            self._said.line(text)

    def __call__(self, snapshot: Snapshot) -> None:
        """Show it, on the engine's thread."""
        import dataclasses
        import json

        if self._lines is not None:
            self._lines.line(json.dumps(dataclasses.asdict(snapshot)))
        pick, late = snapshot.latest["timeToPick"], snapshot.latest["lateness"]
        times = f", pick p50 {pick['p50']:.1f} p99 {pick['p99']:.1f} ms" if pick["count"] else ""
        lateness = f", generator p99 {late['p99']:.1f} ms late" if late["count"] else ""
        going = sorted({one["kind"] for one in snapshot.troubles if one["seconds"] is None})
        trouble = f", trouble: {', '.join(going)}" if going else ""
        text = (
            f"{snapshot.seconds:6.1f} s: {snapshot.rate:.0f}/s judged, {snapshot.judged} in all, "
            f"{snapshot.failed} failed, {snapshot.open} open{times}{lateness}, "
            f"{snapshot.hit_rate:.1%} remembered{trouble}"
        )
        if self._status is not None:
            self._status.update(text)
        else:
            self.say(text)
