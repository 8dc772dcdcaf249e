"""Named faults, by section: each is the correct EPP with one rule broken. Importing this package declares them all."""

from reference_epp.faults import (
    bodies,
    destination,
    errors,
    headers,
    health,
    reporter,
    responses,
    sequence,
    streams,
    subset,
    transparency,
)

__all__ = [
    "bodies",
    "destination",
    "errors",
    "headers",
    "health",
    "reporter",
    "responses",
    "sequence",
    "streams",
    "subset",
    "transparency",
]
