"""Exchanges that show findings: some for each kind, as evidence."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from conformance.evidence.episode import Episode
from conformance.evidence.redaction import Redactor
from conformance.load.exchange import LiveExchange
from conformance.load.judgement import Judgement, episode
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


class Examples:
    """The examples of a load, without secrets; `record` gets the episode of each exchange that is kept."""

    def __init__(self, redactor: Redactor, record: Callable[[str, Episode], None]) -> None:
        self.all: list[Example] = []
        self._redactor = redactor
        self._record = record
        self._kept: Counter[tuple[str, Verdict]] = Counter()

    def keep(self, exchange: LiveExchange, judgement: Judgement, second: float) -> None:
        """Keep the exchange as evidence for findings of which there is not enough yet."""
        wanted = {
            (one.requirement, one.verdict)
            for one in judgement.telling
            if self._kept[one.requirement, one.verdict] < EXAMPLES
        }
        if not wanted:
            return
        self._kept.update(wanted)
        name = exchange.own.decode()
        events = [
            dataclasses.replace(event, exchange=name) if event.exchange is not None else event
            for event in map(self._redactor.event, exchange.learner.events)
        ]
        self._record(name, episode(events, exchange.window, name=name, trouble=exchange.trouble))
        shown: dict[tuple[str, Verdict], Finding] = {}
        for one in judgement.telling:
            shown.setdefault((one.requirement, one.verdict), one)
        for key in sorted(wanted):
            finding = dataclasses.replace(shown[key], exchange=name, actual=self._redactor.text(shown[key].actual))
            self.all.append(Example(finding=finding, episode=name, shape=exchange.shape.name, second=second))

    def include(self, examples: Iterable[Example], episodes: Mapping[str, Episode]) -> None:
        """Keep those of another process, as long as there is not enough yet."""
        recorded = set()
        for example in examples:
            key = example.finding.requirement, example.finding.verdict
            if self._kept[key] >= EXAMPLES:
                continue
            self._kept[key] += 1
            self.all.append(example)
            if example.episode not in recorded:
                recorded.add(example.episode)
                self._record(example.episode, episodes[example.episode])
