"""The request attribute reporter: tell the data plane a number that is computed from a response's `usage`.

`config.py` reads the configuration, `usage.py` finds the usage in a response, `attributes.py` computes the values.
"""
