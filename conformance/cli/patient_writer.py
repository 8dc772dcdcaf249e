"""Lines of progress for a reader that may stop reading: they wait for it, and nothing else does."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Self, TextIO

from conformance.cli.streams import reader_is_gone
from conformance.printable import plural

_PATIENCE = 5.0
"""Seconds that a reader gets, at the end, for what it has not read yet."""


class PatientWriter:
    """Writes to `stream` on its own thread. A thread that writes to a full pipe waits for the pipe's reader: if it were
    the one that makes the requests, no exchange would go on, and no Ctrl-C would be heard.

    Use as a context manager. Leaving it waits until all is written, but not without end; `trouble` says what was not.
    """

    def __init__(self, stream: TextIO) -> None:
        self.trouble = ""
        self._stream = stream
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="epp-conformance-lines", daemon=True)

    def __enter__(self) -> Self:
        self._stream.flush()  # what was printed before comes first
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            lines = plural(self._waiting.qsize(), "line was", "lines were")
            self.trouble = f"the last {lines} not written: their reader stopped reading"

    def line(self, text: str) -> None:
        """Write a line, after those before."""
        self._waiting.put(f"{text}\n")

    def _write(self) -> None:
        """Past the buffer of the stream: what Python does at its end would wait for its lock."""
        while (text := self._waiting.get()) is not None:
            data = memoryview(text.encode(errors="replace"))
            while data:
                try:
                    data = data[os.write(self._stream.fileno(), data) :]
                except BrokenPipeError:  # `… | head -1`: the run goes on, and its exit code counts
                    reader_is_gone(self._stream)
                except OSError as problem:  # a full disk
                    self.trouble = f"lines were not written: {problem.strerror}"
                    reader_is_gone(self._stream)
