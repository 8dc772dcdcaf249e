"""The bridge to a container: which addresses pods get, and what the kernel is asked."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.targets import bridge
from conformance.targets.bridge import add_address, make_local, pod_block

networks = st.builds(
    lambda address, prefix: ipaddress.IPv4Network((address, prefix), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(8, 29),
)


def test_the_upper_end_of_docker_s_usual_network():
    assert str(pod_block(ipaddress.IPv4Network("172.18.0.0/16"))) == "172.18.255.0/24"


@given(networks)
def test_pods_have_room_at_the_upper_end_of_any_subnet(subnet):
    block = pod_block(subnet)
    assert block.subnet_of(subnet)
    assert block.broadcast_address == subnet.broadcast_address
    assert block.num_addresses <= max(256, subnet.num_addresses // 2)
    gateway, container = subnet[1], subnet[2]
    assert gateway not in block
    assert container not in block or subnet.num_addresses == 8
    assert len(list(block.hosts())) >= 2


def test_an_interface_that_is_not_there():
    with pytest.raises(OSError, match=r"no interface with this name|No such device"):
        make_local(ipaddress.IPv4Network("198.51.100.0/24"), "no-such-bridge")


def test_the_kernel_s_refusal_is_told(monkeypatch):
    monkeypatch.setattr(bridge.socket, "if_nametoindex", lambda _: 2**30)
    with pytest.raises(OSError, match=r"No such device|not permitted"):
        make_local(ipaddress.IPv4Network("198.51.100.0/24"), "gone")
    with pytest.raises(OSError, match=r"No such device|not permitted"):
        add_address(ipaddress.IPv6Address("2001:db8::1"), "gone")


def test_systems_without_rtnetlink_can_t(monkeypatch):
    monkeypatch.setattr(bridge.sys, "platform", "darwin")
    with pytest.raises(OSError, match="not implemented"):
        make_local(ipaddress.IPv4Network("198.51.100.0/24"), "lo")
