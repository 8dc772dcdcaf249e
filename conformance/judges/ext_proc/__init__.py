"""Judges of the carrier: the rules that Envoy's external processing service has for its servers (ENV-*)."""
