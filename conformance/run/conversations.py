"""Conversations by property: exchanges generated at random, judged by everything that holds for any exchange.

A failure is shrunk to the shortest conversation that still shows it, and can be saved as a scenario file.
Needs hypothesis (the extra `property`).
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from conformance.errors import UsageError
from conformance.events import ScenarioFinished
from conformance.planning.plan import Work
from conformance.planning.results import GENERATED_SECTION, all_kept, shortest_broken
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from conformance.scenario.references import NOBODY
from conformance.scenario.schema import BodyMode, Scenario
from conformance.strict_yaml import dump
from conformance.verdict import Verdict

SERVED = ("default", "absent", "unknown", "other", "number", "list", "empty")


class _Broken(AssertionError):  # noqa: N818 - what hypothesis looks for, no harness error
    """A generated conversation broke a rule; hypothesis shrinks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What came of it: how many conversations were tried, and the shortest failing one, if any."""

    examples: int
    failure: ScenarioFinished | None = None
    scenario: Scenario | None = None

    def judged(self, version: str, seed: int) -> ScenarioFinished:
        """The exploration as one result: that of the failing conversation, or a pass."""
        if self.failure is not None and self.scenario is not None:
            told = shortest_broken(self.failure.result, self.scenario.requirements, self.examples, seed)
            return replace(self.failure, result=replace(self.failure.result, **told))  # type: ignore[arg-type]
        return ScenarioFinished(result=all_kept(version, self.examples, seed))

    @property
    def scenario_file(self) -> str | None:
        """The failing conversation as the text of a scenario file that reproduces it; None if none failed."""
        if self.scenario is None:
            return None
        content = self.scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return dump({"section": GENERATED_SECTION, "scenarios": [content]})


def check_hypothesis() -> None:
    """Raises `UsageError` without hypothesis, which generates the conversations."""
    if importlib.util.find_spec("hypothesis") is None:
        raise UsageError(
            "--property-examples needs hypothesis, which is not installed",
            hint="pip install 'epp-conformance[property]'",
        )


def explore(
    run: Callable[[Work], ScenarioFinished],
    told_again: Callable[[Work, ScenarioFinished], ScenarioFinished | None],
    catalogue: Catalogue,
    version: str,
    modes: tuple[BodyMode, ...],
    *,
    examples: int,
    seed: int,
    pods: Collection[str],
    known: Collection[str] = (),
) -> Exploration:
    """Try `examples` conversations. `run` runs one alone, in a pool of `pods`; `known` are requirements that fail.

    `told_again` gives the result of the last one if the target has ended by itself since. The same seed gives the
    same conversations.
    """
    import hypothesis

    universal = tuple(one.id for one in catalogue.for_version(version) if one.universal and one.testable)
    tried = itertools.count(1)
    found: list[tuple[ScenarioFinished, Scenario]] = []
    count = 0
    last: tuple[Work, ScenarioFinished] | None = None

    def breaks(work: Work, judged: ScenarioFinished) -> bool:
        failed = [one for one in judged.result.findings if one.verdict is Verdict.FAIL]
        explained = {(one.exchange, one.seq) for one in failed if one.requirement in known and one.seq is not None}
        broken = {one.requirement for one in failed if (one.exchange, one.seq) not in explained} - set(known)
        if broken:
            found.append((judged, work.instance.scenario.model_copy(update={"requirements": tuple(sorted(broken))})))
        return bool(broken)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        print_blob=False,
    )
    @hypothesis.given(_exchanges(modes, version, pods))
    def try_one(drawn: tuple[BodyMode, dict[str, Any]]) -> None:
        nonlocal count, last
        count = next(tried)
        mode, exchange = drawn
        scenario = _scenario(count, exchange, universal)
        where = GENERATED_SECTION
        instance = Instance(id=scenario.id, scenario=scenario, section=where, file=where, line=0)
        work = Work(version=version, id=instance.id, instance=instance, mode=mode)
        last = work, run(work)
        if breaks(*last):
            raise _Broken

    try:
        try_one()
        again = told_again(*last) if last is not None else None
        if last is None or again is None or not breaks(last[0], again):
            return Exploration(examples=count)
    except (_Broken, hypothesis.errors.Flaky):
        pass
    judged, scenario = found[-1]
    return Exploration(examples=count, failure=judged, scenario=scenario)


def _scenario(number: int, exchange: dict[str, Any], requirements: tuple[str, ...]) -> Scenario:
    content = {
        "id": f"{GENERATED_SECTION}.conversation-{number}",
        "title": "A generated conversation",
        "requirements": requirements,
        "steps": [{"exchange": exchange}],
    }
    return Scenario.model_validate(content)


def _exchanges(modes: tuple[BodyMode, ...], version: str, pods: Collection[str]) -> Any:
    """A strategy for (body mode, fields of an `Exchange`). Defaults are left out, so that shorter is simpler."""
    from hypothesis import strategies as st

    words = st.text("abcdefghijklmnopqrstuvwxyz0123456789 .,:;/-_{}[]\"'", max_size=40)
    text = st.one_of(words, st.text(max_size=30))
    body = st.one_of(
        st.just("none"),
        st.fixed_dictionaries({"fields": st.dictionaries(st.sampled_from(["user", "stop", "seed", "n"]), text)}),
        st.fixed_dictionaries({"text": text.filter(bool)}),
        st.fixed_dictionaries({"size": st.integers(200, 150_000)}),
    )
    value = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-1000, 1000), words),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words.filter(bool), inner, max_size=3)),
        max_leaves=6,
    )
    header = st.tuples(st.from_regex(r"x-[a-z0-9-]{1,12}", fullmatch=True), words.map(str.strip))
    reply = st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from(["json", "sse", "text", "none"]),
            "status": st.sampled_from([200, 201, 400, 404, 500]),
            "text": text,
            "events": st.integers(0, 6),
            "split": st.integers(1, 400),
            "trailers": st.lists(header, min_size=1, max_size=2),
            "gzip": st.booleans(),
        },
    )
    optional: dict[str, Any] = {
        "method": st.sampled_from(["POST", "GET", "PUT"]),
        "path": st.sampled_from(["/v1/completions", "/v1/chat/completions", "/v1/models", "/"]),
        "http": st.sampled_from([1, 2]),
        "body": body,
        "chunks": st.lists(st.integers(1, 5000), max_size=8),
        "end": st.sampled_from(["flag", "empty", "trailers"]),
        "contentLength": st.booleans(),
        "headers": st.lists(header, max_size=4),
        "metadata": st.dictionaries(
            st.sampled_from(["com.example", "envoy.filters.http.rbac"]), st.dictionaries(words, value)
        ),
        "protocolConfig": st.sampled_from(["default", "absent", "not-waiting"]),
        "headerField": st.sampled_from(["raw_value", "value"]),
        "inject": st.lists(st.sampled_from(["unknown-field", "typed-metadata", "attributes"]), unique=True),
        "reply": reply,
        "served": st.sampled_from(SERVED),
        "abort": st.sampled_from(["request-headers", "request-body", "destination", "response"]),
        "ending": st.sampled_from(["envoy", "half-close", "drain"]),
    }
    if version != "0.2.0":
        subsets: tuple[tuple[str, ...], ...] = ((), ("a",), ("b",), ("b", "c"), (NOBODY,), (NOBODY, "a"))
        possible = [names for names in subsets if {*names} <= {*pods, NOBODY}]
        optional["subset"] = st.sampled_from([[f"{{{name}}}" for name in names] for names in possible])
    drawn = st.tuples(st.sampled_from(modes), st.fixed_dictionaries({}, optional=optional))
    # One target has one data plane, and one that does not say its body modes has the same for all requests.
    return drawn.filter(lambda one: one[0] == modes[0] or one[1].get("protocolConfig") != "absent")
