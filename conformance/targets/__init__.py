"""Targets: the systems under test, how they are started, reached and told of their pool."""
