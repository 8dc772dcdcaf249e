"""A generator as a process, on any machine: commands come on its standard input, answers go to its output.

Both are frames (a length, then bytes) of what `wire` encodes, so that a relay need not understand them.
`python -m conformance.load.remote_generator` ends when its input does.
"""

from __future__ import annotations

import os
import struct
from typing import IO, Any

from conformance.errors import ConformanceError, UsageError
from conformance.load.generators import Generator, Share
from conformance.load.wire import decode, encode
from conformance.run.child_process import serve_over

_LENGTH = struct.Struct("<Q")


def framed(data: bytes) -> bytes:
    """The bytes as a frame."""
    return _LENGTH.pack(len(data)) + data


def read_frame(file: IO[bytes]) -> bytes:
    """What is in the next frame. Raises `EOFError` where there is none, or only a part of one."""
    return _read(file, _LENGTH.unpack(_read(file, _LENGTH.size))[0])


def _read(file: IO[bytes], length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return data


class _StandardStreams:
    """The `Pipe` to what started this process. What else is printed goes to standard error."""

    def __init__(self) -> None:
        self._input = os.fdopen(0, "rb")
        self._output = os.dup(1)
        os.dup2(2, 1)

    def recv(self) -> Any:
        """See `Pipe`. A command that can't be followed is answered with why, and is the last."""
        try:
            message = decode(read_frame(self._input))
            if not isinstance(message, Share):
                return message
            _check(message)
        except ConformanceError as problem:
            self.send(problem)
            raise EOFError from problem
        return Generator, (message,)

    def send(self, obj: Any, /) -> None:
        """See `Pipe`."""
        data = memoryview(framed(encode(obj)))
        while data:
            data = data[os.write(self._output, data) :]


def _check(share: Share) -> None:
    """Raise `UsageError` if files that the share needs are not on this machine."""
    for place, what, _ in share.settings.profile.out_of_place():
        if place[0] == "tls":
            hint = "workers need the TLS files of the profile at the same place"
            raise UsageError(f"{'.'.join(map(str, place))}: {what}", hint=hint)


if __name__ == "__main__":
    serve_over(_StandardStreams())
