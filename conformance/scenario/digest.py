"""The digest of a set of scenarios: which ones, and what each does and expects. Comments and places do not count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from conformance.scenario.loader import Instance


def scenarios_digest(instances: Iterable[Instance]) -> str:
    """SHA-256, in hex, of the instances' ids, sections, roles and contents, whatever their order."""
    rows = sorted(
        [one.id, one.section, one.role, one.scenario.model_dump(mode="json", by_alias=True, exclude_unset=True)]
        for one in instances
    )
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
