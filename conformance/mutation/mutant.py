"""A mutant: one edit of one module's source."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.mutation.edits import Edit, edits


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One edit. It is known by `key`, which outlives changes elsewhere in the module: no line number is in it."""

    module: str
    """The module's dotted name."""
    function: str
    """The qualified name of the function or class around it; empty at the module's level."""
    operator: str
    before: str
    """The lines that it changes, white space collapsed."""
    after: str
    """What they become."""
    nth: int = 0
    """Which one it is of those that are equal in all of this, from 0."""
    path: Path
    line: int
    statement: int
    """The line where the innermost statement around it begins; 0 outside of functions, where import reaches all."""
    edit: Edit

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """What identifies it."""
        return self.module, self.function, self.operator, self.before, self.after, self.nth

    @property
    def name(self) -> str:
        """A short name: module and function, operator, and a digest of the key."""
        place = self.module.partition(".")[2] or self.module
        digest = hashlib.sha256(repr(self.key).encode()).hexdigest()[:6]
        return f"{place}{'.' if self.function else ''}{self.function}:{self.operator}:{digest}"

    def diff(self) -> str:
        """A unified diff with one line of context."""
        source = self.path.read_bytes()
        texts = (source.decode(), self.edit.apply(source).decode())
        old, new = (text.splitlines(keepends=True) for text in texts)
        name = f"{self.module.replace('.', '/')}.py"
        return "".join(difflib.unified_diff(old, new, name, name, n=1))

    def specification(self) -> dict[str, Any]:
        """What `conformance.mutation.runner` needs to make it."""
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return {
            "mutate": self.module,
            "start": self.edit.start,
            "end": self.edit.end,
            "text": self.edit.text,
            "sha256": digest,
        }


def mutants_of(module: str, path: Path, paths: Mapping[str, Sequence[str]] | None = None) -> list[Mutant]:
    """Every mutant of a module. `paths` as of `edits.edits`."""
    source = path.read_bytes()
    seen: Counter[tuple[str, str, str, str, str, int]] = Counter()
    found = []
    for edit in edits(source, paths or {}):
        before, after = _lines(source, edit)
        mutant = Mutant(
            module=module,
            function=edit.function,
            operator=edit.operator,
            before=before,
            after=after,
            path=path,
            line=source.count(b"\n", 0, edit.start) + 1,
            statement=edit.statement,
            edit=edit,
        )
        found.append(replace(mutant, nth=seen[mutant.key]))
        seen[mutant.key] += 1
    return found


def _lines(source: bytes, edit: Edit) -> tuple[str, str]:
    """The whole lines that an edit touches, before and after it, white space collapsed."""
    first = source.rfind(b"\n", 0, edit.start) + 1
    last = source.find(b"\n", edit.end)
    rest = source[edit.end : last if last >= 0 else len(source)]
    head = source[first : edit.start]
    texts = (head + source[edit.start : edit.end] + rest, head + edit.text.encode() + rest)
    before, after = (" ".join(text.decode().split()) for text in texts)
    return before, after
