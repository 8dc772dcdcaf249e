"""What a program says when it crashes."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RUST = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at .+")
_CAUSE = re.compile(
    rf"(?:panic|fatal error|fatal): .+|{_RUST.pattern}|Exception in thread .+"
    r"|[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?: \[\w+\])?(?:: .*)?|Error(?: \[\w+\])?: .+"
)


def cause_of(lines: Sequence[str]) -> Sequence[str]:
    """The lines that say why a program crashed: Go's or Rust's panic, an exception of Python, Java or JavaScript; else
    none. Rust says where in one line and what in the next.
    """
    for at in range(len(lines) - 1, -1, -1):
        if _CAUSE.fullmatch(lines[at].rstrip()):
            return lines[at : at + (2 if _RUST.fullmatch(lines[at].rstrip()) else 1)]
    return ()
