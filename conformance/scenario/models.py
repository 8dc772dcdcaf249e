"""Which model a request names: what scenarios call it, and what it is called at a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

KNOWN, UNKNOWN = "known", "unknown"

_NEARLY_KNOWN: Mapping[str, Callable[[str, str], str]] = {
    "other-case": lambda known, _: known.swapcase(),
    "beginning": lambda known, _: known[: len(known) // 2],
    "extended": lambda known, unknown: f"{known}-{unknown}",
    "prefixed": lambda known, unknown: f"{unknown}/{known}",
}
"""Names that a careless comparison takes for the known one. A target that serves one of them by chance is unlikely:
the beginning is half of the name, as `gpt-4` may well be served beside `gpt-4o`."""

OF_ANOTHER_POOL, OF_ANOTHER_NAMESPACE = "of-another-pool", "of-another-namespace"
"""Models that InferenceModels name which reference another pool, or the one of that name in another namespace."""

NamedBy = Literal["one", "updated", "two", "the-second", "another-pool", "none"]
"""What names a model: one InferenceModel of the pool; that one with another criticality and other weights; two of them;
the second of them alone; one that references another pool; nothing."""

NAMED: frozenset[NamedBy] = frozenset({"one", "updated", "two", "the-second"})
"""Of these, those by which it is a model of the pool."""

NOT_SERVED = frozenset({UNKNOWN, *_NEARLY_KNOWN, OF_ANOTHER_POOL, OF_ANOTHER_NAMESPACE})
"""What scenarios call models that the target does not serve."""


def asked_model(said: str, known: str, unknown: str) -> str:
    """The model that a scenario means by `said`, at a target that serves `known` and does not serve `unknown`.

    What differs from the known one in no letter, as a name without letters has no other case, is the unknown one.
    """
    if said in _NEARLY_KNOWN:
        name = _NEARLY_KNOWN[said](known, unknown)
        return name if name not in ("", known) else unknown
    return {KNOWN: known, UNKNOWN: unknown}.get(said, said)
