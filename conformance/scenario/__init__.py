"""Scenarios: what is sent to a target, and what must come back. Data in YAML, one file per section of the protocol."""
