"""Judges of the data plane's side of the protocol (DP-*): one module per section of the document."""
