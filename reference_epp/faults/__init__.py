"""Named faults, by section: each is the correct EPP with one rule broken. Importing this package declares them all."""

from reference_epp.faults import (
    bodies,
    destination,
    errors,
    headers,
    health,
    kept_state,
    paths,
    reading,
    reporter,
    reporter_layout,
    responses,
    sequence,
    streams,
    subset,
    subset_items,
    transparency,
)

__all__ = [
    "bodies",
    "destination",
    "errors",
    "headers",
    "health",
    "kept_state",
    "paths",
    "reading",
    "reporter",
    "reporter_layout",
    "responses",
    "sequence",
    "streams",
    "subset",
    "subset_items",
    "transparency",
]
