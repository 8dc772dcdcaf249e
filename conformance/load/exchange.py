"""One exchange on a real stream: bytes come in, the memory says what is to be done, or a real machine where it can't.

Without a task, a timer or an event for each: this is the path that every exchange of a load takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from conformance.load.judgement import Judgement
from conformance.load.memory import Learner, Memory, Node, verdict
from conformance.load.moments import Moments, Window
from conformance.load.shape import RequestShape
from conformance.load.steps import DueStep, Ended, NotAMessage, Step, Turn
from ext_proc import grpc
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.transport import Transport
from ext_proc.record import Headers
from ext_proc.stream import ANSWERS, LATE
from fake_proxy.config import Ending
from fake_proxy.pace import PATIENCE

LATE_SECONDS = 1.0
"""So long what comes after an exchange is over is looked at."""

REOPENED = 8
"""How often a refused stream is opened again."""

_LOOKS_FROM = 0.1
"""The part of a wait from which on it is looked whether what is to be answered has left: it seldom comes to that."""

_TOO_MUCH = "more is sent than this machine, or the target's flow control, lets through"

_FIRST_PAUSE = 0.005
_PREFIX = 5

NOTHING = Turn((), (), False, False, False, 0, 0.0, 0.0)
"""Before the first turn."""


class Surroundings(Protocol):
    """What an exchange needs of the traffic that it is part of."""

    memory: Memory
    moments: Moments
    headers: Headers
    now: Callable[[], float]

    def done(self, exchange: LiveExchange) -> None:
        """It is over."""

    def late(self, exchange: LiveExchange) -> None:
        """Something came after it was over: it is to be judged again."""

    def heavy(self, exchange: LiveExchange) -> None:
        """It is over, and holds its messages by itself, and not as the memory has them."""

    def again(self, exchange: LiveExchange, pause: float) -> None:
        """Its stream was refused: open another after `pause` seconds."""

    def later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call `what` after so many seconds."""

    def expired(self, exchange: LiveExchange, since: float) -> None:
        """A wait for something of the target's is over, which began at the monotonic time `since`."""


class LiveExchange:
    """An exchange of `shape` with the id `own` that was due at `intended`, a monotonic time."""

    __slots__ = (
        "_deframer",
        "_head",
        "_learner",
        "_node",
        "_room",
        "_sending",
        "_state",
        "_stream",
        "_traffic",
        "_transport",
        "answered",
        "decided",
        "finished",
        "given_up",
        "intended",
        "judgement",
        "late",
        "lost",
        "over",
        "own",
        "progress",
        "responded",
        "served",
        "shape",
        "started",
        "tries",
        "trouble",
        "window",
    )

    def __init__(self, traffic: Surroundings, shape: RequestShape, own: bytes, intended: float) -> None:
        self._traffic = traffic
        self.shape = shape
        self.own = own
        self.intended = intended
        self.started = math.inf
        """When its stream was opened, or there was no connection for it; infinite: it waits for a stream."""
        self.progress = math.inf
        """When something last happened since."""
        self.answered = math.inf
        """When the target last brought it forward since; the model server's time is taken off."""
        self.decided = 0.0
        """When its request had an endpoint or an error; 0: not yet."""
        self.responded = 0.0
        """When the client had its first byte; 0: not yet."""
        self.given_up = 0.0
        """When it was not waited for any longer, as the target was late; 0: that did not come."""
        self.served = 0.0
        """Seconds that the model server took."""
        self.finished = False
        self.judgement: Judgement | None = None
        self.lost = False
        """Whether its connection broke, or could not be made."""
        self.late = 0
        """How much came after it was over."""
        self.over = 0.0
        """When it was."""
        self.tries = 0
        self.window: Window | None = None
        self.trouble = ""
        """What the harness could not do for it: then nothing is held against the target."""
        self._node: Node | None = None
        self._state: Turn = NOTHING
        self._learner: Learner | None = None
        self._head: Headers | None = None
        self._deframer: grpc.Deframer | None = None
        self._room = ANSWERS
        """Bytes that the EPP may send before more is sent to it, less what the deframer was told of."""
        self._transport: Transport | None = None
        self._stream = 0
        self._sending = 0
        """What its transport last said of bytes that have not left."""

    # -- its stream ----------------------------------------------------------------------------------------------------

    def open(self, transport: Transport, now: float) -> None:
        """Open the stream on `transport` and send what comes first."""
        self._transport = transport
        self.tries += 1
        self.started = min(self.started, now)
        self.progress = self.answered = now
        node = self._node = self._traffic.memory.root(self.shape)
        if node.sends:
            self._stream = transport.open(self._traffic.headers, self)
        self._do(node.turn, node)

    def unreachable(self, why: str, now: float) -> None:
        """There is no connection for the stream."""
        self.started = min(self.started, now)
        self._node = self._traffic.memory.root(self.shape)
        self.lost = True
        self.step(Ended("lost", message=why, opened=False))

    def on_headers(self, headers: Headers, end: bool) -> None:
        if self._head is None:
            self._head = headers
            problem = "" if end else grpc.head_problem(headers)
            if problem:
                self.step(Ended("malformed", message=problem, headers=headers))
                self._cancel(ErrorCode.CANCEL)
                return
        if end:
            self._remote_end(None if headers is self._head else headers)

    def on_data(self, data: bytes, end: bool) -> None:
        size = len(data)
        if (
            self._deframer is None
            and self._room >= size >= _PREFIX
            and data[0] == 0
            and (int.from_bytes(data[1:_PREFIX]) == size - _PREFIX)
        ):
            self._room -= max(size, grpc.LEAST)
            self.step(data[_PREFIX:])  # the common case: one whole message in one DATA frame
        else:
            deframer = self._deframer = self._deframer or grpc.Deframer(total=0)
            deframer.allow(self._room)
            self._room = 0
            for found in deframer.feed(data):
                self.step(found if isinstance(found, bytes) else NotAMessage(found.raw, found.reason))
        if end:
            self._remote_end(None)

    def on_closed(self, kind: CloseKind, code: int, reason: str) -> None:
        if kind == "refused" and self._head is None and self.tries <= REOPENED and not self.finished:
            self._transport = None
            self.started = self.progress = math.inf  # nothing reached the target; it may wait for another stream
            pause = 0.0 if self.tries < 2 else _FIRST_PAUSE * 2 ** (self.tries - 2)
            self._traffic.again(self, pause)
        elif kind == "lost":
            self.lost = self.lost or not self.finished
            self.step(Ended("lost", message=reason))
        elif kind in ("refused", "reset"):
            refused = kind == "refused" and self._head is None
            self.step(Ended("refused" if refused else "reset", code=code, message=reason))

    def _remote_end(self, trailers: Headers | None) -> None:
        violation = self._deframer.finish() if self._deframer is not None else None
        if violation is not None:
            self.step(NotAMessage(violation.raw, violation.reason))
        end = grpc.ending(self._head or (), trailers)
        if end.status is None:
            self.step(Ended("malformed", message=end.message, headers=self._head or ()))
        else:
            self.step(Ended("status", status=end.status, message=end.message))
        self._cancel(ErrorCode.INTERNAL_ERROR)

    def _cancel(self, code: int) -> None:
        if self._transport is not None and self._stream:
            self._transport.reset(self._stream, code)

    # -- its course ----------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """Something happened."""
        if self.finished:
            if isinstance(step, Ended):
                return  # it had ended before, by ourselves: how the EPP ends it then is no part of it
            self.late += 1
            if self.late > LATE or self._traffic.now() - self.over > LATE_SECONDS:
                return
        learner = self._learner
        if learner is None:
            node = self._node
            assert node is not None
            memory = self._traffic.memory
            found = node.next.get(step.replace(self.own, memory.mask) if isinstance(step, bytes) else step)
            if found is not None:
                memory.counts.steps += 1
                self._node = found
                self._do(found.turn, found)
                return
            learner = self._learner = Learner(memory, self.shape, self.own, node.path())
        self._do(learner.step(step), None)

    def due(self, now: float, deadline: float) -> None:
        """Let time pass: waits that are over by `now` end. `deadline`: seconds in which something must happen, and all
        of it in `PATIENCE` times as many. What was not sent yet can't be answered: time counts from when it was."""
        turn = self._state
        if turn.upstream:
            return  # the model server's time runs: nothing is due from the EPP
        endless = now - self.started - self.served >= PATIENCE * deadline
        waited = now - self.progress >= (turn.quiet or deadline) * _LOOKS_FROM
        if (waited or endless) and self._transport is not None:
            sending = self._transport.sending(self._stream)
            if sending != self._sending:
                self.progress, self._sending = now, sending
        if endless and self._sending:
            self.trouble = f"after {now - self.started:.0f} s the request was not sent to its end: {_TOO_MUCH}"
        since = self.started if endless else self.progress
        if turn.quiet:
            if endless or now - since >= turn.quiet:
                if self.shape.config.ending is not Ending.DRAIN:  # that a drained stream is quiet is no fault
                    self._traffic.expired(self, since)
                self.step(DueStep("ending"))
        elif endless or now - since >= deadline:
            self._traffic.expired(self, since)
            self.given_up = 0.0 if self.trouble else now
            self.step(DueStep("deadline", deadline, min(int((now - self.answered) / deadline * 10), 10) / 10))

    def upstream(self, number: int) -> None:
        """The model server's time for an attempt is over."""
        if not self.finished and self._state.upstream == number:
            self.served += self._state.upstream_in
            self.answered += self._state.upstream_in
            self.step(DueStep("upstream"))

    @property
    def holds(self) -> bool:
        """Whether it holds its messages by itself, not as the memory has them, and for no longer than more may come:
        one that is lost may be counted later."""
        return self._learner is not None and not self.lost

    def release(self) -> None:
        """Let go of its messages: nothing that may still come is looked at. Its connection may know it on."""
        self._learner, self._node, self._state = None, None, NOTHING

    @property
    def learner(self) -> Learner:
        """The exchange in a real machine, as far as it has come."""
        if self._learner is None:
            assert self._node is not None
            self._learner = Learner(self._traffic.memory, self.shape, self.own, self._node.path())
        return self._learner

    def _do(self, turn: Turn, node: Node | None) -> None:
        """Carry out a turn; with `node` from what is remembered of it."""
        now = self.progress = self._traffic.now()
        transport, stream, was = self._transport, self._stream, self._state
        self._state = turn
        if turn.forward:
            self.answered = now
        if turn.sends and transport is not None:
            if node is None:
                for send in turn.sends:
                    transport.send(stream, send)
            else:
                for parts in node.sends:
                    transport.send(stream, parts[0] if len(parts) == 1 else self.own.join(parts))
            self._room += turn.size
        if turn.closing and transport is not None:
            for how in turn.closing:
                if how == "reset":
                    transport.reset(stream, ErrorCode.INTERNAL_ERROR)
                else:
                    transport.send(stream, b"", end=True)
        if turn.decided and not self.decided:
            self.decided = now
            self.window = self._traffic.moments.window(self.started, now)
        if turn.responding and not self.responded:
            self.responded = now
        if turn.upstream and turn.upstream != was.upstream:
            self._traffic.later(turn.upstream_in, self.upstream, turn.upstream)
        if self.finished:
            self._traffic.late(self)
        elif turn.finished:
            self.finished, self.over = True, now
            self.judge()
            self._traffic.done(self)
            if self.holds:
                self._traffic.heavy(self)

    def judge(self) -> None:
        """Judge it as it is now."""
        if not self.decided:
            self.window = self._traffic.moments.window(self.started, self.progress)
        judgement = None
        if self._learner is None and not self.trouble:
            assert self._node is not None
            judgement = verdict(self._traffic.memory, self._node, self.window)
        self.judgement = judgement or self.learner.judge(self.window, trouble=self.trouble)
