"""An episode in its context under a catalogue's rules, as far as it concerns no exchange in particular.

The views of single exchanges (`exchange_view`, `gateway_exchange`) read it; `episode_view` puts all of them together.
"""

from __future__ import annotations

from functools import cached_property

from conformance.evidence.episode import Context, Episode, GaugesShown, ProcessExited
from conformance.judges.rules import Rules
from conformance.reading.conversation import Conversation, conversations
from ext_proc.record import Entry


class EpisodeFacts:
    """What happened, in which context, and what the rules are."""

    def __init__(self, episode: Episode, context: Context, rules: Rules) -> None:
        self.episode = episode
        self.context = context
        self.rules = rules
        self._effects: dict[str, str | None] = {}

    @cached_property
    def conversations(self) -> tuple[Conversation, ...]:
        """Every conversation, in order."""
        return conversations(self.episode)

    def effect(self, requirement: str) -> str | None:
        """What a violation counts for in this version; None where the requirement does not apply."""
        if requirement not in self._effects:
            self._effects[requirement] = self.rules.effect(requirement, self.context.version)
        return self._effects[requirement]

    def counts(self, requirement: str) -> bool:
        """Whether a violation fails in this version."""
        return self.effect(requirement) == "fail"

    def applies(self, requirement: str) -> bool:
        """Whether the requirement is part of this version."""
        return self.effect(requirement) is not None

    @cached_property
    def gauges(self) -> tuple[tuple[Entry, GaugesShown], ...]:
        """What the pods' metrics showed, in order."""
        return tuple(self.episode.of(GaugesShown))

    @cached_property
    def exit(self) -> tuple[Entry, ProcessExited] | None:
        """How the target's process ended without being asked to. Nothing is sent afterwards, so an end before the last
        is one of an earlier episode: this one explains its own better."""
        ends = [(entry, exited) for entry, exited in self.episode.of(ProcessExited) if not exited.asked]
        return ends[-1] if ends else None
