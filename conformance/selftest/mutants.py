"""The mutants of the reference EPP: which there are, and which of them are tried. Nothing of it is imported."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from conformance.errors import HarnessError, UnknownNameError, UsageError
from conformance.mutation.mutant import Mutant, mutants_of

PROGRAM = "reference_epp"

LEFT_OUT = (
    *("changes", "deviations", "faults", "variants"),  # wrong or odd on purpose
    *("__main__", "settings", "tls"),  # command line and certificates
    *("accounting", "logs", "metrics"),  # what it counts and logs, for its operator
    *("gauges", "metrics_client", "prefixes"),  # what its scorers feed on; the suite saturates servers in every gauge
    *("reporter.attributes", "reporter.config", "reporter.usage"),  # no rule about them does more than warn
)
"""Modules and folders without mutants: they are not what the protocol's demands are about."""

_ON_A_STREAM = (
    'self.headers.get(":method", b"POST") != b"POST"',
    'b"chat" in self.headers.get(":path", b"")',
    'b"json" not in self.headers.get("content-type", b"json")',
    "self.request_mode == 2",
    "self.connection > 1",
    "self.number % 3 == 0",
    'int(self.headers.get("content-length", b"0")) > 20_000',
    '"x-gateway-inference-objective" in self.headers',
    "self.subset is not None and len(self.subset) > 1",
)
_FOR_A_REQUEST = (
    'b"stream" in request.body',
    "not request.body",
    "request.model is None",
    "request.subset is not None and len(request.subset) == 1",
    "len(request.body) > 16_384",
)
PATHS: Mapping[str, Sequence[str]] = {
    f"{PROGRAM}.conversation:Conversation.": _ON_A_STREAM,
    **{f"{PROGRAM}.picker:Picker.{name}": _FOR_A_REQUEST for name in ("pick", "eligible", "rank", "score")},
    f"{PROGRAM}.picker:inside_subset": _FOR_A_REQUEST,
    f"{PROGRAM}.endpoints:parse_endpoint": ('"[" in text', "text != text.strip()"),
}
"""By the beginning of a module and function, expressions that are true for some requests only."""


def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, by module and place."""
    spec = importlib.util.find_spec(PROGRAM)
    if spec is None or spec.origin is None:
        raise HarnessError(f"{PROGRAM} is not installed")
    folder = Path(spec.origin).parent
    found: list[Mutant] = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] in LEFT_OUT or ".".join(parts) in LEFT_OUT:
            continue
        module = ".".join((PROGRAM, *(part for part in parts if part != "__init__")))
        paths = {
            place.partition(":")[2]: expressions
            for place, expressions in PATHS.items()
            if place.partition(":")[0] == module
        }
        found += mutants_of(module, path, paths)
    return tuple(found)


def sample(mutants: Sequence[Mutant], number: int, seed: int) -> tuple[Mutant, ...]:
    """So many of them by chance; with the same seed, a smaller sample is part of a larger one. Raises `UsageError`."""
    if number > len(mutants):
        raise UsageError(f"there are only {len(mutants)} mutants", hint=f"--mutants {len(mutants)} takes all of them")
    order = sorted(mutants, key=lambda one: one.key)
    random.Random(seed).shuffle(order)
    return tuple(order[:number])


def by_name(mutants: Sequence[Mutant], names: Iterable[str]) -> tuple[Mutant, ...]:
    """The mutants with these names. Raises `UnknownNameError`."""
    known = {one.name: one for one in mutants}
    for name in names:
        if name not in known:
            raise UnknownNameError("mutant", name, known)
    return tuple(known[name] for name in dict.fromkeys(names))
