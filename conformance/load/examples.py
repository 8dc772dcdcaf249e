"""Exchanges that show findings: some for each kind, as evidence."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conformance.evidence.episode import Context, Episode
from conformance.evidence.redaction import Redactor
from conformance.load.exchange import LiveExchange
from conformance.load.judgement import Bench, Judgement, episode
from conformance.verdict import Finding, Verdict

EXAMPLES = 5
"""Exchanges of each kind of finding that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A finding with the exchange that shows it: `episode` names it in the evidence, `second` is when it ended."""

    finding: Finding
    episode: str
    shape: str
    second: float


@dataclass(frozen=True, slots=True)
class KeptExchange:
    """An exchange as evidence, and what it is judged by."""

    episode: Episode
    context: Context


class Examples:
    """The examples of a load, and the exchanges that they show by name; without secrets."""

    def __init__(self, bench: Bench, redactor: Redactor) -> None:
        self.all: list[Example] = []
        self.shown: dict[str, KeptExchange] = {}
        self._bench = bench
        self._redactor = redactor
        self._kept: Counter[tuple[str, Verdict]] = Counter()

    def keep(self, exchange: LiveExchange, judgement: Judgement, second: float) -> None:
        """Keep the exchange as evidence for findings of which there is not enough yet; in place of what it was before,
        if it was kept and more has come."""
        name = exchange.own.decode()
        if name in self.shown:
            self._forget(name)
        told: dict[tuple[str, Verdict], Finding] = {}
        for one in judgement.telling:
            if self._kept[one.requirement, one.verdict] < EXAMPLES:
                told.setdefault((one.requirement, one.verdict), one)
        if not told:
            return
        events = [
            dataclasses.replace(event, exchange=name) if event.exchange is not None else event
            for event in map(self._redactor.event, exchange.learner.events)
        ]
        learner = exchange.learner
        seen = episode(
            events,
            exchange.window,
            learner.mentions,
            service_time=exchange.shape.service_time,
            silent=learner.silent,
            name=name,
            trouble=exchange.trouble,
        )
        seen = self._redactor.across(seen)
        context = learner.context(name)
        # A remembered verdict was given in another pool, and a secret may have been in its words: as evidence says it.
        for one in reversed(self._bench.findings(seen, context)):
            if (one.requirement, one.verdict) in told:
                told[one.requirement, one.verdict] = one
        self.shown[name] = KeptExchange(seen, context)
        self._kept.update(told.keys())
        for key in sorted(told):
            finding = dataclasses.replace(told[key], exchange=name, actual=self._redactor.text(told[key].actual))
            self.all.append(Example(finding=finding, episode=name, shape=exchange.shape.name, second=second))

    def include(self, examples: Iterable[Example], shown: Mapping[str, KeptExchange]) -> None:
        """Keep those of another process, as long as there is not enough yet."""
        for example in examples:
            key = example.finding.requirement, example.finding.verdict
            if self._kept[key] < EXAMPLES:
                self._kept[key] += 1
                self.all.append(example)
                self.shown[example.episode] = shown[example.episode]

    def _forget(self, name: str) -> None:
        del self.shown[name]
        self._kept.subtract((one.finding.requirement, one.finding.verdict) for one in self.all if one.episode == name)
        self.all = [one for one in self.all if one.episode != name]
