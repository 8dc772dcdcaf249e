"""The profile of a fake model server with one deviation."""

from __future__ import annotations

from conformance.selftest.deviation import PROGRAM, Deviation
from conformance.targets.model_server import ModelServerProfile

ADAPTERS = ("tuned-a", "tuned-b")
"""What the fake model server has loaded."""

TIMEOUTS = {"answer": 6, "start": 30, "rest": 3}
"""Bounds that no fake needs, and no longer than needed."""

_SERVE = ("{python}", "-m", PROGRAM["model-server"], "serve")


def server_profile(deviation: Deviation) -> ModelServerProfile:
    """How the fake model server is started with this deviation, and what is claimed of it."""
    return ModelServerProfile.model_validate(
        {
            "role": "model-server",
            "name": deviation.name,
            "start": {"command": [*_SERVE, *deviation.flags, "--listen=127.0.0.1:{port}"]},
            "requests": {"model": "small-model"},
            "adapters": ADAPTERS,
            "protocolVersions": list(deviation.versions),
            "timeouts": TIMEOUTS,
            **deviation.claims,
        }
    )
