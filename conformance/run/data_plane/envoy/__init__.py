"""A real Envoy as the data plane of a run: real HTTP requests go in, and the tap records what Envoy and target say.

plane.py     the tap, one Envoy for each configuration that is needed, and the pods' answers
exchange.py  one request through it, as it is recorded
limits.py    what scenarios ask for and a real Envoy can't do
"""

from conformance.planning.envoy_limits import beyond
from conformance.run.data_plane.envoy.plane import EnvoyDataPlane

__all__ = ["EnvoyDataPlane", "beyond"]
