"""Which scenario instances a run has, computed without I/O: for the runner, and again by a verifier of its report.

plan          selection, batches and the order of work; `make_plan`
epp           the traits of an endpoint picker
gateway       the traits of a gateway
fixed         what can be asked of a target whose endpoints are fixed
epp_scripts   what the EPPs do that a gateway asks
data_plane    which data plane carries the scenarios: the fake, or a real Envoy
envoy_limits  what a real Envoy can't be asked to do
"""
