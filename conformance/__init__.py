"""Conformance suite for the Endpoint Picker Protocol: requirements, scenarios, runner, judges, report, faces.

The one idea: whatever happens becomes an *episode* (`conformance.evidence.episode`); pure *judges*
(`conformance.judges`) read it; their *findings* (`conformance.verdict`) are rolled up by requirement into a *report*
(`conformance.report`).
"""
