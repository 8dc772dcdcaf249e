"""How much a load may be asked for, by a flag or in its file."""

from __future__ import annotations

MAX_RATE = 200_000
"""Requests a second."""

MAX_AT_ONCE = 50_000
"""Requests that are to be under way at a time, or to begin at once."""
