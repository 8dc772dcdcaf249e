"""An answer of the inference API: one JSON object, or server-sent events; and the shapes that errors have."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from conformance.evidence.model_server import ServerAnswered
from conformance.printable import plural, printable
from ext_proc.record import header

DONE = "[DONE]"

MESSAGE = 300
"""Characters of a server's error text that are shown."""


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """What came back to one request."""

    event: ServerAnswered

    @property
    def content_type(self) -> str:
        """The content type, without parameters, in lower case."""
        return (header(self.event.headers, b"content-type") or b"").decode("latin-1").split(";")[0].strip().lower()

    @cached_property
    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        return json_of(self.event.body)

    @cached_property
    def events(self) -> Events:
        """The body as server-sent events."""
        return read_events(self.event.body)

    @cached_property
    def error(self) -> str:
        """The server's own text of an error, which may be an event of a stream; empty if there is none."""
        if b'"error"' not in self.event.body and self.event.status == 200:
            return ""
        return next(filter(None, map(error_message, (self.json, *self.events.chunks))), "")

    def describe(self) -> str:
        """What came back, with the server's own text of an error, without what was generated."""
        event = self.event
        if event.outcome != "response":
            return event.details or event.outcome
        said = f": {printable(self.error[:MESSAGE])}" if self.error else ""
        size = plural(len(event.body), "byte")
        return f"HTTP {event.status}, {self.content_type or 'no content type'}, {size}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Server-sent events: the data of each, and what is wrong with their framing (empty: nothing)."""

    data: tuple[str, ...]
    problem: str = ""

    @property
    def done(self) -> bool:
        """Whether the last one, and none before it, says that the stream is complete: clients stop there."""
        return self.data.count(DONE) == 1 and self.data[-1] == DONE

    @property
    def chunks(self) -> list[Any]:
        """The data as JSON, without the last one's mark; None stands for what is no JSON."""
        return [json_of(one) for one in self.data if one != DONE]


def read_events(body: bytes) -> Events:
    """The events in a body, as a client of server-sent events takes them: comments and other fields are left out."""
    try:
        text = body.decode("utf-8-sig")  # as a mark at the beginning is no part of the stream
    except UnicodeDecodeError as problem:
        return Events(data=(), problem=f"byte {problem.start} is not UTF-8")
    found: list[str] = []
    lines: list[str] = []
    *whole, rest = re.split(r"\r\n|\n|\r", text)
    for line in whole:
        name, _, value = line.partition(":")
        if not line:
            if lines:
                found.append("\n".join(lines))
            lines = []
        elif name == "data":
            lines.append(value.removeprefix(" "))
    return Events(
        data=tuple(found), problem="it ends inside an event" if lines or rest.partition(":")[0] == "data" else ""
    )


def error_message(body: Any) -> str | None:
    """The message of an error, in any of the shapes that servers have: nested, flat, a text, or a `detail`, as FastAPI
    has it by default and Triton's frontend leaves it; None if it is none."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, str) and error:
        return error
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    if body.get("object") == "error" and isinstance(body.get("message"), str):
        return str(body["message"])
    return _detail(body.get("detail"))


def _detail(detail: Any) -> str | None:
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        detail = detail[0].get("msg")
    return detail if isinstance(detail, str) and detail else None


def json_of(text: str | bytes) -> Any:
    """The value that JSON says; None if it is none (as with NaN, which JSON has not), or nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
