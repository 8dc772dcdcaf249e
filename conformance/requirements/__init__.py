"""The catalogue of what the protocol requires: data in YAML, one file per area, read by `catalogue`."""
