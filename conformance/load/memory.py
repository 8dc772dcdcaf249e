"""The memory of exchanges: a trie of what came from the EPP, what was done upon it, and what the judges said.

A path is only kept where the exchange is the same under another id: an exchange that goes a new way does so twice, once
with its own id and once with one that was never sent (`Memory.mask`), in two real machines. Where both do the
same, and the judges say the same of both, the way is remembered under the mask; where they do not, what the exchange
did depends on its id, and nothing of it is remembered.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from conformance.evidence.episode import Context
from conformance.load.judgement import Bench, Judgement, episode, mentioned
from conformance.load.moments import Signature, Window
from conformance.load.rehearsal import Rehearsal
from conformance.load.shape import RequestIds, RequestShape
from conformance.load.steps import EXCHANGE, Ended, NotAMessage, Step, Turn
from ext_proc.record import Event

MEMORY = 128 * 1024 * 1024
"""Bytes of messages that are remembered by default."""

_OVERHEAD = 2_000
"""Bytes that a node takes besides."""

_CIRCUMSTANCES = 256
"""Verdicts of one leaf that are kept."""


@dataclass(slots=True, eq=False)
class Node:
    """A place on a path: what is to be done there, with `Memory.mask` for the id of the exchange.

    `sends` has each payload in parts, between which the id goes. `verdicts` are those of exchanges that end here.
    """

    shape: RequestShape
    parent: Node | None
    step: Step
    turn: Turn
    sends: tuple[tuple[bytes, ...], ...]
    next: dict[Step, Node] = field(default_factory=dict)
    mentions: tuple[str, ...] | None = None
    verdicts: dict[Signature, Judgement] = field(default_factory=dict)
    window: int = 0
    """The number of the window that was asked for last, 0 for none, and the verdict in it."""
    latest: Judgement | None = None
    kept: bool = False
    """Whether it is remembered. What hung on a node that is not would be a circle for the garbage collector."""

    def path(self) -> list[Step]:
        """The steps that lead here."""
        steps: list[Step] = []
        node = self
        while node.parent is not None:
            steps.append(node.step)
            node = node.parent
        return steps[::-1]


@dataclass(slots=True)
class MemoryCounts:
    """What the memory was asked. `steps` are those found, `learned` those that were not; `exchanges` verdicts found,
    `judged` those that the judges gave. `opaque`: exchanges that depend on their id. `forgotten`: how often the memory
    was full and begun again."""

    steps: int = 0
    learned: int = 0
    exchanges: int = 0
    judged: int = 0
    opaque: int = 0
    forgotten: int = 0

    @property
    def hit_rate(self) -> float:
        """The share of verdicts that were found."""
        asked = self.exchanges + self.judged
        return self.exchanges / asked if asked else 0.0


def renamed(step: Step, old: bytes, new: bytes) -> Step:
    """`step` with one id for another."""
    match step:
        case bytes():
            return step.replace(old, new)
        case NotAMessage(raw, reason):
            return NotAMessage(raw.replace(old, new), reason)
        case Ended(message=message):
            return step._replace(message=message.replace(old.decode(), new.decode()))
        case _:
            return step


def _said(step: Step) -> bytes:
    """What the EPP says in a step."""
    match step:
        case bytes():
            return step
        case NotAMessage(raw=raw):
            return raw
        case Ended(message=message):
            return message.encode()
        case _:
            return b""


class Memory:
    """The trie of a run. `limit`: bytes that it may take; beyond, everything is forgotten and learned again."""

    def __init__(self, bench: Bench, ids: RequestIds, *, limit: int = MEMORY, ending_timeout: float = 1.0) -> None:
        self.mask = str(uuid.uuid4()).encode()
        """The id in place of every exchange's own. It is never sent, so that nothing that comes can hold it."""
        self.counts = MemoryCounts()
        self.size = 0
        self.bench = bench
        self.ids = ids
        self.ending_timeout = ending_timeout
        self._limit = limit
        self._roots: dict[RequestShape, Node] = {}

    def root(self, shape: RequestShape) -> Node:
        """Where exchanges of `shape` begin."""
        node = self._roots.get(shape)
        if node is None:
            turn = self.rehearsal(shape, self.mask).begin()
            node = self._node(shape, None, b"", turn)
            if self._room_for(size := _OVERHEAD + turn.size):
                self._roots[shape] = node
                self._keep(node, size)
        return node

    def rehearsal(self, shape: RequestShape, own: bytes) -> Rehearsal:
        """A real machine for an exchange of `shape`."""
        return Rehearsal(shape, own, ending_timeout=self.ending_timeout)

    def add(self, node: Node, step: Step, turn: Turn) -> Node:
        """Remember that at `node` the masked `step` leads to `turn`. Returns the new node."""
        found = self._node(node.shape, node, step, turn)
        size = _OVERHEAD + turn.size + (len(step) if isinstance(step, bytes) else 0)
        if node.kept and self._room_for(size) and node.kept:  # it may be forgotten to make room
            node.next[step] = found
            self._keep(found, size)
        return found

    def _keep(self, node: Node, size: int) -> None:
        node.kept = True
        self.size += size

    def _room_for(self, size: int) -> bool:
        """Whether there is room for so many bytes more: all else is forgotten for them, if need be."""
        if size > self._limit:
            return False
        if self.size + size > self._limit:
            self._forget()
        return True

    def _forget(self) -> None:
        """Forget everything. Nodes know each other in circles, which would wait for the garbage collector."""
        nodes = list(self._roots.values())
        self._roots.clear()
        while nodes:
            node = nodes.pop()
            nodes += node.next.values()
            node.next.clear()
            node.kept = False
        self.size = 0
        self.counts.forgotten += 1

    def _node(self, shape: RequestShape, parent: Node | None, step: Step, turn: Turn) -> Node:
        sends = tuple(tuple(send.split(self.mask)) for send in turn.sends)
        return Node(shape=shape, parent=parent, step=step, turn=turn, sends=sends)


class Learner:
    """An exchange that left the known paths, or whose verdict is not known: two real machines in step.

    `node` is where it stands; None once it is known to depend on its id, and nothing more is remembered of it.
    """

    def __init__(self, memory: Memory, shape: RequestShape, own: bytes, steps: Sequence[Step] = ()) -> None:
        self._memory = memory
        self._own = own
        self._shape = shape
        self._exact = memory.rehearsal(shape, own)
        self._masked = memory.rehearsal(shape, memory.mask)
        self.strangers: tuple[str, ...] = ()
        """The ids of other requests that the EPP said here: cross-talk (ENV-21)."""
        self.node: Node | None = memory.root(shape)
        self._exact.begin()
        self._masked.begin()
        for step in steps:
            self.step(renamed(step, memory.mask, own), new=False)

    def step(self, step: Step, *, new: bool = True) -> Turn:
        """Something happened to the exchange (with its own id): what is to be done."""
        memory = self._memory
        found = (one.decode() for one in memory.ids.strangers(_said(step), self._own))
        self.strangers = tuple(dict.fromkeys((*self.strangers, *found)))
        turn = self._exact.step(step)
        if self.node is None:
            return turn
        key = renamed(step, self._own, memory.mask)
        masked = self._masked.step(key)
        if self.strangers or not self._same(turn, masked):
            self._leave()
        elif key in self.node.next:
            self.node = self.node.next[key]
        else:
            self.node = memory.add(self.node, key, masked)
            memory.counts.learned += new
        return turn

    def judge(self, window: Window | None, *, trouble: str = "") -> Judgement:
        """The verdict of the exchange as it is now. Remembered if it does not depend on the id, nor on trouble."""
        memory, bench, context = self._memory, self._memory.bench, self.context()
        took = self._shape.service_time
        memory.counts.judged += 1
        seen = episode(self.events, window, self.mentions, service_time=took, silent=self.silent, trouble=trouble)
        judgement = bench.judge(seen, context)
        node = self.node
        if node is None or trouble:
            return judgement
        masked = self._masked.events
        if node.mentions is None:
            node.mentions = mentioned(masked, self._shape.subset)
        seen = episode(masked, window, node.mentions, service_time=took, silent=self.silent)
        if bench.judge(seen, context).counts != judgement.counts:
            self._leave()
            return judgement
        if len(node.verdicts) >= _CIRCUMSTANCES:
            node.verdicts.clear()
        node.verdicts[window.signature(node.mentions) if window is not None else ()] = judgement
        return judgement

    def context(self, name: str = EXCHANGE) -> Context:
        """What the exchange is judged by, under the name that it has in the record."""
        return self._memory.bench.context_of(name, self._shape.answers, self.strangers)

    @property
    def mentions(self) -> tuple[str, ...]:
        """The endpoints that the exchange names."""
        return mentioned(self.events, self._shape.subset)

    @property
    def events(self) -> Sequence[Event]:
        """The record of the exchange, with its own id."""
        return self._exact.events

    @property
    def silent(self) -> float:
        """The part of its deadline in which no answer came (`DueStep`)."""
        return self._exact.silent

    def _leave(self) -> None:
        self.node = None
        self._memory.counts.opaque += 1

    def _same(self, exact: Turn, masked: Turn) -> bool:
        sends = tuple(send.replace(self._memory.mask, self._own) for send in masked.sends)
        return replace(masked, sends=sends) == exact


def verdict(memory: Memory, node: Node, window: Window | None) -> Judgement | None:
    """What is known of an exchange that ended at `node` in the circumstances of `window`; None: it is to be judged."""
    number = window.number if window is not None else 0
    judgement = node.latest
    if judgement is None or node.window != number:
        if node.mentions is None:
            return None
        judgement = node.verdicts.get(window.signature(node.mentions) if window is not None else ())
        if judgement is None:
            return None
        node.window, node.latest = number, judgement
    memory.counts.exchanges += 1
    return judgement
