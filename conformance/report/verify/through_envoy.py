"""Whether an exchange went through a real Envoy: far less is asked of one than of one through our own data plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.report.verify.course import is_gone
from ext_proc.record import ClientAborted, ClientResponse, Entry, StreamOpened

_OF_OUR_OWN = "via_upstream"
"""Details that only our own data plane writes."""


def problems(entries: Sequence[Entry], *, ended_early: bool) -> Iterator[str]:
    """What speaks against the `entries` of an exchange being those of a real Envoy.

    Where it answers without asking the EPP, the log says that this is trouble.
    """
    events = [entry.event for entry in entries]
    if any(isinstance(one, ClientResponse) and one.details == _OF_OUR_OWN for one in events):
        yield "its response did not come from the Envoy of the report's topology"
    asked = any(isinstance(one, StreamOpened) or is_gone(one) for one in events)
    if not (asked or ended_early or any(isinstance(one, ClientAborted) for one in events)):
        yield "the EPP was not asked, and its connection was not lost"
