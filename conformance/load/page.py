"""The result of a load as one HTML page, from its document (`load.json`): needs no network and runs no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from conformance.load.figures import FIRST_BYTE, LATENESS, PERCENTILES, PICK, curve
from conformance.load.judgement import TELLING
from conformance.printable import plural
from conformance.report.render.charts import Curve, Point, chart
from conformance.report.render.marks import MEANING, SYMBOL, WORD
from conformance.report.render.page import asset, policy, template
from conformance.report.render.safe import cleaned
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict

NAMES = {PICK: "time to pick", FIRST_BYTE: "added time to first byte", LATENESS: "lateness of the generator"}
"""The times of a load in words."""

_MIB = 1024 * 1024

Plain: TypeAlias = Mapping[str, Any]
Value: TypeAlias = "Callable[[Plain], float | None]"


def html(document: Plain, result: str) -> str:
    """The page of a load's document; `result` says in words what came out."""
    made = cleaned(document)
    rows = _rows(made)
    style = asset("page.css") + asset("load.css")
    implementation = made["implementation"]
    name = " ".join(filter(None, (implementation.get("project"), implementation.get("version"))))
    course = made["figures"]["course"]
    return template("load.html.j2").render(
        made=made,
        name=name or "An endpoint picker",
        result={0: "conformant", 1: "non-conformant"}.get(made["exitCode"], "incomplete"),
        result_words=result,
        rows=rows,
        cards=[row for row in rows if row["telling"]],
        charts=[
            *filter(None, (*_over_time(course, _bands(made)), _curve(made["figures"]["histogramsInMicroseconds"])))
        ],
        changed=any("poolChanges" in one for one in course),
        troubles=made["troubles"],
        times=[(NAMES[name], values) for name, values in made["figures"]["milliseconds"].items()],
        percentiles=[*(f"p{one:g}" for one in PERCENTILES), "max"],
        facts=_facts(made),
        policy=policy(style=style),
        style=style,
        symbol=SYMBOL,
        word=WORD,
        meaning=MEANING,
        plural=plural,
    )


def _rows(made: Plain) -> list[dict[str, Any]]:
    """The requirements, what is not fine first, each with its examples."""
    known = Catalogue.load()
    order = list(Verdict)
    rows = []
    for one in made["requirements"]:
        verdict = Verdict(one["verdict"])
        requirement = known.get(one["id"])
        said = (f"{count:,} {WORD[Verdict(name)]}" for name, count in one["exchanges"].items())
        rows.append(
            {
                "id": one["id"],
                "verdict": verdict,
                "title": requirement.title,
                "statement": requirement.statement,
                "counts": ", ".join(said),
                "telling": verdict in TELLING,
                "examples": [each for each in made["findings"] if each["requirement"] == one["id"]],
            }
        )
    return sorted(rows, key=lambda row: (not row["telling"], order.index(row["verdict"]), row["id"]))


def _facts(made: Plain) -> list[tuple[str, str]]:
    exchanges, generator, pool = made["exchanges"], made["generator"], made["pool"]
    requests = ", ".join(f"{name} {count:,}" for name, count in exchanges["byRequest"].items())
    changes = ", ".join(f"{name} {count:,}" for name, count in pool["changes"].items())
    found = [
        ("Seconds", f"{made['figures']['seconds']:,.1f}"),
        ("Requests due", f"{generator['due']:,}, of which {generator['notBegun']:,} could not begin"),
        ("Judged a second", f"{made['figures']['judgedPerSecond']:,.1f}"),
        ("By request", requests or "none"),
        ("Changes of the pool", changes or "none"),
        ("Waited for a stream", f"{exchanges['waitedForAStream']:,}"),
        ("Refused by the target and opened again", f"{exchanges['refusedAndOpenedAgain']:,}"),
        ("Undecided", f"{exchanges['undecided']:,}"),
        ("Unfinished", f"{exchanges['unfinished']:,}"),
        ("Lost with the process", f"{exchanges['lostWithTheProcess']:,}"),
        ("Lost to trouble that was made", f"{exchanges['lostToTrouble']:,}"),
    ]
    found += [(f"After {one['change']} no pick could be wrong", one["why"]) for one in pool["blind"]]
    for one in generator.get("workers", ()):
        state = "" if one["complete"] else ", its share is incomplete"
        found.append((f"Worker {one['name']}", f"{one['judged']:,} judged, {one['failed']:,} failed{state}"))
    if made["memory"]:
        found.append(("Verdicts remembered", f"{made['memory']['hitRate']:.2%}"))
    return found


# -- charts ------------------------------------------------------------------------------------------------------------


def _bands(made: Plain) -> list[tuple[float, float, str]]:
    """From when to when there was trouble, as far as it ended."""
    end = made["figures"]["seconds"]
    return [
        (one["second"], one["second"] + one["seconds"] if one["seconds"] is not None else end, one["kind"])
        for one in made["troubles"]
    ]


def _over_time(course: Sequence[Plain], bands: Sequence[tuple[float, float, str]]) -> list[str]:
    if not course:
        return []
    last = course[-1]["second"]
    notes = [one["second"] for one in course if "poolChanges" in one]

    def drawn(title: str, unit: str, lines: Mapping[str, Value], *, log: bool = False) -> str:
        found = [
            Curve(name=name, points=[(one["second"], value(one)) for one in course]) for name, value in lines.items()
        ]
        shown = [line for line in found if any(value is not None for _, value in line.points)]
        return chart(title, shown, unit=unit, log=log, last=last, notes=notes, bands=bands)

    def rate(name: str) -> Value:
        return lambda one: one["perSecond"][name]

    def time(name: str, percentile: str) -> Value:
        return lambda one: one["milliseconds"].get(name, {}).get(percentile)

    def times(name: str) -> Mapping[str, Value]:
        return {one: time(name, one) for one in ("p50", "p99", "max")}

    return [
        drawn("Requests asked and done", "a second",
              {"asked": rate("due"), "done": rate("done"), "failed": rate("failed")}),
        drawn("Time to pick", "milliseconds", times(PICK), log=True),
        drawn("Added time to first byte", "milliseconds", times(FIRST_BYTE), log=True),
        drawn("Exchanges under way", "exchanges", {"under way": lambda one: one["open"]}),
        drawn("How late the generator began requests", "milliseconds", times(LATENESS), log=True),
        drawn("Memory of the target", "MiB", {"resident": _memory}),
        drawn("Descriptors of the target", "descriptors", {"open": lambda one: one.get("targetDescriptors")}),
    ]  # fmt: skip


def _memory(one: Plain) -> float | None:
    found = one.get("targetBytes")
    return None if found is None else found / _MIB


def _curve(histograms: Mapping[str, str]) -> str:
    """Times by percentile: each nine takes the same room."""
    lines = []
    for name in (PICK, FIRST_BYTE, LATENESS):
        points: list[Point] = [(nines, value) for nines, value in curve(histograms[name])]
        if points:
            lines.append(Curve(name=NAMES[name], points=points))
    return chart(
        "Times by percentile",
        lines,
        unit="milliseconds",
        along="percentile",
        log=True,
        ticks=[(0, "0"), (1, "90"), (2, "99"), (3, "99.9"), (4, "99.99")],
        last=4,
    )
