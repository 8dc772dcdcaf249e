"""The page of faults: what they declare, from their lists, and what was observed, from the selftest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import Role
from conformance.selftest.deviation import Deviation, deviations
from conformance.selftest.trial import Trial

OBSERVED = "## Observed"
"""Heads the part of the page that the selftest writes."""

_HEADS: Mapping[Role, tuple[str, ...]] = {
    "epp": (
        "# Faults",
        "",
        "<!-- `make docs` writes this page down to “Observed”, `make selftest` the rest. -->",
        "",
        "The suite is mutation-tested. Each fault is one deviation of the reference EPP (`reference-epp --fault NAME`)",
        "that declares what it breaks; exactly that must be accused. Each conforming variant",
        "(`reference-epp --variant NAME`) is unusual and breaks nothing: nothing of it may be accused.",
        "`epp-conformance selftest` tries them all: each fault alone, and variants that change different things as one",
        "EPP (each alone with `--alone`).",
    ),
    "data-plane": (
        "# Faults of gateways",
        "",
        "<!-- `make docs` writes this page down to “Observed”, `make selftest` the rest. -->",
        "",
        "The suite is mutation-tested in role data-plane, too. Each fault is one deviation of a small gateway",
        "(`python -m reference_gateway --fault NAME`), or of the configuration of a real Envoy, that declares what it",
        "breaks; exactly that must be accused. `epp-conformance selftest --role data-plane` tries them, and conforming",
        "variants of both, which must not be accused.",
    ),
    "model-server": (
        "# Faults of model servers",
        "",
        "<!-- `make docs` writes this page down to “Observed”, `make selftest` the rest. -->",
        "",
        "The suite is mutation-tested in role model-server, too. Each fault is one deviation of a fake model server",
        "(`python -m fake_modelserver serve --fault NAME`) that declares what it breaks; exactly that must be accused.",
        "`epp-conformance selftest --role model-server` tries them, and conforming variants, which must not be",
        "accused.",
    ),
}


def declared(catalogue: Catalogue, role: Role = "epp") -> str:
    """The part of the page that says what the faults and variants of a role declare."""
    faults, variants = deviations("faults", role), deviations("variants", role)
    missing = without([*faults, *variants], catalogue, role)
    lines = [
        *_HEADS[role],
        "",
        "| fault | what it does | breaks | may also break |",
        "|---|---|---|---|",
        *(
            f"| `{one.name}` | {_cell(one.why)} | {one.breaks} | {', '.join(sorted(one.also_breaks)) or '-'} |"
            for one in sorted(faults, key=_place)
        ),
        "",
        "## Conforming variants",
        "",
        "| variant | what is unusual about it | recorded under |",
        "|---|---|---|",
        *(f"| `{one.name}` | {_cell(one.why)} | {', '.join(sorted(one.noted)) or '-'} |" for one in variants),
        "",
        "## Requirements without",
        "",
        "Every testable requirement is to have a fault that breaks it. Of those that only inform, nothing can be",
        "broken: a variant, or a fault of something else, shows that what they ask for is recorded.",
        "",
        f"Without either: {', '.join(missing) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def observed(trials: Iterable[Trial]) -> str:
    """The part of the page that says what the suite made of them."""
    ordered = sorted(trials, key=lambda one: (one.deviation.breaks is None, *_place(one.deviation)))
    lines = [
        OBSERVED,
        "",
        f"{len(ordered)} deviations, {sum(one.exact for one in ordered)} exact.",
        "",
        "| fault or variant | accused | exact |",
        "|---|---|---|",
        *(f"| `{one.deviation.name}` | {', '.join(one.accused) or 'nothing'} | {_mark(one)} |" for one in ordered),
    ]
    return "\n".join(lines) + "\n"


def page(catalogue: Catalogue, role: Role, path: Path, trials: Sequence[Trial] | None = None) -> str:
    """The whole page. Without `trials` its observed part is the one in the file `path`, if that has one."""
    if trials is not None:
        return f"{declared(catalogue, role)}\n{observed(trials)}"
    _, heading, rest = (path.read_text(encoding="utf-8") if path.is_file() else "").partition(OBSERVED)
    return declared(catalogue, role) + (f"\n{heading}{rest}" if heading else "")


def without(known: Sequence[Deviation], catalogue: Catalogue, role: Role = "epp") -> Iterator[str]:
    """The testable requirements of a role that no fault of `known` breaks; those that only inform: that none shows."""
    broken = {one.breaks for one in known}
    shown = {requirement for one in known for requirement in one.noted}
    for one in catalogue:
        if one.role == role and one.testable:
            informs = set(one.effects.values()) <= {"info"}
            if one.id not in (shown if informs else broken):
                yield one.id


def _place(one: Deviation) -> tuple[str, str]:
    return one.breaks or "", one.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _mark(trial: Trial) -> str:
    if trial.exact:
        return "yes"
    parts = [] if trial.caught else ["missed"]
    parts += [f"wrongly accused: {', '.join(trial.wrongly)}"] if trial.wrongly else []
    parts += [f"not judged: {len(trial.trouble)}"] if trial.trouble else []
    parts += [f"not recorded: {', '.join(trial.unrecorded)}"] if trial.unrecorded else []
    return "; ".join(parts)
