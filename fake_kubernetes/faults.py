"""API trouble that lasts: what an emulator does wrong while it is told to. Single blows are methods of `Emulator`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Faults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Lasting faults; assign a new one to `Emulator.faults` to change them while clients are connected.

    `failing` holds the verbs (list, watch, get, create, update, patch, delete, discovery) that are answered with 500.
    `refuse_watch_list` answers a watch that asks for initial events with 422, as an API server without WatchList does.
    `delay` is seconds before every answer and before every batch of watch events. `paused` holds watch events back:
    watches stay open and silent, lists and gets go on.
    """

    failing: frozenset[str] = frozenset()
    refuse_watch_list: bool = False
    delay: float = 0.0
    paused: bool = False
