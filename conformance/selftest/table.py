"""The page of faults: declared beside observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import Role
from conformance.selftest.trial import Trial

_HEADS: Mapping[Role, tuple[str, ...]] = {
    "epp": (
        "# Faults",
        "",
        "<!-- Written by `make selftest`. -->",
        "",
        "The proof that the suite bites. Each fault is one deviation of the reference EPP",
        "(`reference-epp --fault NAME`) that declares what it breaks; exactly that must be accused.",
        "`epp-conformance selftest` tries them, and the odd but right variants, which must not be accused.",
    ),
    "data-plane": (
        "# Faults of gateways",
        "",
        "<!-- Written by `make selftest`. -->",
        "",
        "The proof that the suite bites in role data-plane, too. Each fault is one deviation of a small gateway",
        "(`python -m fake_proxy.gateway --fault NAME`), or of the configuration of a real Envoy, that declares what it",
        "breaks; exactly that must be accused. `epp-conformance selftest --role data-plane` tries them, and right",
        "variants of both, which must not be accused.",
    ),
}


def table(trials: Sequence[Trial], catalogue: Catalogue, role: Role = "epp") -> str:
    """Declared beside observed, as a Markdown page for the docs."""
    faults = sorted((one for one in trials if one.deviation.breaks), key=_place)
    variants = [one for one in trials if not one.deviation.breaks]
    lines = [
        *_HEADS[role],
        "",
        f"{len(faults)} faults, {sum(one.exact for one in faults)} exact"
        + (f"; {len(variants)} variants, {sum(one.exact for one in variants)} exact." if variants else "."),
        "",
        "| fault | what it does | breaks | may also break | accused | exact |",
        "|---|---|---|---|---|---|",
    ]
    for one in faults:
        deviation = one.deviation
        also = ", ".join(sorted(deviation.also_breaks)) or "-"
        accused = ", ".join(one.accused) or "nothing"
        lines.append(
            f"| `{deviation.name}` | {_cell(deviation.why)} | {deviation.breaks} | {also} | {accused} | {_mark(one)} |"
        )
    if variants:
        lines += ["", "| variant | what is odd about it | exact |", "|---|---|---|"]
    lines += [f"| `{one.deviation.name}` | {_cell(one.deviation.why)} | {_mark(one)} |" for one in variants]
    broken = {one.deviation.breaks for one in faults}
    without = [one.id for one in catalogue if one.role == role and one.testable and one.id not in broken]
    lines += ["", f"Requirements without a fault of their own: {', '.join(without) or 'none'}."]
    return "\n".join(lines) + "\n"


def _place(trial: Trial) -> tuple[str, str]:
    return trial.deviation.breaks or "", trial.deviation.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _mark(trial: Trial) -> str:
    if trial.exact:
        return "yes"
    parts = [] if trial.caught else ["missed"]
    parts += [f"wrongly accused: {', '.join(trial.wrongly)}"] if trial.wrongly else []
    parts += [f"not judged: {len(trial.trouble)}"] if trial.trouble else []
    return "; ".join(parts)
