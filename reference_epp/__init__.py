"""A small, readable, correct endpoint picker, to learn from and to test the suite with.

Where to read: `versions.py` says what each protocol version asks; `picker.py` chooses endpoints; `conversation.py`
holds one ext_proc stream, messages in, messages out; `endpoints.py` and `gauges.py` know the pool; `server.py` puts it
on the wire. `faults/` holds EPPs with one mistake, which the suite must catch, and `variants/` those that conform in
another way, which it must accept. Each is a subclass of one of these parts.

It shares the messages and the gRPC server (`ext_proc`) with the test harness and no rule of the protocol, not even the
names of headers: a mistake that both made would be invisible.
"""
