"""A run from its settings to its report: for `run` and `certify`."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from conformance.cli.console import out, width_of
from conformance.cli.progress import progress
from conformance.errors import IncompleteError
from conformance.events import RunEvent, RunFinished
from conformance.evidence.redaction import Redactor
from conformance.folder import Folder
from conformance.outcome import RunOutcome
from conformance.planning.results import COUNTEREXAMPLE
from conformance.planning.selection import check_smoke
from conformance.report.document.basis import basis_of
from conformance.report.document.blocks import Waiver
from conformance.report.document.build import build
from conformance.report.document.model import Report
from conformance.report.document.waivers import Applied, KnownFailure, apply, exit_code_after, load_waivers
from conformance.report.render.folder import EVIDENCE, OF_A_RUN, EvidenceKeeper, reserved, write_all
from conformance.report.render.text import summary_text
from conformance.requirements.catalogue import Catalogue
from conformance.run import scratch
from conformance.run.child_process import warm
from conformance.run.engine import collect_seldom
from conformance.run.epp.binding import check_bindable
from conformance.run.roles import runner_of
from conformance.run.session import RunSettings, run
from conformance.run.workers import workers_for
from conformance.scenario.loader import load
from conformance.targets.gateway import AnyProfile, GatewayProfile
from conformance.targets.profile import Profile
from conformance.verdict import Verdict

INCOMPLETE = 4
"""The exit code of a run without a full verdict."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """A finished run: its report, the files written, the exit code, and why it stopped early, if it did."""

    report: Report
    paths: tuple[Path, ...]
    code: int
    stopped: IncompleteError | None
    waived: tuple[Applied, ...] = ()
    interrupted: bool = False
    """Ctrl-C ended it early."""

    @property
    def evidence(self) -> Path:
        """Where the evidence is."""
        return self.paths[0].with_name(EVIDENCE)

    @property
    def only_left_out(self) -> bool:
        """Whether it is incomplete for what was left out alone: it ran to its end, broke nothing, and what it tried was
        found out."""
        if self.code != INCOMPLETE or self.stopped is not None or self.interrupted:
            return False
        rows = self.report.requirements
        return not any(one.verdict is Verdict.INCONCLUSIVE and one.effect == "fail" for one in rows)


def run_and_report(
    settings: RunSettings, output: Path, *, waivers: Path | None = None, quiet: bool = False
) -> ReportedRun:
    """Run, and write report, evidence, HTML, JUnit and Markdown into the folder `output`.

    `waivers` is a file of failures that do not fail the run. A target that can't be reached or passes no gate, and
    Ctrl-C, still give a report. Raises `UsageError` before anything is started, and whatever is a defect of the suite.
    """
    catalogue = Catalogue.load()
    known = load_waivers(waivers, catalogue, _scenario_ids(catalogue, settings)) if waivers else ()
    instances = tuple(one for one in load(catalogue, settings.scenario_paths) if one.role == settings.profile.role)
    settings.selection.check(instances, catalogue)
    check_smoke(settings.selection, instances, catalogue)
    check_bindable(_known_endpoints(settings.profile))
    try:
        with reserved(output) as folder:
            return _run_and_report(settings, folder, catalogue, known, quiet=quiet)
    finally:
        scratch.clear()


def _run_and_report(
    settings: RunSettings, folder: Folder, catalogue: Catalogue, known: Sequence[KnownFailure], *, quiet: bool
) -> ReportedRun:
    redactor = Redactor.of(settings.profile)
    settings = dataclasses.replace(settings, redactor=redactor)
    outcome, stopped, unwritten = None, None, None
    collect_seldom()
    runner_of(settings.profile.role)  # imported before `warm` copies this process
    try:
        with (
            warm(workers_for(settings.profile, settings.jobs) - 1),
            EvidenceKeeper(folder) as keeper,
            progress(quiet=quiet) as shown,
        ):

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
    except OSError as problem:
        if outcome is None:
            raise
        unwritten = problem  # a full disk: what came out is told all the same
    assert outcome is not None, "a run that ends without an error has an outcome"
    applied = apply(known, outcome, dt.datetime.now(dt.UTC).date())
    report = build(
        outcome,
        catalogue=catalogue,
        waivers=[_row(one) for one in applied],
        profile=settings.profile,
        evidence=keeper.writer,
        redactor=redactor,
        stopped=stopped.message if stopped else "",
        data_plane=settings.data_plane.name,
        binary=settings.values.get("binary"),
        basis=basis_of(
            settings.profile,
            command=settings.command,
            selection=settings.selection,
            data_plane=settings.data_plane.name,
            scenario_paths=settings.scenario_paths,
            generated=outcome.counterexamples.items(),
        ),
    )
    try:
        if unwritten is not None:
            raise unwritten
        paths = (*write_all(report, folder), *_counterexamples(outcome, folder))
    except OSError:
        out().print(summary_text(report, width=width_of(out())))
        out().print(_what_is_left(folder.path))
        raise
    code = exit_code_after(outcome, applied) or (stopped.exit_code if stopped else 0)
    return ReportedRun(
        report=report, paths=paths, code=code, stopped=stopped, waived=applied, interrupted=outcome.interrupted
    )


def _known_endpoints(profile: AnyProfile) -> tuple[str, ...]:
    """The endpoints that the target knows, and at which the suite must serve."""
    if isinstance(profile, GatewayProfile):
        return tuple(endpoint for backend in profile.backends for endpoint in backend.endpoints)
    fixed = profile.discovery.fixed if isinstance(profile, Profile) else None
    return fixed.endpoints if fixed is not None else ()


def _what_is_left(output: Path) -> str:
    """What of a report could be written, and is whole."""
    kept = " · ".join(path.name for name in OF_A_RUN for path in sorted(output.glob(name)))
    use = " (`epp-conformance judge` judges it again)" if kept == EVIDENCE else ""
    return f"written whole: {kept or 'nothing'}{use}"


def _counterexamples(outcome: RunOutcome, folder: Folder) -> list[Path]:
    """Each failing generated conversation as a scenario file, for `--scenarios`."""
    paths = []
    for version, text in outcome.counterexamples.items():
        name = COUNTEREXAMPLE.format(version)
        folder.write(name, text.encode())
        paths.append(folder.path / name)
    return paths


def _scenario_ids(catalogue: Catalogue, settings: RunSettings) -> list[str]:
    return [name for one in load(catalogue, settings.scenario_paths) for name in (one.id, one.scenario.id)]


def _row(one: Applied) -> Waiver:
    waiver = one.waiver
    return Waiver(
        pattern=waiver.pattern,
        reason=waiver.reason,
        issue=waiver.link,
        owner=waiver.owner,
        expires=waiver.expires.isoformat(),
        matched=one.waived,
        problem=one.problem,
    )
