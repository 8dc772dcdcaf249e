"""The status that a client is recorded to have got."""

from __future__ import annotations

import pytest

from fake_proxy.actions import ClientHeaders
from fake_proxy.client import Received


@pytest.mark.parametrize(("text", "status"), [(b"200", 200), (b"OK", 0), (b"", 0), (b"-1", 0)])
def test_a_status_that_an_epp_has_set(text: bytes, status: int) -> None:
    received = Received()
    assert received.status is None
    received.take(ClientHeaders([(b":status", text)], False))
    assert received.status == status
