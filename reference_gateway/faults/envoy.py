"""Faults of a real Envoy: ways to configure it wrongly. What each changes is in `reference_gateway.envoy`."""
# fmt: off

from __future__ import annotations

from reference_gateway.fault import fault, variant

_LIST_TOO = {"DP-DEST-02": "of a list no more is seen than of one endpoint"}

fault("envoy-forwards-no-metadata", "DP-SRVD-01",
      "metadata_options has no forwarding_namespaces: the EPP sees no metadata at all", envoy="forwards-no-metadata")
fault("envoy-notes-no-endpoint", "DP-SRVD-01",
      "the load balancer has no selected_host_key, so the EPP is not told who served", envoy="notes-no-endpoint")
fault("envoy-notes-endpoint-elsewhere", "DP-SRVD-01",
      "selected_host_key names another key", envoy="notes-endpoint-elsewhere")
fault("envoy-takes-no-metadata", "DP-DEST-01",
      "metadata_options has no receiving_namespaces, and the load balancer reads the metadata",
      also=_LIST_TOO, claims={"follows": "metadata"}, envoy="takes-no-metadata")
fault("envoy-reads-another-header", "DP-DEST-01",
      "the load balancer reads the destination from a header that no EPP sets",
      also=_LIST_TOO, claims={"follows": "header"}, envoy="reads-another-header")
fault("envoy-mutations-not-allowed", "DP-DEST-01",
      "mutation_rules allow no change of headers, and the load balancer reads the header",
      also={**_LIST_TOO,
            "DP-ERR-01": "headers of an ImmediateResponse are changes of headers, too",
            "DP-EXTP-01": "so are those that the EPP sets beside the destination, which is warned of"},
      claims={"follows": "header"}, envoy="mutations-not-allowed")
fault("envoy-dials-the-header", "DP-DEST-02",
      "an ORIGINAL_DST cluster takes the header for one endpoint, and answers 503 to a list",
      claims={"follows": "header"}, envoy="dials-the-header")
fault("envoy-balances-subsets", "DP-DEST-02",
      "subset load balancing takes the metadata for one endpoint, and balances where it is a list",
      claims={"follows": "metadata"}, envoy="balances-subsets")
fault("envoy-keeps-the-clients-header", "DP-DEST-04",
      "nothing removes the client's destination header, which counts where the EPP gives none",
      effect="warn", envoy="keeps-the-clients-header")
fault("envoy-unasked-for-get", "DP-EXTP-01",
      "ext_proc is switched off on the route of GET requests",
      also={"DP-FAIL-01": "what is never asked about does not fail without an EPP either"}, envoy="unasked-for-get")
fault("envoy-retries-off", "DP-DEST-02",
      "the route has no retry policy, although retry is claimed", envoy="retries-off")
fault("envoy-errors-as-500", "DP-ERR-01",
      "local_reply_config makes 500 of every error", envoy="errors-as-500")
fault("envoy-error-page", "DP-ERR-01",
      "local_reply_config puts a page in the place of the EPP's words", envoy="error-page")
fault("envoy-hint-as-text", "DP-SUB-01",
      "header_to_metadata writes the subset as one string", envoy="hint-as-text")
fault("envoy-fails-open", "DP-FAIL-01",
      "failure_mode_allow is set, although the gateway is to fail closed", effect="warn", envoy="fails-open")
fault("envoy-fails-closed", "DP-FAIL-01",
      "failure_mode_allow is not set, although the gateway is to fail open",
      effect="warn", claims={"failureMode": "open"}, envoy="streamed")

variant("envoy",
        "a real Envoy, configured rightly, which removes the client's own header", envoy="right")
variant("envoy-streamed",
        "the same with bodies in step with the answers", envoy="streamed")
variant("envoy-open",
        "that one with failure_mode_allow, as configured", claims={"failureMode": "open"}, envoy="fails-open")
variant("envoy-impatient",
        "that one with message_timeout as it is by default, 0.2 s", envoy="impatient")
