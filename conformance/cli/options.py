"""Flags that several commands share, and what they make of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from conformance.run.plan import Selection
    from conformance.targets.resolve import Resolved

Epp = Annotated[
    str | None,
    typer.Option("--epp", metavar="TARGET", help="reference (default), HOST:PORT, 'cmd:COMMAND' or image:IMAGE."),
]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", metavar="FILE|NAME", help="What the target is: a YAML file, or a profile shipped here."),
]
Binary = Annotated[
    str | None,
    typer.Option("--binary", metavar="PATH", help="The program that fills {binary} in the profile."),
]
Endpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoints", metavar="IP:PORT,…", help="Endpoints that the target knows; model servers are bound there."
    ),
]
EndpointsFile = Annotated[
    Path | None,
    typer.Option(
        "--endpoints-file",
        metavar="PATH",
        help="File that the target watches: one endpoint a line. Rewritten during the run, restored at its end.",
    ),
]
BodyModes = Annotated[
    list[str] | None,
    typer.Option("--body-mode", metavar="MODE", help="full-duplex, buffered, streamed or none. Repeatable."),
]
TlsMode = Annotated[
    str | None,
    typer.Option("--tls", metavar="MODE", help="plaintext, unverified (any certificate) or verified."),
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", metavar="PEM", help="What must have signed the target's certificate."),
]
DataPlane = Annotated[
    str,
    typer.Option(
        "--data-plane",
        metavar="fake|envoy[:VARIANT]",
        help="What carries requests to the target: the suite's own proxy, or a real Envoy (extra `envoy`).",
    ),
]
ProtocolVersions = Annotated[
    list[str] | None,
    typer.Option(
        "--protocol-version", metavar="VERSION|all", help="Default: 1.0.0, or the newest claimed. Repeatable."
    ),
]
Scenarios = Annotated[
    list[str] | None,
    typer.Option("--scenario", "-k", metavar="ID|GLOB", help="Only these scenarios. Repeatable."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="ID|GLOB", help="Not these scenarios. Repeatable."),
]
Requirements = Annotated[
    list[str] | None,
    typer.Option("--requirement", metavar="ID", help="Only scenarios of this requirement. Repeatable."),
]
Levels = Annotated[
    list[str] | None,
    typer.Option("--level", metavar="LEVEL", help="Only requirements of this level (MUST, SHOULD, …). Repeatable."),
]
Sections = Annotated[
    list[str] | None,
    typer.Option("--section", metavar="NAME", help="Only scenarios of this section. Repeatable."),
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Only the smoke set.")]
Slow = Annotated[bool, typer.Option("--slow", help="Slow scenarios too.")]
ScenarioPaths = Annotated[
    list[Path] | None,
    typer.Option("--scenarios", metavar="DIR|FILE", help="Further scenario files of your own. Repeatable."),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, max=16, help="Targets that run side by side, where we start them."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**32 - 1, help="For the same prompts as in another run."),
]
PropertyExamples = Annotated[
    int, typer.Option("--property-examples", metavar="N", min=0, help="Generated conversations to try, afterwards.")
]
Waivers = Annotated[
    Path | None, typer.Option("--waivers", metavar="FILE", help="Known failures that shall not fail the run.")
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the report goes.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (as NO_COLOR=1).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only failures and the summary.")]

DEFAULT_OUTPUT = Path("conformance-report")


def resolve_target(
    epp: str | None,
    profile: str | None,
    binary: str | None,
    endpoints: list[str] | None,
    endpoints_file: Path | None,
    body_mode: list[str] | None,
    tls: str | None,
    ca: Path | None,
) -> Resolved:
    """The target that the flags name."""
    from conformance.targets.resolve import Overrides, resolve

    overrides = Overrides(
        binary=binary,
        endpoints=tuple(endpoints or ()),
        endpoints_file=endpoints_file,
        body_modes=tuple(body_mode or ()),
        tls=tls,
        ca=ca,
    )
    return resolve(epp, profile, overrides)


def selection(
    scenario: list[str] | None = None,
    exclude: list[str] | None = None,
    requirement: list[str] | None = None,
    level: list[str] | None = None,
    section: list[str] | None = None,
    *,
    smoke: bool = False,
    slow: bool = False,
) -> Selection:
    """The selection that the flags name; requirements may be given by an alias, levels in small letters."""
    from conformance.requirements.catalogue import Catalogue
    from conformance.run.plan import Selection

    catalogue = Catalogue.load()
    return Selection(
        scenarios=tuple(scenario or ()),
        exclude=tuple(exclude or ()),
        requirements=tuple(catalogue.get(name).id for name in requirement or ()),
        levels=tuple(name.upper() for name in level or ()),
        sections=tuple(section or ()),
        smoke=smoke,
        slow=slow,
    )


def command_line(
    epp: str | None,
    profile: str | None,
    binary: str | None,
    endpoints: list[str] | None,
    endpoints_file: Path | None,
    body_mode: list[str] | None,
    tls: str | None,
    ca: Path | None,
    scenarios: list[Path] | None = None,
    *,
    data_plane: str = "fake",
) -> str:
    """The command that runs the same target again: the flags that name it, as a shell takes them."""
    flags: list[tuple[str, object]] = [
        ("--epp", epp),
        ("--profile", profile),
        ("--binary", binary),
        ("--endpoints", ",".join(endpoints or ())),
        ("--endpoints-file", endpoints_file),
        *(("--body-mode", mode) for mode in body_mode or ()),
        ("--tls", tls),
        ("--ca", ca),
        *(("--scenarios", path) for path in scenarios or ()),
        ("--data-plane", data_plane if data_plane != "fake" else None),
    ]
    words = [word for flag, value in flags if value for word in (flag, str(value))]
    return shlex.join(["epp-conformance", "run", *words])
