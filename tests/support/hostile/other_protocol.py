"""A right Envoy, but for what it speaks to model servers: `python other_protocol.py http2|tls PORT EPP ENDPOINTS`."""

from __future__ import annotations

import sys

from reference_gateway import envoy
from reference_gateway.relay import BackendPool, Settings

TLS = {
    "name": "envoy.transport_sockets.tls",
    "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"},
}
right = envoy.bootstrap


def other(how: str, *arguments, **options) -> envoy.Message:
    document = right(*arguments, **options)
    for cluster in document["staticResources"]["clusters"]:
        if cluster["name"].endswith("-pool"):
            if how == "tls":
                cluster["transportSocket"] = TLS
            else:
                (protocol,) = cluster["typedExtensionProtocolOptions"].values()
                protocol["explicitHttpConfig"] = {"http2ProtocolOptions": {}}
    return document


if __name__ == "__main__":
    how, port, epp, endpoints = sys.argv[1:]
    envoy.bootstrap = lambda *arguments, **options: other(how, *arguments, **options)
    pool = BackendPool(epp=epp, endpoints=tuple(endpoints.split(",")))
    envoy.become(f"127.0.0.1:{port}", Settings(pools=(pool,)), envoy.Broken())
