"""Flags that several commands share, and what they make of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from conformance.planning.plan import Selection


class RoleName(StrEnum):
    """Which side of the protocol is tested."""

    EPP = "epp"
    DATA_PLANE = "data-plane"


Role = Annotated[
    RoleName | None,
    typer.Option("--role", help="Which side is tested: an endpoint picker (default), or a gateway."),
]
Gateway = Annotated[
    str | None,
    typer.Option("--gateway", metavar="URL", help="A gateway that runs already: role data-plane."),
]
EppListen = Annotated[
    list[str] | None,
    typer.Option(
        "--epp-listen", metavar="IP:PORT", help="Where the gateway expects its EPP. Repeatable, for a second pool."
    ),
]
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
    typer.Option(
        "--tls",
        metavar="MODE",
        help="plaintext, unverified (any certificate) or verified; of a gateway to its EPP: plaintext or self-signed.",
    ),
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
    typer.Option("--jobs", "-j", min=1, max=16, help="Targets that run side by side, where we start them; default: 4."),
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
    from conformance.planning.plan import Selection
    from conformance.requirements.catalogue import Catalogue

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
