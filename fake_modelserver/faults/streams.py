"""Faults of a stream of server-sent events: filters of its chunks, each of which is one event."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from fake_modelserver.faults.fault import Fault
from fake_modelserver.faults.kinds import FaultType
from fake_modelserver.feed import Filter

DONE = b"data: [DONE]\n\n"
_FINISH = re.compile(rb'"finish_reason":(null|"[a-z_]*")')


class _Filter:
    """Lets everything through."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.cut = False
        self.events = 0

    def __call__(self, chunk: bytes) -> Iterable[bytes]:
        self.events += 1
        return self.event(chunk)

    def event(self, chunk: bytes) -> Iterable[bytes]:
        return (chunk,)

    def end(self) -> Iterable[bytes]:
        return ()


class _Cut(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        if self.events <= self.fault["events"]:
            return (chunk,)
        self.cut = True
        return (chunk[: len(chunk) // 2],)


class _Split(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        at = len(chunk) // 2
        if self.fault["inside"] == "character":
            at = next((index for index, byte in enumerate(chunk) if byte & 0xC0 == 0x80), at)
        return (chunk[:at], chunk[at:])


class _Merge(_Filter):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.held: list[bytes] = []

    def event(self, chunk: bytes) -> Iterable[bytes]:
        self.held.append(chunk)
        return self.end() if len(self.held) == self.fault["events"] else ()

    def end(self) -> Iterable[bytes]:
        merged, self.held = b"".join(self.held), []
        return (merged,) if merged else ()


class _NoDone(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        return () if chunk == DONE else (chunk,)


class _Comments(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        return (b": " + self.fault["text"].encode() + b"\n\n", chunk)


class _ErrorEvent(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        if self.events <= self.fault["events"]:
            return (chunk,)
        if self.events > self.fault["events"] + 1:
            return ()
        error = {"message": "The engine has died.", "type": "InternalServerError", "param": None, "code": 500}
        return (b"data: " + json.dumps({"error": error}).encode() + b"\n\n", DONE)


class _Abort(_Filter):
    def event(self, chunk: bytes) -> Iterable[bytes]:
        if self.events <= self.fault["events"]:
            return (chunk,)
        if self.events > self.fault["events"] + 1:
            return ()
        return (_FINISH.sub(b'"finish_reason":"abort"', chunk), DONE)


class _Chunks(_Filter):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.text = ""
        self.last = b""

    def event(self, chunk: bytes) -> Iterable[bytes]:
        how: str = self.fault["how"]
        if chunk == DONE:
            return {"after-done": (DONE, self.last, DONE), "unended": (DONE[:-1],)}.get(how, (DONE,))
        self.last = chunk
        if how == "all-finish":
            return (_FINISH.sub(b'"finish_reason":"stop"', chunk),)
        body = json.loads(chunk.removeprefix(b"data: "))
        for choice in body["choices"]:
            holder, name = (choice["delta"], "content") if "delta" in choice else (choice, "text")
            if how == "two-finish" and choice["finish_reason"]:
                again = {**choice, "delta": {}} if holder is not choice else {**choice, "text": ""}
                return (chunk, _changed(body, choices=[again]))
            if how == "repeated":
                self.text += holder[name]
                holder[name] = self.text
            if how == "indices":
                choice["index"] = self.events - 1
            if how == "no-text":
                holder[name] = ""
            if how == "beside":
                choice["text"] = holder.pop(name)
        return (_changed(body, id=f"cmpl-{self.events}") if how == "new-ids" else _changed(body),)


def _changed(body: dict[str, Any], **members: Any) -> bytes:
    return b"data: " + json.dumps({**body, **members}, separators=(",", ":")).encode() + b"\n\n"


_FILTERS: dict[FaultType, Callable[[Fault], Filter]] = {
    FaultType.CUT: _Cut,
    FaultType.SPLIT: _Split,
    FaultType.MERGE: _Merge,
    FaultType.NO_DONE: _NoDone,
    FaultType.COMMENTS: _Comments,
    FaultType.ERROR_EVENT: _ErrorEvent,
    FaultType.ABORT: _Abort,
    FaultType.CHUNKS: _Chunks,
}


def filter_for(fault: Fault) -> Filter:
    """The filter that plays `fault` on one stream."""
    return _FILTERS[fault.type](fault)
