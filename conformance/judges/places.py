"""Where a requirement is judged, for `explain`: a reader finds the rule's code from its id."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator

from conformance.judges.registry import JUDGES

_PACKAGES = ("conformance.judges.", "conformance.reading.")


def places(requirement: str) -> tuple[str, ...]:
    """Every `path:line`, from the root of the tree: the judges that rule on `requirement`, then the lines that name it.

    Empty for a requirement that no judge rules on.
    """
    judges = [one.place for one in JUDGES.values() if requirement in one.requirements]
    return tuple(dict.fromkeys((*judges, *_named(requirement)))) if judges else ()


def _named(requirement: str) -> Iterator[str]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith(_PACKAGES) and module.__file__:
            for number, line in enumerate(linecache.getlines(module.__file__), start=1):
                if f'"{requirement}"' in line:
                    yield f"{name.replace('.', '/')}.py:{number}"
