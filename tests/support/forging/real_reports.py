"""Reports of real targets over a part of the suite that a test has time for: it stands for the certified set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from conformance.cli.run_and_report import run_and_report
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Selection
from conformance.requirements.catalogue import Catalogue
from conformance.run.session import RunSettings
from conformance.scenario.loader import Instance, load
from conformance.targets.gateway import AnyProfile, Backend, GatewayProfile, GatewayStart
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.resolve import load_any
from real_envoy import find_envoy

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


def instances_of(name: str) -> tuple[Instance, ...]:
    """The scenario instances that stand for the certified set in a set-up."""
    _, groups, _ = SET_UPS[name]
    if groups == "server":
        return tuple(one for one in load(Catalogue.load()) if one.role == "model-server")
    return tuple(one for one in load(Catalogue.load()) if one.group in groups) if groups else part_of_the_suite()


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


def model_server(flag: str) -> ModelServerProfile:
    """A fake model server that the suite starts, and little load."""
    command = ["{python}", "-m", "fake_modelserver", "serve", flag, "--listen=127.0.0.1:{port}"]
    return ModelServerProfile.model_validate(
        {
            "role": "model-server",
            "start": {"command": command},
            "requests": {"model": "small-model"},
            "adapters": ["tuned-a", "tuned-b"],
            "limits": {"concurrency": 16, "tokens": 64},
            "protocolVersions": ["next"],
        }
    )


COMPLETION, INSIDE = "destination.completion", "subset.pick-stays-inside"
SET_UPS: dict[str, tuple[Callable[[], AnyProfile], Sequence[str], dict[str, Any]]] = {
    "epp": (reference_epp, (), {}),
    "bad-epp": (lambda: reference_epp("metadata-differs"), (), {}),
    "gateway": (reference_gateway, (), {}),
    "bad-gateway": (lambda: reference_gateway("no-end-of-stream"), (), {}),
    "hintless-gateway": (lambda: reference_gateway("hint-not-sent", subset_header="x-subset"), (), {}),
    "right-server": (lambda: model_server("--variant=right"), "server", {}),
    "wrong-server": (lambda: model_server("--fault=queue-always-0"), "server", {}),
    "health": (lambda: reference_epp("service-always-healthy"), ("health.before-the-pool",), {"versions": ("next",)}),
    "unread": (lambda: reference_epp("metadata-differs"), ("robustness.unread",), {}),
    "envoy": (lambda: reference_epp("subset-ignored"), (COMPLETION, INSIDE), {"data_plane": "envoy:override-host"}),
    "ai-gateway": (lambda: reference_epp("subset-ignored"), (COMPLETION,), {"data_plane": "envoy:envoy-ai-gateway"}),
}
"""By name: the target, the scenario groups (all of a part, if none), and further settings of the run."""


def made(name: str, folder: Path) -> Path:
    """The folder of the report of a set-up. Raises `EnvoyError` if Envoy is missing."""
    profile, _, settings = SET_UPS[name]
    target = profile()
    if "data_plane" in settings:
        find_envoy()
        plane = DataPlaneChoice.named(settings["data_plane"])
        target, settings = plane.driven(target), {**settings, "data_plane": plane}
    return make(target, folder, instances_of(name), **settings)
