"""What holds for all tests: no example of a property is failed for the time that it takes."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")
