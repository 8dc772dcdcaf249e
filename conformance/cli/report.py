"""`epp-conformance report`: show, verify, compare and convert reports."""

from __future__ import annotations

import itertools
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.cli.commands import Commands
from conformance.cli.reproduce import reproduce

if TYPE_CHECKING:
    from conformance.report.document.model import Report

report = typer.Typer(
    cls=Commands, no_args_is_help=True, rich_markup_mode=None, help="Show, verify, compare and convert reports."
)

Where = Annotated[Path, typer.Argument(metavar="REPORT", help="report.json, or the folder that has it.")]


class To(StrEnum):
    """What a report can be converted to."""

    HTML = "html"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    YAML = "yaml"
    UPSTREAM = "upstream"
    BADGE = "badge"
    SHIELDS = "shields"
    GITHUB = "github"
    GITLAB = "gitlab"


class ShownAs(StrEnum):
    """How failures are shown."""

    TEXT = "text"
    SVG = "svg"
    MERMAID = "mermaid"


@report.command()
def show(
    where: Where = options.DEFAULT_OUTPUT,
    everything: Annotated[bool, typer.Option("--all", help="Every failure in full.")] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Conversations to their last message, with all details.")
    ] = False,
    unsettled: Annotated[bool, typer.Option("--unsettled", help="What was skipped or inconclusive, too.")] = False,
    form: Annotated[
        ShownAs, typer.Option("--format", help="svg, mermaid: the first failure's conversation as a sequence diagram.")
    ] = ShownAs.TEXT,
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="ID", help="Only this scenario, passed or failed.")
    ] = None,
    no_color: options.NoColor = False,
) -> None:
    """Show the failures of a report, and its summary; or one conversation as a picture, for an issue."""
    from conformance.cli.console import without_colour
    from conformance.cli.show import BLOCKS, show_failures, show_scenario, show_summary
    from conformance.verdict import Verdict

    if no_color:
        without_colour()
    found, path = read(where)
    if form is not ShownAs.TEXT:
        from conformance.cli.diagram import diagram

        typer.echo(diagram(found, found.evidence_beside(path), scenario, mermaid=form is ShownAs.MERMAID), nl=False)
        return
    if scenario is not None:
        show_scenario(found, found.evidence_beside(path), scenario, whole=whole)
        return
    verdicts = [Verdict.FAIL, Verdict.ERROR]
    if unsettled:
        verdicts += [Verdict.INCONCLUSIVE, Verdict.SKIPPED]
    show_failures(
        found,
        found.evidence_beside(path),
        verdicts=tuple(verdicts),
        blocks=10_000 if everything else BLOCKS,
        whole=whole,
    )
    show_summary(found, [path])


@report.command()
def verify(
    where: Where = options.DEFAULT_OUTPUT,
    evidence: Annotated[
        Path | None, typer.Argument(metavar="EVIDENCE", help="Default: the file that the report names, beside it.")
    ] = None,
) -> None:
    """Check a report offline: schema, digests, roll-ups, and judge its evidence again.

    Exit code 1 if a step fails, 2 if the evidence is missing, 4 if another step can't be taken.
    """
    from conformance.cli.console import out
    from conformance.errors import UsageError
    from conformance.report.render.text import verification_text
    from conformance.report.verify.verification import verify as verified
    from conformance.run.engine import collect_seldom

    if evidence is not None and not evidence.is_file():  # a slip of the user's is nothing against the report
        raise UsageError(f"there is no evidence at {evidence}", hint="name the file, or leave it out")
    collect_seldom()
    found = verified(report_path(where), evidence or "beside")
    out().print(verification_text(found))
    incomplete = 2 if found.step("evidence").answer == "unknown" else 4
    raise typer.Exit({"pass": 0, "fail": 1}.get(found.answer, incomplete))


@report.command()
def diff(
    reports: Annotated[
        list[Path], typer.Argument(metavar="BEFORE AFTER…", help="Two reports or more, the oldest first.")
    ],
) -> None:
    """Say what differs from each report to the next. Exit 1 if anything got worse."""
    from conformance.errors import UsageError
    from conformance.report.render.diff import diff as difference

    if len(reports) < 2:
        raise UsageError("one report has nothing to be compared with", hint="name two or more")
    regressed = False
    for before, after in itertools.pairwise(reports):
        found = difference(read(before)[0], read(after)[0])
        if len(reports) > 2:
            typer.echo(f"{before} → {after}:")
        typer.echo("\n".join(found.lines()))
        regressed = regressed or found.regressed
    raise typer.Exit(1 if regressed else 0)


@report.command()
def matrix(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders with reports, at any depth.")],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page as one HTML file.")] = Path(
        "conformance-matrix.html"
    ),
    markdown: Annotated[Path, typer.Option("--markdown", metavar="FILE", help="The page as Markdown.")] = Path(
        "conformance-matrix.md"
    ),
) -> None:
    """Put reports side by side: implementations by versions, then by requirements, gateways and EPPs apart."""
    from conformance.cli.files import write_file
    from conformance.errors import UsageError
    from conformance.report.document.model import read_report
    from conformance.report.render import matrix as page

    paths = dict.fromkeys(path for folder in folders for path in _reports_in(folder))
    if not paths:
        raise UsageError(f"there is no report in {', '.join(map(str, folders))}", hint="name folders of reports")
    found = [(read_report(path), path) for path in paths]
    for target, render, option in ((html, page.html, "--html"), (markdown, page.markdown, "--markdown")):
        linked = [(one, _link(path, target)) for one, path in found]
        write_file(target, render(page.matrix(linked)), option)
        typer.echo(str(target))


def _reports_in(folder: Path) -> list[Path]:
    """The reports in a folder, at any depth; a file is one."""
    if folder.is_file():
        return [folder]
    return sorted(path for pattern in ("report.json", "*-report.yaml") for path in folder.rglob(pattern))


def _link(path: Path, page: Path) -> str:
    """Where a report is from a page: its own page if it has one."""
    beside = path.with_name("report.html")
    shown = beside if path.name == "report.json" and beside.is_file() else path
    return Path(os.path.relpath(shown, page.absolute().parent)).as_posix()


report.command()(reproduce)


@report.command()
def convert(
    where: Where = options.DEFAULT_OUTPUT,
    to: Annotated[To, typer.Option("--to", "-t", help="The form wanted.")] = To.HTML,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
    ] = None,
    protocol_version: Annotated[
        str | None, typer.Option("--protocol-version", metavar="VERSION", help="The version that a badge is for.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="FILE", help="Where annotations for github and gitlab point.")
    ] = None,
) -> None:
    """Convert a report to HTML, JUnit XML, Markdown, YAML, upstream's ConformanceReport, an SVG badge, JSON for
    shields.io, annotations of a change on GitHub (workflow commands), or on GitLab (code quality)."""
    from conformance.cli.files import write_file

    found, path = read(where)
    text = _converted(found, path, to, protocol_version, profile)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    write_file(output, text, "--output")


@report.command()
def schema() -> None:
    """Print the JSON Schema of report.json."""
    from conformance.cli.console import print_json
    from conformance.report.document.model import report_schema

    print_json(report_schema())


def read(where: Path) -> tuple[Report, Path]:
    """The report at `where`, a file or the folder that has it, and its file. Raises `UsageError`."""
    from conformance.report.document.model import read_report

    path = report_path(where)
    return read_report(path), path


def report_path(where: Path) -> Path:
    """The file of the report. Raises `UsageError` if there is none."""
    from conformance.errors import UsageError

    path = where / "report.json" if where.is_dir() else where
    if not path.is_file():
        others = sorted(other for pattern in ("*-report.yaml", "*/report.json") for other in where.glob(pattern))
        hint = "`epp-conformance run` writes one"
        if others:
            hint = f"name one of its reports, such as {others[0]}"
        elif where != options.DEFAULT_OUTPUT:
            hint = "name report.json or its folder"
        folder = "" if path.is_absolute() else f" (the working folder is {Path.cwd()})"
        raise UsageError(f"there is no report at {where}: no file {path}{folder}", hint=hint)
    return path


def _converted(found: Report, path: Path, to: To, version: str | None, profile: Path | None) -> str:
    match to:
        case To.HTML:
            from conformance.report.render.html import html

            return html(found, found.evidence_beside(path))
        case To.JUNIT:
            from conformance.report.render.junit import junit

            return junit(found)
        case To.MARKDOWN:
            from conformance.report.render.markdown import summary

            return summary(found)
        case To.YAML:
            from conformance.report.render.submission import to_yaml

            return to_yaml(found)
        case To.UPSTREAM:
            from conformance.report.render.upstream import to_yaml as upstream_yaml

            return upstream_yaml(found)
        case To.BADGE:
            from conformance.report.render.badge import svg

            return svg(found, version)
        case To.SHIELDS:
            import json

            from conformance.report.render.badge import endpoint

            return json.dumps(endpoint(found, version), indent=2)
        case To.GITHUB:
            from conformance.report.render.annotations import github

            return github(found, profile)
        case To.GITLAB:
            from conformance.report.render.annotations import gitlab

            return gitlab(found, profile)
