"""Bytes that no data plane sends, as another HTTP/2 implementation reads them."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.exceptions
import pytest

from conformance.planning.injections import MALFORMED
from ext_proc.http2 import frames

pytestmark = pytest.mark.program

LEGAL = {"http2-unknown-frame"}


@pytest.mark.parametrize("name", sorted(name for name, one in MALFORMED.items() if one.layer == "http2"))
def test_another_http2_implementation_rejects_malformed_bytes(name: str) -> None:
    client = h2.connection.H2Connection()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    server.receive_data(client.data_to_send())

    def receive() -> None:
        server.receive_data(MALFORMED[name].raw)
        server.receive_data(frames.frame(0x77, 0, 0, b"as much as a message with a body has"))

    if name in LEGAL:
        receive()
    else:
        with pytest.raises(h2.exceptions.ProtocolError):
            receive()
