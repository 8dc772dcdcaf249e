"""Judges of the endpoint picker's side of the protocol (EPP-*): one module per section of the document."""
