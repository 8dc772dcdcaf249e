"""The page of faults: declared beside observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import Role
from conformance.selftest.deviation import Deviation
from conformance.selftest.trial import Trial

_HEADS: Mapping[Role, tuple[str, ...]] = {
    "epp": (
        "# Faults",
        "",
        "<!-- Written by `make selftest`. -->",
        "",
        "The proof that the suite bites. Each fault is one deviation of the reference EPP",
        "(`reference-epp --fault NAME`) that declares what it breaks; exactly that must be accused.",
        "Each variant (`reference-epp --variant NAME`) is odd but right: nothing of it may be accused.",
        "`epp-conformance selftest` tries them all, and CI holds this table exact.",
    ),
    "data-plane": (
        "# Faults of gateways",
        "",
        "<!-- Written by `make selftest`. -->",
        "",
        "The proof that the suite bites in role data-plane, too. Each fault is one deviation of a small gateway",
        "(`python -m reference_gateway --fault NAME`), or of the configuration of a real Envoy, that declares what it",
        "breaks; exactly that must be accused. `epp-conformance selftest --role data-plane` tries them, and right",
        "variants of both, which must not be accused.",
    ),
}


def table(trials: Sequence[Trial], catalogue: Catalogue, role: Role = "epp") -> str:
    """Declared beside observed, as a Markdown page for the docs."""
    faults = sorted((one for one in trials if one.deviation.breaks), key=_place)
    variants = [one for one in trials if not one.deviation.breaks]
    missing = without([one.deviation for one in trials], catalogue, role)
    lines = [
        *_HEADS[role],
        "",
        f"{len(faults)} faults, {sum(one.exact for one in faults)} exact; "
        f"{len(variants)} variants, {sum(one.exact for one in variants)} exact.",
        "",
        "| fault | what it does | breaks | may also break | accused | exact |",
        "|---|---|---|---|---|---|",
        *(_fault(one) for one in faults),
        "",
        "## Odd but right",
        "",
        "| variant | what is odd about it | recorded under | exact |",
        "|---|---|---|---|",
        *(_variant(one) for one in variants),
        "",
        "## Requirements without",
        "",
        "Every testable requirement is to have a fault that breaks it. Of those that only inform, nothing can be",
        "broken: a variant, or a fault of something else, shows that what they ask for is recorded.",
        "",
        f"Without either: {', '.join(missing) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def without(known: Sequence[Deviation], catalogue: Catalogue, role: Role = "epp") -> Iterator[str]:
    """The testable requirements of a role that no fault of `known` breaks; those that only inform: that none shows."""
    broken = {one.breaks for one in known}
    shown = {requirement for one in known for requirement in one.noted}
    for one in catalogue:
        if one.role == role and one.testable:
            informs = set(one.effects.values()) <= {"info"}
            if one.id not in (shown if informs else broken):
                yield one.id


def _place(trial: Trial) -> tuple[str, str]:
    return trial.deviation.breaks or "", trial.deviation.name


def _fault(trial: Trial) -> str:
    one = trial.deviation
    also = ", ".join(sorted(one.also_breaks)) or "-"
    accused = ", ".join(trial.accused) or "nothing"
    return f"| `{one.name}` | {_cell(one.why)} | {one.breaks} | {also} | {accused} | {_mark(trial)} |"


def _variant(trial: Trial) -> str:
    one = trial.deviation
    return f"| `{one.name}` | {_cell(one.why)} | {', '.join(sorted(one.noted)) or '-'} | {_mark(trial)} |"


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
