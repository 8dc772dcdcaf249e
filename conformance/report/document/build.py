"""A run's outcome, and what is known of target and machine, become the report."""

from __future__ import annotations

import hashlib
import math
import platform
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, metadata
from importlib.metadata import version as installed
from pathlib import Path, PurePath
from typing import Any

from conformance.evidence.redaction import Redactor
from conformance.evidence.store import EvidenceWriter
from conformance.folder import open_regular
from conformance.outcome import RunOutcome, VersionOutcome
from conformance.report.document.ai_gateway import assess
from conformance.report.document.basis import PlanBasis
from conformance.report.document.blocks import (
    AnomalyRow,
    CatalogueBlock,
    Environment,
    GatewayTopology,
    ImplementationBlock,
    ModelServerTopology,
    Platform,
    Specification,
    Subject,
    Suite,
    Topology,
    Waiver,
)
from conformance.report.document.model import Report, seal
from conformance.report.document.rows import RequirementRow, VersionRow
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.digest import scenarios_digest
from conformance.scenario.loader import load
from conformance.targets.gateway import AnyProfile, GatewayProfile, GatewayStart
from conformance.targets.model_server import ModelServerProfile
from conformance.verdict import Result, Verdict


def build(
    outcome: RunOutcome,
    *,
    catalogue: Catalogue,
    profile: AnyProfile,
    evidence: EvidenceWriter | None = None,
    redactor: Redactor | None = None,
    subject: Subject | None = None,
    waivers: Sequence[Waiver] = (),
    stopped: str = "",
    data_plane: str = "fake",
    basis: PlanBasis | None = None,
    binary: str | None = None,
) -> Report:
    """The report of a run.

    `evidence` is the (closed) writer that was given every judged episode, `redactor` the one that was used at capture:
    it also goes over this document. `subject` says how the target was run where the profile does not. `stopped` says
    why the run ended early (the gate, a target out of reach, Ctrl-C); such a report is never complete. `data_plane` is
    the name of what carried the scenarios, `basis` what their plan was computed from, `binary` the
    program that `{binary}` of the profile stands for.
    """
    headline = headline_version(outcome, profile)
    complete = not (stopped or outcome.interrupted) and bool(outcome.versions)
    document: dict[str, Any] = {
        "suite": suite(),
        "catalogue": catalogue_block(catalogue),
        "specification": specification(catalogue, headline),
        "implementation": ImplementationBlock(**profile.implementation.model_dump(), role=profile.role),
        "subject": subject or subject_of(profile, outcome.image, binary),
        "environment": environment(outcome.seed, profile, data_plane),
        "plan": basis,
        "claims": profile.claims,
        "started_at": outcome.started_at,
        "finished_at": outcome.finished_at,
        "duration": round(outcome.duration, 3),
        "result": overall(outcome.versions, complete=complete),
        "complete": complete and all(version.complete for version in outcome.versions),
        "stopped": stopped or ("interrupted" if outcome.interrupted else ""),
        "versions": tuple(version_row(catalogue, version) for version in outcome.versions),
        "requirements": tuple(
            RequirementRow.of(version.version, row) for version in outcome.versions for row in version.requirements
        ),
        "results": tuple(
            replace(result, evidence=evidence.reference(version.version, result.id) if evidence else None)
            for version in outcome.versions
            for result in version.results
        ),
        "waivers": tuple(waivers),
        "anomalies": tuple(AnomalyRow(code=a.code, text=a.text, scenario=a.scenario) for a in outcome.anomalies),
        "figures": {
            name: value
            for name, value in outcome.figures.items()
            if not (isinstance(value, float) and not math.isfinite(value))
        },
        "redactions": (),
        "evidence": evidence.summary() if evidence else None,
        "digest": "sha256:" + "0" * 64,
    }
    plain = Report(**document).document()
    if redactor is not None:
        plain = redactor.document(plain)
        plain["redactions"] = [one.model_dump(mode="json", by_alias=True) for one in redactor.redactions]
    return seal(_well_formed(plain))


def _well_formed(value: Any) -> Any:
    """Lone surrogates, which targets may send and JSON files can't hold, as escapes."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {name: _well_formed(item) for name, item in value.items()}
        case list():
            return [_well_formed(item) for item in value]
        case _:
            return value


def catalogue_block(catalogue: Catalogue) -> CatalogueBlock:
    """The requirements that are judged, and the scenarios that come with the suite."""
    return CatalogueBlock(
        version=catalogue.version,
        digest=f"sha256:{catalogue.digest}",
        scenarios=f"sha256:{scenarios_digest(load(catalogue))}",
    )


def headline_version(outcome: RunOutcome, profile: AnyProfile) -> str:
    """The version that a report is about first: the last claimed one of the run, or the profile's if none was run."""
    run = [one.version for one in outcome.versions if one.claimed] or [one.version for one in outcome.versions]
    return run[-1] if run else profile.protocol_versions[-1]


def overall(versions: Sequence[VersionOutcome | VersionRow], *, complete: bool = True) -> Result:
    """The result over the claimed versions (over all if none is claimed), as the exit code has it."""
    counted = [version for version in versions if version.claimed] or list(versions)
    results = {version.result for version in counted}
    if Result.NON_CONFORMANT in results:
        return Result.NON_CONFORMANT
    return Result.INCOMPLETE if not complete or Result.INCOMPLETE in results or not results else Result.CONFORMANT


def version_row(catalogue: Catalogue, version: VersionOutcome) -> VersionRow:
    """The row of one version, with its counts."""
    return VersionRow(
        version=version.version,
        specification=specification(catalogue, version.version),
        claimed=version.claimed,
        complete=version.complete,
        result=version.result,
        kinds=dict(version.kinds),
        blockers=version.blockers,
        scenario_verdicts=_counted(result.verdict for result in version.results),
        requirement_verdicts=_counted(row.verdict for row in version.requirements),
        envoy_ai_gateway=assess(catalogue, version.version, version.results) if _of_an_epp(version) else None,
    )


def _of_an_epp(version: VersionOutcome) -> bool:
    return all(row.requirement.role == "epp" for row in version.requirements)


def _counted(verdicts: Any) -> dict[Verdict, int]:
    found = Counter(verdicts)
    return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def specification(catalogue: Catalogue, version: str) -> Specification:
    """The document of a protocol version."""
    document = catalogue.specification(version)
    return Specification(
        version=version,
        title=document.title,
        date=document.date,
        source=document.source,
        digest=f"sha256:{document.sha256}",
    )


def suite() -> Suite:
    """This suite."""
    try:
        version = installed("epp-conformance")
    except PackageNotFoundError:
        version = "0+unknown"
    return Suite(version=version, python=platform.python_version())


def releases(version: str) -> str:
    """The page of a release of this suite, at the address that `project.urls` in pyproject.toml names."""
    try:
        urls = metadata("epp-conformance").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    found = dict(url.split(", ", 1) for url in urls)
    return f"{found['Repository']}/releases/tag/v{version}" if "Repository" in found else f"release {version}"


def environment(seed: int, profile: AnyProfile, data_plane: str = "fake") -> Environment:
    """Seed, machine and surroundings."""
    return Environment(
        seed=seed,
        platform=Platform(system=platform.system(), machine=platform.machine(), release=_kernel()),
        topology=_topology(profile, data_plane),
    )


def _kernel() -> str:
    """The kernel's version; what its builder put behind it is of no use to one who reads a published report."""
    found = re.match(r"[0-9]+(\.[0-9]+)*", platform.release())
    return found[0] if found else ""


def _topology(profile: AnyProfile, data_plane: str) -> Topology | GatewayTopology | ModelServerTopology:
    if isinstance(profile, ModelServerProfile):
        limits = profile.limits
        return ModelServerTopology(
            concurrency=limits.concurrency, tokens=limits.tokens, prompt_words=limits.prompt_words
        )
    if isinstance(profile, GatewayProfile):
        return GatewayTopology(pools=len(profile.backends), tls=tuple(one.tls for one in profile.backends))
    discovery = next(name for name in ("kubernetes", "file", "fixed") if getattr(profile.discovery, name) is not None)
    return Topology.model_validate(
        {
            "discovery": discovery,
            "scrapes": profile.discovery.scrapes,
            "tls": profile.tls.mode,
            "connections": profile.connect.connections,
            "bodyModes": profile.body_modes,
            "dataPlane": data_plane,
        }
    )


def subject_of(profile: AnyProfile, image: str | None = None, binary: str | None = None) -> Subject:
    """How a profile has the target run, with the digest of its program or image (`image`: as it ran) if it is known.

    `binary` is the program that the placeholder of that name stands for.
    """
    start = profile.start
    env = tuple(sorted(start.env))
    if isinstance(start, GatewayStart):
        return _gateway_subject(profile.address, start, env, binary)
    if start.image:
        _, _, pinned = start.image.partition("@sha256:")
        return Subject(
            kind="image",
            name=start.image,
            digest=image or (f"sha256:{pinned}" if len(pinned) == 64 else None),
            flags=start.args,
            env=env,
            address=profile.address,
        )
    if start.command:
        program, *arguments = start.command
        return Subject(
            kind="command",
            name=_program(program, binary),
            digest=_file_digest(program.replace("{binary}", binary or "{binary}"), start.workdir),
            flags=(*arguments, *start.args),
            env=env,
            address=profile.address,
        )
    return Subject(kind="address", name=profile.address, digest=None, flags=(), env=env, address=profile.address)


def _gateway_subject(address: str, start: GatewayStart, env: tuple[str, ...], binary: str | None) -> Subject:
    if start.envoy is not None:
        from real_envoy import EnvoyError, find_envoy

        try:
            digest = _file_digest(str(find_envoy().path), None)
        except EnvoyError:
            digest = None
        return Subject(kind="command", name="envoy", digest=digest, flags=(start.envoy,), env=env, address=address)
    if start.command:
        program, *arguments = start.command
        digest = _file_digest(program.replace("{binary}", binary or "{binary}"), start.workdir)
        name = _program(program, binary)
        return Subject(kind="command", name=name, digest=digest, flags=tuple(arguments), env=env, address=address)
    return Subject(kind="address", name=address, digest=None, flags=(), env=env, address=address)


LARGEST_PROGRAM = 4 * 1024 * 1024 * 1024
"""Bytes of a program whose digest is in the report."""


def _program(program: str, binary: str | None) -> str:
    """The program by its name, and not by the placeholder for it; its folder says only how that machine is laid out."""
    return program.replace("{binary}", PurePath(binary).name) if binary else program


def _file_digest(program: str, workdir: str | None) -> str | None:
    found = shutil.which(program) or shutil.which(str(Path(workdir or ".") / program))
    if found is None:
        return None
    try:
        with open_regular(found, LARGEST_PROGRAM, follow=True) as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError:
        return None
