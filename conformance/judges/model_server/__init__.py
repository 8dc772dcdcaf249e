"""Judges of role model-server: one module per section of the model server protocol."""
