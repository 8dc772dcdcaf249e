"""Drives exchanges of the load path by hand: a connection that keeps what is written, and a clock that is set."""

from __future__ import annotations

from conformance.evidence.episode import Context, PodFact
from conformance.load.exchange import LiveExchange
from conformance.load.judgement import Bench
from conformance.load.memory import Memory
from conformance.load.moments import Moments, State
from conformance.load.rehearsal import Rehearsal
from conformance.load.shape import RequestIds, RequestShape
from conformance.load.steps import Turn
from conformance.requirements.catalogue import Catalogue
from ext_proc import grpc

CATALOGUE = Catalogue.load()


class Wire:
    """A connection as an exchange sees it: `written` is all that left on the latest stream, in order."""

    def __init__(self) -> None:
        self.written: list = []
        self.streams = 0
        self.unsent = 0
        """See `Transport.sending`."""

    def open(self, headers, sink) -> int:
        self.streams += 1
        self.written = []
        return 2 * self.streams - 1

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self.written.append("half-close" if end else data)

    def sending(self, stream: int) -> int:
        return self.unsent

    def reset(self, stream: int, code: int) -> None:
        self.written.append("reset")


class Road:
    """What `LiveExchange` asks of `Traffic`, without a loop; `now` is set by the test."""

    def __init__(self, *, version: str = "1.0.0", grace: float = 5.0, limit: int = 1 << 24, **context) -> None:
        self.bench = Bench(Context(version=version, scenario="load", **context), CATALOGUE)
        self.memory = Memory(self.bench, RequestIds(), limit=limit)
        self.moments = Moments(grace)
        self.headers = ()
        self.time = 0.0
        self.over: list[LiveExchange] = []
        self._ids = iter(self.memory.ids)

    def now(self) -> float:
        return self.time

    def done(self, exchange) -> None:
        self.over.append(exchange)

    def heavy(self, exchange) -> None: ...

    def late(self, exchange) -> None:
        exchange.judge()

    def later(self, seconds, what, *arguments) -> None: ...

    def expired(self, exchange, since) -> None: ...

    def again(self, exchange, pause) -> None: ...

    # -- for tests

    def pool(self, *pods: PodFact, loads=None, told: bool = True) -> None:
        """The pool is changed now, and the target told of it if `told`."""
        self.moments.asked(State(pods, loads or {}), self.time)
        if told:
            self.moments.delivered(self.time)

    def start(self, shape: RequestShape) -> tuple[LiveExchange, Wire]:
        wire = Wire()
        exchange = LiveExchange(self, shape, next(self._ids), self.time)
        exchange.open(wire, self.time)
        return exchange, wire

    def run(self, shape: RequestShape, *steps) -> LiveExchange:
        """An exchange in which `steps` happen; a message may be made of the exchange's id."""
        exchange, _ = self.start(shape)
        for one in steps:
            step = one(exchange.own) if callable(one) else one
            if isinstance(step, bytes):
                exchange.on_data(grpc.frame(step), False)
            else:
                exchange.step(step)
        return exchange


def pod(name: str, *endpoints: str, **facts) -> PodFact:
    return PodFact(name=name, endpoints=endpoints, **facts)


def written(turn: Turn) -> list:
    """What a turn puts on the wire."""
    return [*turn.sends, *turn.closing]


def real(road: Road, shape: RequestShape, own: bytes) -> Rehearsal:
    return Rehearsal(shape, own, ending_timeout=road.memory.ending_timeout)
