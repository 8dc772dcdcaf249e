"""What is kept of a run, so that it can be judged again.

episode    the unit of evidence: one ordered log of what happened around some exchanges
store      `evidence.ndjson.gz`: one line per judged episode
packing    its file, packed by gzip or xz
redaction  secrets out of everything that is kept, before any digest
"""
