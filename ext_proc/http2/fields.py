"""Header fields on the wire (HPACK, RFC 7541), with caches that are exact: they give what the codec would give."""

from __future__ import annotations

from collections.abc import Iterable

from hpack import Decoder, HPACKError

from ext_proc.http2.frames import ErrorCode, ProtocolError
from ext_proc.record import Headers

HEADER_LIST_LIMIT = 256 * 1024
"""Bytes of one header list, counted as RFC 7541 section 4.1 does; also the limit of an encoded block."""

_CACHED = 512


class FieldEncoder:
    """Writes every field as a literal without indexing, so that blocks depend on nothing sent before.

    The first block starts with a table size update to 0, which keeps any limit that the peer may set.
    """

    def __init__(self) -> None:
        self._blocks: dict[Headers, bytes] = {}
        self._first = True

    def encode(self, headers: Headers) -> bytes:
        """`headers` as a block."""
        block = self._blocks.get(headers)
        if block is None:
            block = b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)
            if len(self._blocks) >= _CACHED:
                self._blocks.clear()
            self._blocks[headers] = block
        if self._first:
            self._first = False
            return b"\x20" + block
        return block


def _string(text: bytes) -> bytes:
    """A string literal without Huffman coding: length with a 7-bit prefix, then the bytes."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    prefix, size = bytearray(b"\x7f"), size - 127
    while size >= 128:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + text


class FieldDecoder:
    """Reads blocks with `hpack`; a block that left the dynamic table alone is remembered until the table changes."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=HEADER_LIST_LIMIT)
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """The fields of `block`. Raises `ProtocolError` (COMPRESSION_ERROR) if it is damaged or too large."""
        known = self._known.get(block)
        if known is not None:
            return known
        table = self._decoder.header_table
        size, front, limit = len(table.dynamic_entries), self._front(), table.maxsize
        try:
            headers = _plain(self._decoder.decode(block, raw=True))
        except (HPACKError, ValueError, IndexError) as problem:
            raise ProtocolError(
                ErrorCode.COMPRESSION_ERROR, f"the peer sent a header block that HPACK can't read: {problem}"
            ) from problem
        # An insertion puts a new object in front, an eviction alone shortens the table.
        changed = (len(table.dynamic_entries), table.maxsize) != (size, limit) or self._front() is not front
        if changed or len(self._known) >= _CACHED:
            self._known.clear()
        if not changed:
            self._known[block] = headers
        return headers

    def _front(self) -> object:
        entries = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None


def _plain(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    return tuple((bytes(name), bytes(value)) for name, value in fields)
