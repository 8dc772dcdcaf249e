"""Find the usage in a response that comes in pieces: in its JSON, or in the last event of a stream that has one.

Never a wrong number: what is cut off, ambiguous, too long or compressed in a way unknown here has no usage.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from reference_epp.reporter.attributes import EXACT

BODY_LIMIT = 16 * 1024 * 1024
"""Bytes of a JSON response, or of one event, above which its usage is given up. Streams may have any length."""

_AMBIGUOUS = object()
"""The value of a name that an object has twice."""

_RESPONSES_API = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
"""What OpenAI's Responses API calls the two counts, and what expressions call them."""


class UsageReader:
    """Takes the pieces of one response's body; `usage()` is what was found when all of them are in.

    Types are `content-type` and `content-encoding` as the response's headers have them, empty where they are absent.
    """

    def __init__(self, status: str, content_type: str, content_encoding: str) -> None:
        media_type = content_type.partition(";")[0].strip().lower()
        self.events = media_type == "text/event-stream"
        is_json = media_type.endswith(("/json", "+json")) or not media_type
        coding = content_encoding.strip().lower()
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in ("gzip", "x-gzip", "deflate") else None
        known = self._inflate is not None or coding in ("", "identity")
        self._useless = not (self.succeeded(status) and (is_json or self.events) and known)
        self._held = bytearray()
        self._data = bytearray()  # of the event that is being read, each line with its end
        self._found: Mapping[str, Any] | None = None

    def succeeded(self, status: str) -> bool:
        """True for a 2xx: errors have no usage."""
        return len(status) == 3 and status.isdigit() and status[0] == "2"

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        if self._useless or not piece:
            return
        if self._inflate is not None:
            try:
                piece = self._decompress(piece)
            except zlib.error:
                self.give_up()
                return
        self._held += piece
        if self.events and (b"\n" in piece or b"\r" in piece):
            self.read_events()
        if len(self._held) + len(self._data) > BODY_LIMIT:
            self.give_up()

    def usage(self) -> Mapping[str, Any] | None:
        """The response's usage, all numbers as floats; None if there is none, or none that can be relied on."""
        if self._useless or (self._inflate is not None and not self._inflate.eof):
            return None
        if self.events:
            self._held += b"\n\n"  # some servers end with their last event, without the empty line that ends it
            self.read_events()
        else:
            self.read_json(bytes(self._held))
        return self._found

    def give_up(self) -> None:
        """What follows can't be understood any more, so what was found may not be the last."""
        self._useless = True
        self._held.clear()
        self._data.clear()
        self._found = None

    @property
    def found(self) -> Mapping[str, Any] | None:
        """What was found so far; a later event may have another."""
        return None if self._useless else self._found

    # -- server-sent events

    def read_events(self) -> None:
        """Take the whole lines out of what is held. A line ends with CR LF, LF or CR."""
        text = bytes(self._held)
        if text.endswith(b"\r"):  # the LF that belongs to it may come with the next piece
            text = text[:-1]
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        del self._held[: len(text) - len(lines.pop())]
        for line in lines:
            self.read_line(line)

    def read_line(self, line: bytes) -> None:
        """Take one line; an empty one ends an event."""
        if line:
            name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if name == b"data":
                self._data += value.removeprefix(b" ") + b"\n"
            return
        if b"usage" in self._data:
            self.read_json(bytes(self._data))
        self._data.clear()

    # -- JSON

    def read_json(self, text: bytes) -> None:
        """Take an object that may have usage. One whose usage can't be read makes void what was found before."""
        try:
            value = json.loads(text, object_pairs_hook=_object, parse_int=float, parse_constant=_refuse)
            usage = self.find(value) if isinstance(value, dict) else None
            if usage is not None:
                self._found = self.tokens(usage) if isinstance(usage, dict) else None
        except (ValueError, RecursionError):
            self._found = None

    def find(self, value: dict[str, Any]) -> Any:
        """The usage of an object: its own, or that of the `response` in an event of the Responses API."""
        response = value.get("response")
        usage = value.get("usage")
        return response.get("usage") if usage is None and isinstance(response, dict) else usage

    def tokens(self, usage: dict[str, Any]) -> Mapping[str, Any]:
        """The usage with the names that expressions know, without what is ambiguous or too large to be exact."""
        usage = _reliable(usage)
        for theirs, ours in _RESPONSES_API.items():
            if theirs in usage:
                usage.setdefault(ours, usage[theirs])
        return usage

    def _decompress(self, piece: bytes) -> bytes:
        """What `piece` unpacks to, no more than is worth looking at. Raises `zlib.error`."""
        assert self._inflate is not None
        unpacked = self._inflate.decompress(piece, BODY_LIMIT + 1)
        if self._inflate.unconsumed_tail or self._inflate.unused_data:
            raise zlib.error("too long, or something follows the end")
        return unpacked


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.update((name, _AMBIGUOUS) for name in made if names.count(name) > 1)
    return made


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _reliable(value: Any) -> Any:
    """`value` without members that are ambiguous, or numbers that a double does not hold."""
    if isinstance(value, dict):
        return {
            name: _reliable(item)
            for name, item in value.items()
            if item is not _AMBIGUOUS and not (isinstance(item, float) and abs(item) > EXACT)
        }
    return [_reliable(item) for item in value] if isinstance(value, list) else value
