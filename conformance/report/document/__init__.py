"""`report.json`: the canonical document, what it is made of, and how it is read back.

model      the document, and its JSON Schema
build      a run's outcome becomes the document
blocks     suite, catalogue, target, surroundings, evidence
rows       scenarios, requirements, versions
canonical  the bytes that are hashed, and strict reading
failures   what needs a reader's attention, and where
waivers    known failures that change the exit code, never a verdict
ai_gateway with which configurations of Envoy AI Gateway a target would work
"""
