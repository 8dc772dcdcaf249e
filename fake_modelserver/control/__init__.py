"""Control of a fleet over HTTP, for harnesses in other languages: an API of JSON, described at /openapi.json."""

from __future__ import annotations

from fake_modelserver.control.recorder import Recorder
from fake_modelserver.control.server import Control

__all__ = ["Control", "Recorder"]
