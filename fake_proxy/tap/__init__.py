"""The tap: ext_proc passed on between any data plane and any EPP, unchanged, and recorded on the way.

leg.py     a connection whose flow control is that of the other side
relay.py   streams and connections passed on
watch.py   what is written into the record
server.py  the listener
"""

from __future__ import annotations

from fake_proxy.tap.counts import Counts
from fake_proxy.tap.server import Tap, open_tap
from fake_proxy.tap.watch import Limits, Recording, RecordingEnded

__all__ = ["Counts", "Limits", "Recording", "RecordingEnded", "Tap", "open_tap"]
