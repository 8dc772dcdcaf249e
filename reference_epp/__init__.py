"""A small, readable, correct endpoint picker, to learn from and to test the suite with.

Where to read: `versions.py` says what each protocol version asks; `picker.py` chooses endpoints; `conversation.py`
holds one ext_proc stream, messages in, messages out; `endpoints.py` and `gauges.py` know the pool; `server.py` puts it
on the wire. `faults/` and `variants/` hold named deviations, each one a subclass of one of these parts: wrong ones that
the suite must catch, and odd but right ones that it must accept.

It shares no logic with the test harness, not even the names of headers: a bug that both had would be invisible.
"""
