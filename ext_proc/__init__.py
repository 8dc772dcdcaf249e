"""The carrier of the Endpoint Picker Protocol: messages, HTTP/2 transport, gRPC framing and the record of a stream.

Nothing here knows what an endpoint picker should answer; that is the business of `conformance.judges`.
"""
