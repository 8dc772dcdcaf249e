"""Live traffic, judged: what the tap records becomes episodes, findings, metrics and transcripts.

    redaction.py   what is kept of an event, applied at capture
    gathering.py   the record cut into exchanges, with time-outs
    judging.py     one exchange judged, as it ended or as it hangs
    judge_process.py  the process in which that happens, and the bounded queue to it
    judge_worker.py   what that process does
    metrics.py     counts for Prometheus
    narrator.py    exchanges told as they happen, for `epp-conformance proxy`
    wording.py     findings as they are printed
    files.py       transcripts in files: written, read, judged again
    session.py     all of it together, for `epp-conformance tap`

No pool is observed here, and no HTTP side: rules that need them are not applied.
"""

from __future__ import annotations
