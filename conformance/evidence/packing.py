"""Evidence as a file: packed by gzip while a run writes it, by xz where it is published. What is read may be either."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO

from conformance.folder import open_regular

MAX_MEMORY = 128 * 1024 * 1024
"""Bytes that unpacking xz may take; level 6 needs 9 million, and a stranger's file may ask for gigabytes."""

MAX_PACKED = 4 * 1024 * 1024 * 1024
"""Bytes of a packed file."""

PACKING_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading an unpacked file raises: it can't be read, is cut short, or is damaged."""

_XZ = b"\xfd7zXZ\0"
_GZIP = b"\x1f\x8b"


def is_packed(path: Path) -> bool:
    """Whether a file begins as one that is packed by gzip or xz. Raises `OSError`."""
    return _head(path).startswith((_GZIP, _XZ))


def unpacked(path: Path) -> IO[bytes] | io.BufferedIOBase:
    """The file as it was before it was packed. Raises `PACKING_ERRORS`, later ones in reading."""
    if _head(path) == _XZ:
        return io.BufferedReader(_Xz(_open(path)), 1024 * 1024)
    packed = _open(path)
    found = gzip.GzipFile(fileobj=packed, mode="rb")
    found.myfileobj = packed  # type: ignore[assignment]  # it closes this one, too
    return found


def _head(path: Path) -> bytes:
    with _open(path) as file:
        return file.read(len(_XZ))


def _open(path: Path) -> io.BufferedReader:
    return open_regular(path, MAX_PACKED, follow=True)


class _Xz(io.RawIOBase):
    """A file of one xz stream, unpacked in bounded memory, which `lzma.open` does not offer."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Raises `EOFError` where the stream is cut short, `lzma.LZMAError` where it is damaged or not all."""
        data = b""
        while not data and not self._xz.eof:
            packed = self._file.read(64 * 1024) if self._xz.needs_input else b""
            if self._xz.needs_input and not packed:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            data = self._xz.decompress(packed, len(buffer))
        if not data and (self._xz.unused_data or self._file.read(1)):
            raise lzma.LZMAError("there is something after the end of the xz stream")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the packed file, too."""
        self._file.close()
        super().close()
