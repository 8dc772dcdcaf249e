"""The part of each commented profile that says who made the target."""

from __future__ import annotations

import json


def implementation(name: str) -> list[str]:
    """The lines of `implementation` in the profile of the target `name`; the vendor fills them in."""
    return [
        "implementation: # for reports that are submitted upstream",
        '  organization: ""',
        f"  project: {json.dumps(name)}",
        '  url: ""',
        '  version: ""',
        "  contact: []",
    ]
