"""The tap: ext_proc passed on between any data plane and any EPP, unchanged, and recorded on the way.

leg.py     a connection whose flow control is that of the other side
relay.py   streams and connections passed on
watch.py   what is written into the record
server.py  the listener
"""

from __future__ import annotations

from ext_proc.relay.counts import Counts
from ext_proc.relay.server import Tap, open_tap
from ext_proc.relay.watch import Recording, RecordingEnded, RecordingLimits

__all__ = ["Counts", "Recording", "RecordingEnded", "RecordingLimits", "Tap", "open_tap"]
