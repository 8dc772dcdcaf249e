"""Conforming variants: EPPs that keep the protocol in another way. Importing this package declares them all."""

from reference_epp.variants import answering, choosing, reporter, streaming

__all__ = ["answering", "choosing", "reporter", "streaming"]
