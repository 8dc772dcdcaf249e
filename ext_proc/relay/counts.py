"""What a tap counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counts:
    """What the tap has done since it started."""

    connections: int = 0
    streams: int = 0
    """`Process` streams."""
    other_calls: int = 0
    """Health checks and whatever else was called."""
    bytes_to_epp: int = 0
    bytes_to_data_plane: int = 0
    unreachable: int = 0
    """Connections cut because the EPP could not be reached."""
    unopened: int = 0
    """Connections of data planes that were cut: no TLS could be agreed on, or something else than HTTP/2 was spoken."""
    lost: int = 0
    """Streams that were open when the connection to the EPP broke."""
    refused: int = 0
    """Streams that the EPP took not: it takes no more at a time, or leaves."""
    recorded: int = 0
    sampled_out: int = 0
    declined: int = 0
    """Streams not recorded because the reader was behind."""
    ended_early: int = 0
    """Streams whose recording ended at a limit."""
    failures: int = 0
    """Streams whose recording failed."""
    unfinished: int = 0
    """Bytes held now in messages that are not complete."""
