"""Whether bytes are what a scenario has, but for secrets: what the scenario says itself may be one by chance.

A placeholder proves nothing, and anybody can write one. So what stands for a secret stands for the same all through a
report, and for one that the report says was replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.report.document.blocks import Redaction

_FORMS = 12
"""In so many lengths a secret is known: with and without its scheme, as JSON, URLs and base64 have it."""


class Hidden:
    """What stood where a report has placeholders."""

    def __init__(self, redactions: Sequence[Redaction]) -> None:
        names = dict.fromkeys(f"[redacted:{one.kind}:{one.name}]".encode() for one in redactions)
        self._values: dict[bytes, dict[int, bytes]] = {name: {} for name in names}

    def in_body(self, found: bytes, wanted: bytes) -> bool:
        """Whether a body, or the same piece of one, is `wanted`. There placeholders have the length of their secret."""
        if found == wanted or len(found) != len(wanted):
            return found == wanted
        at = 0
        while found[at:] != wanted[at:]:
            at = next(number for number in range(at, len(found)) if found[number] != wanted[number])
            span = next((span for name in self._values if (span := self._hidden(name, found, wanted, at))), None)
            if span is None:
                return False
            at = span
        return True

    def in_header(self, found: bytes, wanted: bytes) -> bool:
        """Whether a header's value is `wanted`."""
        if found == wanted:
            return True
        for name in self._values:
            before, placeholder, after = found.partition(name)
            begins = placeholder and len(before) + len(after) < len(wanted) and wanted.startswith(before)
            if begins and wanted.endswith(after):
                return self._stands_for(name, wanted[len(before) : len(wanted) - len(after)])
        return False

    def _hidden(self, name: bytes, found: bytes, wanted: bytes, at: int) -> int | None:
        """Where the placeholder ends that covers the byte at `at`; None if there is none, or it may not be there."""
        begin = found.rfind(name[:6], 0, at + 6)
        if begin < 0 or begin > at:
            return None
        end = begin
        while end < len(found) and found[end] == (name[end - begin] if end - begin < len(name) else 0x2A):
            end += 1
        return end if end > at and self._stands_for(name, wanted[begin:end]) else None

    def _stands_for(self, name: bytes, value: bytes) -> bool:
        values = self._values[name]
        return values.setdefault(len(value), value) == value and len(values) <= _FORMS
