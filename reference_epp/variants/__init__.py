"""Conforming variants: EPPs that keep the protocol in another way. Importing this package declares them all."""

from reference_epp.variants import answering, choosing, events, keeping, reading, refusing, reporter, streaming, workers

__all__ = ["answering", "choosing", "events", "keeping", "reading", "refusing", "reporter", "streaming", "workers"]
