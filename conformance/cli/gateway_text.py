"""The commented profile of a gateway that `profile init` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from conformance.cli.implementation_text import implementation


def gateway_text(
    name: str,
    command: Sequence[str],
    url: str | None,
    epp_listen: Sequence[str],
    endpoints: Sequence[str],
    model: str,
) -> str:
    """The profile of a gateway that `command` starts, or that runs at `url`. Values are JSON, which YAML reads."""
    lines = [
        "# A gateway under test of epp-conformance. `epp-conformance profile schema --role data-plane` has every key.",
        "role: data-plane",
        f"name: {json.dumps(name)}",
        *implementation(name),
    ]
    if command:
        lines += [
            "start:",
            "  # placeholders: {port}, {epp} (where its EPP listens), {endpoints} (its pool),",
        ]
        lines += ["  # {epp2} {endpoints2} (of a second pool) {binary} (--binary) {version} {workdir}", "  command:"]
        lines += [f"    - {json.dumps(word)}" for word in command]
    if url is not None:
        lines += [f"url: {json.dumps(url)}"]
    lines += ["backends:", "  - tls: self-signed # how it speaks to its EPP: plaintext, or TLS with any certificate"]
    if epp_listen:
        lines += [f"    epp: {json.dumps(epp_listen[0])} # where it expects the EPP; the suite listens there"]
    if endpoints:
        lines += [f"    endpoints: {json.dumps(list(endpoints))} # its pool; model servers are bound there"]
    lines += [
        "# subsetHeader: x-subset # a request header of which it makes the subset hint",
        "requests:",
        f"  model: {json.dumps(model)}",
        "  path: /v1/completions # routed to the pool",
        "  headers: {} # sent with every request; secrets go to secretHeaders",
        "claims: # how it was configured: no more is asked of it than that",
        "  # follows: header # where it reads the destination: header, metadata or either; it is tested for that",
        "  retries: 0 # how often it tries again after an attempt that failed",
        "  retryStatuses: [] # statuses of a model server that count as failed",
        "  failureMode: closed # without an EPP requests fail (closed), or are sent on (open)",
        "protocolVersions: [1.0.0] # what it claims; a claim that fails makes the exit code 1",
        "",
    ]
    return "\n".join(lines)
