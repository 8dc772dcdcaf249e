"""What each version of the Endpoint Picker Protocol asks of an EPP, as data.

The versions are no ladder: the fallback key and the 404 came and went. What is the same in all of them (header and
metadata, errors as ImmediateResponse where the text leaves the form open, health checks) is not listed here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One protocol version: the features whose presence differs between versions."""

    name: str
    subset: bool
    """Section Endpoint Subset: the data plane may limit the choice."""
    fallback_key: bool
    """Section Destination endpoint fallback: one more endpoint under another metadata key."""
    lists: bool
    """Section Destination Endpoint: several endpoints, separated by commas, best first."""
    models: bool
    """Section Matching An InferenceModel: a request for an unknown model gets a 404."""
    served: bool
    """Section Destination Endpoint Served: the data plane says which endpoint served."""


VERSIONS = {
    version.name: version
    for version in (
        Version(name="0.2.0", subset=False, fallback_key=False, lists=False, models=False, served=False),
        Version(name="0.3.0", subset=True, fallback_key=True, lists=False, models=True, served=False),
        Version(name="0.4.0", subset=True, fallback_key=False, lists=True, models=True, served=False),
        Version(name="1.0.0", subset=True, fallback_key=False, lists=True, models=False, served=True),
        Version(name="next", subset=True, fallback_key=False, lists=True, models=False, served=True),
    )
}
