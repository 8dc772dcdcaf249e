"""What a program says when it crashes."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CAUSE = re.compile(
    r"(?:panic|fatal error|fatal): .+|thread '.*' (?:\(\d+\) )?panicked at .+|Exception in thread .+"
    r"|[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?: \[\w+\])?(?:: .*)?|Error(?: \[\w+\])?: .+"
)


def cause_of(lines: Sequence[str]) -> str:
    """The line that says why a program crashed: Go's or Rust's panic, an exception of Python, Java or JavaScript; else
    nothing.
    """
    return next((line for line in reversed(lines) if _CAUSE.fullmatch(line.rstrip())), "")
