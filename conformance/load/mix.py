"""The file of a load: what is asked in which shares, of which pool, how fast, and how the pool changes meanwhile."""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from conformance.errors import did_you_mean
from conformance.load.bounds import MAX_AT_ONCE, MAX_RATE
from conformance.load.moments import State
from conformance.load.shape import PLACEHOLDER, RequestShape, with_ids
from conformance.load.trouble import Seconds, Trouble
from conformance.run.data_plane.replies import scripted_reply
from conformance.run.data_plane.stimuli import Prepared
from conformance.scenario import references
from conformance.scenario.expect import Expect
from conformance.scenario.schema import Exchange
from conformance.strict_yaml import Document, FileModel, Problem
from fake_proxy.client import Chunk

_NOT_UNDER_LOAD = (
    *("repeat", "concurrent", "interleaved", "lock_step", "gap_seconds"),
    *("connection", "inject", "subsets", "models", "fail_first"),
)
"""Fields of a scenario's exchange that mean nothing here."""


class MixedRequest(FileModel):
    """One kind of request, and how often it is asked."""

    name: str = Field(pattern=r"^[a-z0-9-]+$", description="what it is called in the report")
    weight: float = Field(1, gt=0, le=1e6, description="its share: 2 is asked twice as often as 1")
    exchange: Exchange = Field(
        Exchange.model_construct(), description="the request and the model server's answer, as in scenarios"
    )
    subset_of: int | None = Field(
        None,
        ge=1,
        le=100,
        description="a subset hint with so many of the endpoints that may be picked then, or an earlier hint",
    )
    service_time: float = Field(0, ge=0, le=60, description="seconds until the model server answers")
    expect: Expect = Field(
        Expect.model_construct(), description="`answer`: kinds that are right, too, as in scenarios: `[endpoint, 4xx]`"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> MixedRequest:
        given = [name for name in _NOT_UNDER_LOAD if name in self.exchange.model_fields_set]
        if given:
            raise ValueError(f"`{given[0]}` has no meaning under load")
        if self.subset_of is not None and self.exchange.subset is not None:
            raise ValueError("give `subsetOf` or `exchange.subset`, not both")
        if self.exchange.reply.pause or self.exchange.reply.lock_step:
            raise ValueError("under load the model server's pieces come at once; `serviceTime` delays the first")
        beyond = sorted(self.expect.model_fields_set - {"answer"})
        if beyond:
            raise ValueError(f"`expect.{beyond[0]}` has no meaning under load, only `expect.answer`")
        return self


class Arrivals(FileModel):
    """How requests arrive for a time. Exactly one of `rate`, `concurrent` and `burst`."""

    seconds: Seconds = Field(description="how long")
    rate: float | tuple[float, float] | None = Field(
        None,
        description="requests a second, whether or not earlier ones are answered; two: from the first to the last",
    )
    concurrent: int | None = Field(
        None, ge=1, le=MAX_AT_ONCE, description="so many at a time, the next when one is over"
    )
    burst: int | None = Field(None, ge=1, le=MAX_AT_ONCE, description="so many at once")
    every: Seconds = Field(1, description="seconds between two bursts")

    @model_validator(mode="after")
    def _one_way(self) -> Arrivals:
        given = [name for name in ("rate", "concurrent", "burst") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of rate, concurrent and burst, not {' and '.join(given) or 'none'}")
        if self.burst is None and "every" in self.model_fields_set:
            raise ValueError(f"`every` is the time between two bursts, and has no meaning beside `{given[0]}`")
        ends = self.rate if isinstance(self.rate, tuple) else () if self.rate is None else (self.rate,)
        if not all(0 <= one <= MAX_RATE for one in ends) or (ends and not any(ends)):
            raise ValueError(f"a rate is above 0 and at most {MAX_RATE}; one end of a ramp may be 0")
        return self


class Churn(FileModel):
    """A change that happens to one pod again and again."""

    change: Literal["remove", "un-ready", "restart", "saturate"] = Field(
        description="the pod goes and a new one comes; it is not ready for a while; another takes its place at its "
        "address; its queue is full for a while"
    )
    every: Seconds = Field(description="seconds between two such changes")
    lasts: Seconds = Field(1, description="seconds until the pod is well, or replaced; not of `restart`")

    @model_validator(mode="after")
    def _makes_sense(self) -> Churn:
        if self.change == "restart" and "lasts" in self.model_fields_set:
            raise ValueError("`lasts` has no meaning for `restart`: another pod takes its place at once")
        return self


class LoadFile(FileModel):
    """A load."""

    mix: tuple[MixedRequest, ...] = Field(min_length=1, description="what is asked")
    pods: int = Field(5, ge=1, le=1000, description="pods of the pool, where the suite makes it")
    arrivals: tuple[Arrivals, ...] = Field((), description="how fast, one after the other; default: the flags")
    churn: tuple[Churn, ...] = Field((), description="what becomes of the pool meanwhile")
    trouble: tuple[Trouble, ...] = Field((), description="what goes wrong on purpose meanwhile")

    @property
    def seconds(self) -> float:
        """How long requests arrive."""
        return sum(stage.seconds for stage in self.arrivals)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of those pods, by which `exchange` may refer to them: `{p1}`."""
        return tuple(f"p{number}" for number in range(1, self.pods + 1))


_REFERRING = ("headers", "subset", "hint", "metadata")
"""Fields of an exchange whose strings refer to endpoints."""


def problems(pods: Collection[str], document: Document) -> Iterator[Problem]:
    """What in the `document` of a load refers to none of `pods`, or has a name that is taken, by its place."""
    known = {*pods, references.NOBODY}
    names: set[str] = set()
    for index, one in enumerate(document.data["mix"]):
        if one["name"] in names:
            yield document.problem(("mix", index, "name"), f"two kinds of request are called {one['name']}")
        names.add(one["name"])
        exchange = one.get("exchange") or {}
        referring = {name: exchange[name] for name in _REFERRING if name in exchange}
        for place, name in references.names(referring):
            if name not in known:
                hint = did_you_mean(name, known) or f"the pods of this load are {', '.join(sorted(pods)[:3])} …"
                yield document.problem(("mix", index, "exchange", *place), f"{{{name}}} is no pod of this load", hint)
        for place, name in references.bare(exchange, known):
            hint = f"`{{{name}}}` is that of the pod; `hint` takes any text"
            yield document.problem(("mix", index, "exchange", *place), f"{name} is no endpoint", hint)


Prepare = Callable[[Exchange], Prepared]
"""Makes an exchange ready for the target, with the pool as it is."""

_VARIANTS = 4096
"""Shapes of one kind of request that are kept."""

_HINTS, _APART, _AGAIN = 32, 0.25, 0.25
"""Hints of one kind of request that are kept, seconds between two of them, and the share of requests that have one of
them again: so that pods have come and gone since."""


class Mix:
    """Draws shapes by weight. `pool` gives the pool as it is now, `reset` says whether model servers reset connections
    now."""

    def __init__(
        self,
        requests: Sequence[MixedRequest],
        prepare: Prepare,
        pool: Callable[[], State],
        seed: int,
        *,
        reset: Callable[[], bool],
    ) -> None:
        self._reset = reset
        self._requests = tuple(requests)
        self._prepare = prepare
        self._pool = pool
        self._random = random.Random(seed)
        self._weights = [request.weight for request in requests]
        self._shapes: dict[tuple[str, tuple[str, ...], bool], RequestShape] = {}
        self._bodies: dict[str, bytes | tuple[Chunk, ...]] = {}
        """The body of each kind of request: it may be large, and is the same for every subset."""
        self._hints: dict[str, deque[tuple[str, ...]]] = defaultdict(lambda: deque(maxlen=_HINTS))
        self._kept: dict[str, float] = {}
        """When a hint of each kind was kept last."""
        self._drawn: list[MixedRequest] = []

    def draw(self) -> RequestShape:
        """The next shape."""
        if not self._drawn:
            self._drawn = self._random.choices(self._requests, self._weights, k=1024)
        request = self._drawn.pop()
        subset = () if request.subset_of is None else self._hint(request.name, request.subset_of)
        key = request.name, subset, self._reset()
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _VARIANTS:
                self._shapes.clear()
            shape = self._shapes[key] = self._shape(request, subset, reset=key[2])
        return shape

    def _hint(self, name: str, size: int) -> tuple[str, ...]:
        """`size` endpoints that may be picked now; or, as of a data plane that is a little behind, an earlier hint. If
        none of that may be picked any more, 503 is due: nothing else shows who falls back to others."""
        pool, hints = self._pool(), self._hints[name]
        if hints and self._random.random() < _AGAIN:
            return self._random.choice(hints)
        hint = tuple(sorted(self._random.sample(pool.in_order, min(size, len(pool.in_order)))))
        now = time.monotonic()
        if now - self._kept.get(name, -math.inf) >= _APART:
            self._kept[name] = now
            hints.append(hint)
        return hint

    def _shape(self, request: MixedRequest, subset: tuple[str, ...], *, reset: bool) -> RequestShape:
        changes: dict[str, object] = {}
        if request.exchange.prompt == "fresh":
            changes["prompt"] = f"{PLACEHOLDER.decode()} tell me about it"
        if request.subset_of is not None:
            changes["subset"] = subset
        if "ending" not in request.exchange.model_fields_set:
            changes["ending"] = "envoy"
        shape = shape_of(self._prepare(request.exchange.model_copy(update=changes)), request)
        body = self._bodies.setdefault(request.name, shape.request.body)
        if body == shape.request.body:
            shape = replace(shape, request=replace(shape.request, body=body))
        return replace(shape, reply=replace(shape.reply, fail="reset"), service_time=0.0) if reset else shape


def shape_of(prepared: Prepared, request: MixedRequest) -> RequestShape:
    """The shape of a request that was made ready."""
    hint: Mapping[str, object] = {}
    for namespace in prepared.stimulus.metadata.values():
        hint = {**hint, **namespace}
    items = hint.get("x-gateway-destination-endpoint-subset")
    asked, reply = prepared.request, scripted_reply(prepared.reply, PLACEHOLDER)
    pieces = with_ids([one.data for one in asked.chunks])
    return RequestShape(
        name=request.name,
        request=replace(asked, body=tuple(Chunk(data=piece) for piece in pieces)),
        # it is kept while pods come and go: who joins meanwhile is served from, as by a cluster that follows
        config=replace(prepared.config, pool_grows=True),
        stimulus=prepared.stimulus,
        reply=replace(reply, body=with_ids(reply.body)),
        fail_first=prepared.fail_first,
        service_time=request.service_time,
        note=prepared.note,
        subset=tuple(one for one in items if isinstance(one, str)) if isinstance(items, list) else (),
        answers=request.expect.answers,
    )
