"""Variants of several workers behind one address, each of which reads the pool for itself, in its time."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from reference_epp.conversation import Conversation
from reference_epp.deviations import part_of, variant
from reference_epp.picker import Decision
from reference_epp.workers import OfAWorker, TenStreamsEach

# -- connections lead to workers ---------------------------------------------------------------------------------------


@variant(
    "workers-follow-in-turn",
    why="Connections lead to workers that follow the pool each in its time: the third and later ones after 0.6 s.",
)
class WorkersFollowInTurn(Conversation):
    def choose(self, body: bytes) -> Decision:
        assert isinstance(self.epp.picker, OfAWorker)
        self.epp.picker.late = {1: 0.0, 2: 0.2}.get(self.connection, 0.6)
        return super().choose(body)


@part_of("workers-follow-in-turn")
class FollowInTurn(OfAWorker):
    pass


@variant(
    "workers-begin-in-turn",
    why="Connections lead to workers that begin each in its time: all but the first read the pool 0.8 s after it, and "
    "have no endpoint until then.",
)
class WorkersBeginInTurn(Conversation):
    def choose(self, body: bytes) -> Decision:
        assert isinstance(self.epp.picker, OfAWorker)
        self.epp.picker.begins = 0.8 if self.connection > 1 else 0.0
        return super().choose(body)


@part_of("workers-begin-in-turn")
class BeginInTurn(OfAWorker):
    pass


@variant(
    "worker-behind-goaway",
    why="A connection takes ten streams, then says GOAWAY; each third one leads to a worker that follows after 0.6 s.",
)
class WorkerBehindGoaway(Conversation):
    def choose(self, body: bytes) -> Decision:
        assert isinstance(self.epp.picker, OfAWorker)
        self.epp.picker.late = 0.0 if self.connection % 3 else 0.6
        return super().choose(body)


@part_of("worker-behind-goaway")
class BehindGoaway(OfAWorker):
    pass


@part_of("worker-behind-goaway")
class AnotherAfterTen(TenStreamsEach):
    pass


# -- streams lead to workers -------------------------------------------------------------------------------------------


@variant(
    "streams-take-workers-in-turn",
    why="The streams of a connection lead to two workers in turn, of which one follows the pool after 0.6 s.",
)
class StreamsTakeWorkersInTurn(Conversation):
    taken: ClassVar[Counter[int]] = Counter()

    def choose(self, body: bytes) -> Decision:
        assert isinstance(self.epp.picker, OfAWorker)
        self.taken[self.connection] += 1
        self.epp.picker.late = 0.6 if self.taken[self.connection] % 2 else 0.0
        return super().choose(body)


@part_of("streams-take-workers-in-turn")
class TakenInTurn(OfAWorker):
    pass
