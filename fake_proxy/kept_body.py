"""A body as it is recorded: whole, or its beginning with the length and digest of the whole."""

from __future__ import annotations

import hashlib
from typing import Any


class KeptBody:
    """Pieces of a body, of which the first `keep` bytes are kept (None: all)."""

    __slots__ = ("_digest", "_keep", "kept", "length")

    def __init__(self, keep: int | None = None, data: bytes = b"") -> None:
        self.kept = bytearray()
        self.length = 0
        """Of the whole."""
        self._keep = keep
        self._digest = hashlib.sha256() if keep is not None else None
        self.add(data)

    def add(self, data: bytes) -> None:
        """Another piece."""
        self.length += len(data)
        if self._keep is None or self._digest is None:
            self.kept += data
        else:
            self._digest.update(data)
            self.kept += data[: max(0, self._keep - len(self.kept))]

    @property
    def recorded(self) -> dict[str, Any]:
        """The fields of an event of the record: `body`, and of one not kept whole `size` and `sha256`."""
        fields: dict[str, Any] = {"body": bytes(self.kept)}
        if self._digest is not None and self.length > len(self.kept):
            fields |= {"size": self.length, "sha256": self._digest.hexdigest()}
        return fields
