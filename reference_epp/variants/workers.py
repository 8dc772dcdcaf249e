"""Variants of several workers behind one address, each of which reads the pool for itself, in its time."""
# fmt: off

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from reference_epp.changes import changed
from reference_epp.conversation import Conversation
from reference_epp.deviations import variant
from reference_epp.picker import Decision
from reference_epp.workers import OfAWorker, TenStreamsEach


def worker(**times: Callable[[Any], float]) -> type[Conversation]:
    """Says before each choice which worker a conversation meets: its `late` or `begins` in seconds."""
    def act(up: Any, c: Any, body: bytes) -> Decision:
        for name, seconds in times.items():
            setattr(c.epp.picker, name, seconds(c))
        decision: Decision = up(body)
        return decision

    return changed(Conversation, choose=act)


class _Turns:
    """Counts the streams of each connection."""

    taken: ClassVar[Counter[int]] = Counter()

    @classmethod
    def second(cls, conversation: Any) -> bool:
        """Whether this stream is one of each second."""
        cls.taken[conversation.connection] += 1
        return cls.taken[conversation.connection] % 2 == 0


variant("workers-follow-in-turn",
        "Connections lead to workers that follow the pool each in its time: the third and later ones after 0.6 s.",
        worker(late=lambda c: {1: 0.0, 2: 0.2}.get(c.connection, 0.6)), OfAWorker)
variant("workers-begin-in-turn",
        "Connections lead to workers that begin each in its time: all but the first have no endpoint for 0.8 s.",
        worker(begins=lambda c: 0.8 if c.connection > 1 else 0.0), OfAWorker)
variant("worker-behind-goaway",
        "After ten streams a connection says GOAWAY; each third one leads to a worker that follows after 0.6 s.",
        worker(late=lambda c: 0.0 if c.connection % 3 else 0.6), OfAWorker, TenStreamsEach)
variant("streams-take-workers-in-turn",
        "The streams of a connection lead to two workers in turn, of which one follows the pool after 0.6 s.",
        worker(late=lambda c: 0.0 if _Turns.second(c) else 0.6), OfAWorker)
