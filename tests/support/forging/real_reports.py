"""Reports of real targets over a part of the suite that a test has time for: it stands for the certified set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from conformance.cli.run_and_report import run_and_report
from conformance.planning.plan import Selection
from conformance.requirements.catalogue import Catalogue
from conformance.run.session import RunSettings
from conformance.scenario.loader import Instance, load
from conformance.targets.gateway import AnyProfile, Backend, GatewayProfile, GatewayStart
from conformance.targets.resolve import load_any

GATEWAY = (
    *("{python}", "-m", "reference_gateway", "--listen", "127.0.0.1:{port}", "--protocol-version", "{version}"),
    *("--epp", "{epp}", "--endpoints", "{endpoints}"),
)


LONG = "destination.within-pool"
"""Has sixty exchanges in each mode, a fifth of all, and each forgery is looked for in all of them."""


def part_of_the_suite() -> tuple[Instance, ...]:
    """A few instances of scenarios of each section, those that need what the target does not claim included."""
    found: dict[str, Instance] = {}
    sections: dict[str, int] = {}
    for one in load(Catalogue.load()):
        if one.group in found or one.scenario.slow or one.scenario.combine != "all":
            continue  # one row of a covering array bears on few of the requirements that all rows are about
        if one.group == LONG:
            continue
        if one.scenario.needs or sections.setdefault(one.section, 0) < 3:
            sections[one.section] = sections.get(one.section, 0) + 1
            found[one.group] = one
    return tuple(found.values())


def make(profile: AnyProfile, output: Path, instances: Sequence[Instance], **settings: object) -> Path:
    """Run the target and write its report; the folder."""

    def part(catalogue: Catalogue, extra: Sequence[Path] = ()) -> tuple[Instance, ...]:
        own = [one for one in load(catalogue, extra) if one not in load(catalogue)] if extra else []
        return (*instances, *own)

    modules = ("conformance.run.session", "conformance.cli.run_and_report", "conformance.report.document.build")
    with patch(f"{modules[0]}.load", part), patch(f"{modules[1]}.load", part), patch(f"{modules[2]}.load", part):
        run_and_report(
            RunSettings(profile=profile, seed=7, selection=Selection(), jobs=1, **settings),  # type: ignore[arg-type]
            output,
            quiet=True,
        )
    return output


def reference_epp(*faults: str) -> AnyProfile:
    """The reference EPP, with faults."""
    profile = load_any("reference")
    command = (*profile.start.command, *(f"--fault={fault}" for fault in faults))
    return profile.model_copy(update={"start": profile.start.model_copy(update={"command": command})})


def reference_gateway(*faults: str, subset_header: str | None = None) -> GatewayProfile:
    """The reference gateway, with faults. `subset_header`: the profile says that this one makes a subset hint."""
    command = (*GATEWAY, *(f"--fault={fault}" for fault in faults))
    return GatewayProfile(
        role="data-plane",
        name="small",
        start=GatewayStart(command=command),
        backends=(Backend(),),
        subset_header=subset_header,
    )
