"""Trouble in the file of a load: what goes wrong on purpose, when, and for how long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from conformance.strict_yaml import Document, FileModel, Problem
from conformance.targets.profile import Profile

Seconds = Annotated[float, Field(gt=0, le=86_400)]

Kind = Literal["kill-target", "kubernetes-api-lost", "metrics-lost", "metrics-hang", "model-servers-reset"]


class Trouble(FileModel):
    """Something that goes wrong on purpose, once or again and again."""

    kind: Kind = Field(
        description="the target's process is killed; the Kubernetes API refuses connections; no pod serves metrics; "
        "pods accept connections for metrics and never answer; model servers reset the connection instead of an answer"
    )
    at: float | None = Field(None, ge=0, le=86_400, description="seconds until it begins; default: `every`")
    every: float | None = Field(None, ge=1, le=86_400, description="seconds from one to the next; default: it is once")
    lasts: Seconds = Field(1, description="seconds until it is over, or a target that was killed is started again")
    recovers: Seconds | None = Field(
        None, description="seconds after its end from which on no exchange may fail; default: any, they are reported"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Trouble:
        if self.at is None and self.every is None:
            raise ValueError("give `at`, `every` or both")
        if self.every is not None and self.every <= self.room:
            raise ValueError(f"it comes every {self.every:g} s, but needs {self.room:g} s (`lasts` and `recovers`)")
        return self

    @property
    def room(self) -> float:
        """Seconds from its beginning until it is known whether it was recovered from."""
        return self.lasts + (self.recovers or 0.0)

    def begins(self, seconds: float) -> Iterator[float]:
        """The seconds at which it begins in a load of so many, and has room."""
        first = self.at if self.at is not None else self.every
        assert first is not None, "one of them was given"
        times = itertools.count(first, self.every) if self.every is not None else iter([first])
        return itertools.takewhile(lambda begin: begin + self.room <= seconds, times)


def problems(plan: Sequence[Trouble], profile: Profile, seconds: float, document: Document) -> Iterator[Problem]:
    """What of `plan` can't happen to the target of `profile` in a load of so many seconds, by its place in the file."""
    for index, one in enumerate(plan):
        place = ("trouble", index)
        if one.kind == "kill-target" and not profile.started_by_us:
            yield document.problem(
                (*place, "kind"),
                "the suite did not start this target, and can't kill it",
                "give the command that starts it: `start` in its profile, or --epp 'cmd:…'",
            )
        if one.kind == "kubernetes-api-lost" and profile.discovery.kubernetes is None:
            yield document.problem(
                (*place, "kind"),
                "this target does not learn its pool from the Kubernetes API",
                "`discovery.kubernetes` in its profile says that it does",
            )
        if one.kind in ("metrics-lost", "metrics-hang") and not profile.discovery.scrapes:
            yield document.problem(
                (*place, "kind"), "this target reads no metrics", "its profile says so: `discovery.scrapes: false`"
            )
        if next(one.begins(seconds), None) is None:
            first = one.at if one.at is not None else one.every
            yield document.problem(
                place,
                f"it begins at {first:g} s and needs {one.room:g} s, but the load ends after {seconds:g} s",
                "`arrivals` say how long the load is",
            )
    for what in dict.fromkeys(_concerns(one) for one in plan):
        yield from _overlaps(what, plan, seconds, document)


def _concerns(one: Trouble) -> str:
    """What can have one trouble at a time: metrics that are lost can't hang."""
    return one.kind.partition("-")[0]


def _overlaps(what: str, plan: Sequence[Trouble], seconds: float, document: Document) -> Iterator[Problem]:
    own = ((index, one) for index, one in enumerate(plan) if _concerns(one) == what)
    times = sorted((begin, begin + one.room, index) for index, one in own for begin in one.begins(seconds))
    told = set()
    for (_, end, earlier), (begin, _, later) in itertools.pairwise(times):
        if begin < end and later not in told:
            told.add(later)
            yield document.problem(
                ("trouble", later), f"at {begin:g} s it meets trouble[{earlier}], which goes on until {end:g} s"
            )
