"""A small gateway, right by default, with named faults: for the suite of role data-plane to be tried on.

    python -m reference_gateway --listen 127.0.0.1:8080 --epp 127.0.0.1:9002 --endpoints 10.0.0.1:8000,10.0.0.2:8000
    python -m reference_gateway --fault error-as-500 …

It knows nothing of the fake Envoy: a request is taken whole, the EPP is asked, and the model servers are tried in
turn, in code that can be read in one sitting. `http` serves clients, `epp_client` is the conversation with an EPP,
`relay` what is done with a request, `faults` what is done wrongly; `envoy` becomes a real Envoy, configured wrongly.
"""
