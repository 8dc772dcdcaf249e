"""The history of a pool, written by the process that changes it and read by those that judge.

A change is in the file before the target is told of it, and a reader looks there before it asks what an exchange may
have acted on. So no answer is judged without the change that it follows, however late a process is. Times are those of
the monotonic clock, which all processes of a machine share.

The file begins with the number of bytes that follow, then has one pickled entry after the other. Of the pool it holds
what changed: some hundred bytes for each change.
"""

from __future__ import annotations

import math
import mmap
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.evidence.episode import PodFact
from conformance.load.moments import Moments, ShownLoad, State, Window

_LENGTH = struct.Struct("<Q")
_NOTHING = _LENGTH.pack(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The pool was asked to change at `at`: pods that are gone, pods that are new or other than before, and loads.
    `instead` of the change before, as they are one."""

    at: float
    instead: bool
    gone: tuple[str, ...]
    pods: tuple[PodFact, ...]
    loads: Mapping[str, ShownLoad]


@dataclass(frozen=True, slots=True)
class _Delivered:
    at: float


class WrittenMoments(Moments):
    """`Moments` that are kept in the file `path` as well, which it makes. Call `close` at the end."""

    def __init__(self, grace: float, longest: float, path: Path) -> None:
        super().__init__(grace, longest)
        self._pods: dict[str, PodFact] = {}
        self._loads: dict[str, ShownLoad] = {}
        self._length = 0
        self._file = path.open("w+b", buffering=0)
        self._file.write(_NOTHING)
        self._head = mmap.mmap(self._file.fileno(), _LENGTH.size)

    def asked(self, state: State, at: float, *, instead: bool = False) -> None:
        """See `Moments`."""
        super().asked(state, at, instead=instead)
        pods = {pod.name: pod for pod in state.pods}
        self._write(
            _Asked(
                at=at,
                instead=instead,
                gone=tuple(self._pods.keys() - pods.keys()),
                pods=tuple(pod for name, pod in pods.items() if self._pods.get(name) != pod),
                loads={name: load for name, load in state.loads.items() if self._loads.get(name) != load},
            )
        )
        self._pods = pods
        self._loads = {name: load for name, load in state.loads.items() if name in pods}

    def close(self) -> None:
        """Close the file."""
        self._head.close()
        self._file.close()

    def _bind(self, at: float) -> None:
        super()._bind(at)
        self._write(_Delivered(at))

    def _write(self, entry: _Asked | _Delivered) -> None:
        data = pickle.dumps(entry)
        if self._file.write(data) != len(data):
            raise OSError(f"{self._file.name} can't be written in full")
        self._length += len(data)
        self._head[:] = _LENGTH.pack(self._length)


class ReadMoments(Moments):
    """`Moments` as the file `path` has them. Call `close` at the end: what was read until then stays, for what may
    still come on connections that close later."""

    def __init__(self, grace: float, longest: float, path: Path) -> None:
        super().__init__(grace, longest)
        self._pods: dict[str, PodFact] = {}
        self._loads: dict[str, ShownLoad] = {}
        self._file = path.open("rb")
        self._head = mmap.mmap(self._file.fileno(), _LENGTH.size, access=mmap.ACCESS_READ)
        self._seen = _NOTHING
        self._file.seek(_LENGTH.size)

    @property
    def current(self) -> State:
        """See `Moments`."""
        self._catch_up()
        return super().current

    def window(self, sent: float, decided: float) -> Window | None:  # noqa: ARG002 - see below
        """See `Moments`. Every change of which the file knows now was asked before the decision was read, whatever the
        clock of a loop says that was busy meanwhile."""
        self._catch_up()
        return super().window(sent, math.inf)

    def close(self) -> None:
        """Close the file."""
        self._head.close()
        self._file.close()

    def _catch_up(self) -> None:
        if self._head.closed:
            return
        length = self._head[:]
        if length == self._seen:
            return
        self._seen = length
        end = _LENGTH.size + _LENGTH.unpack(length)[0]
        while self._file.tell() < end:
            entry = pickle.load(self._file)
            if isinstance(entry, _Delivered):
                self.delivered(entry.at)
            else:
                self._pods = {name: pod for name, pod in self._pods.items() if name not in entry.gone}
                self._pods |= {pod.name: pod for pod in entry.pods}
                self._loads = {name: load for name, load in self._loads.items() if name not in entry.gone}
                self._loads |= entry.loads
                self.asked(State(tuple(self._pods.values()), self._loads), entry.at, instead=entry.instead)
