"""Faults of a real Envoy: ways to configure it wrongly. What each changes is in `reference_gateway.envoy`."""

from __future__ import annotations

from reference_gateway.fault import Fault

_LIST_TOO = {"DP-DEST-02": "of a list no more is seen than of one endpoint"}

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="envoy-forwards-no-metadata",
        why="metadata_options has no forwarding_namespaces: the EPP sees no metadata at all",
        breaks="DP-SRVD-01",
        envoy="forwards-no-metadata",
    ),
    Fault(
        name="envoy-notes-no-endpoint",
        why="the load balancer has no selected_host_key, so the EPP is not told who served",
        breaks="DP-SRVD-01",
        envoy="notes-no-endpoint",
    ),
    Fault(
        name="envoy-notes-endpoint-elsewhere",
        why="selected_host_key names another key",
        breaks="DP-SRVD-01",
        envoy="notes-endpoint-elsewhere",
    ),
    Fault(
        name="envoy-takes-no-metadata",
        why="metadata_options has no receiving_namespaces, and the load balancer reads the metadata",
        breaks="DP-DEST-01",
        also_breaks=_LIST_TOO,
        claims={"follows": "metadata"},
        envoy="takes-no-metadata",
    ),
    Fault(
        name="envoy-reads-another-header",
        why="the load balancer reads the destination from a header that no EPP sets",
        breaks="DP-DEST-01",
        also_breaks=_LIST_TOO,
        claims={"follows": "header"},
        envoy="reads-another-header",
    ),
    Fault(
        name="envoy-mutations-not-allowed",
        why="mutation_rules allow no change of headers, and the load balancer reads the header",
        breaks="DP-DEST-01",
        also_breaks={
            **_LIST_TOO,
            "DP-ERR-01": "headers of an ImmediateResponse are changes of headers, too",
            "DP-EXTP-01": "so are those that the EPP sets beside the destination, which is warned of",
        },
        claims={"follows": "header"},
        envoy="mutations-not-allowed",
    ),
    Fault(
        name="envoy-dials-the-header",
        why="an ORIGINAL_DST cluster takes the header for one endpoint, and answers 503 to a list",
        breaks="DP-DEST-02",
        claims={"follows": "header"},
        envoy="dials-the-header",
    ),
    Fault(
        name="envoy-balances-subsets",
        why="subset load balancing takes the metadata for one endpoint, and balances where it is a list",
        breaks="DP-DEST-02",
        claims={"follows": "metadata"},
        envoy="balances-subsets",
    ),
    Fault(
        name="envoy-keeps-the-clients-header",
        why="nothing removes the client's destination header, which counts where the EPP gives none",
        breaks="DP-DEST-04",
        effect="warn",
        envoy="keeps-the-clients-header",
    ),
    Fault(
        name="envoy-unasked-for-get",
        why="ext_proc is switched off on the route of GET requests",
        breaks="DP-EXTP-01",
        also_breaks={"DP-FAIL-01": "what is never asked about does not fail without an EPP either"},
        envoy="unasked-for-get",
    ),
    Fault(
        name="envoy-retries-off",
        why="the route has no retry policy, although retry is claimed",
        breaks="DP-DEST-02",
        envoy="retries-off",
    ),
    Fault(
        name="envoy-errors-as-500",
        why="local_reply_config makes 500 of every error",
        breaks="DP-ERR-01",
        envoy="errors-as-500",
    ),
    Fault(
        name="envoy-error-page",
        why="local_reply_config puts a page in the place of the EPP's words",
        breaks="DP-ERR-01",
        envoy="error-page",
    ),
    Fault(
        name="envoy-hint-as-text",
        why="header_to_metadata writes the subset as one string",
        breaks="DP-SUB-01",
        envoy="hint-as-text",
    ),
    Fault(
        name="envoy-fails-open",
        why="failure_mode_allow is set, although the gateway is to fail closed",
        breaks="DP-FAIL-01",
        effect="warn",
        envoy="fails-open",
    ),
    Fault(
        name="envoy-fails-closed",
        why="failure_mode_allow is not set, although the gateway is to fail open",
        breaks="DP-FAIL-01",
        effect="warn",
        claims={"failureMode": "open"},
        envoy="streamed",
    ),
)

VARIANTS: tuple[Fault, ...] = (
    Fault(name="envoy", why="a real Envoy, configured rightly, which removes the client's own header", envoy="right"),
    Fault(name="envoy-streamed", why="the same with bodies in step with the answers", envoy="streamed"),
    Fault(
        name="envoy-open",
        why="that one with failure_mode_allow, as configured",
        claims={"failureMode": "open"},
        envoy="fails-open",
    ),
    Fault(name="envoy-impatient", why="that one with message_timeout as it is by default, 0.2 s", envoy="impatient"),
)
