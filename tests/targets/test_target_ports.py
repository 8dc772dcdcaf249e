"""Ports for targets: what one run was given no other run gets, though nothing listens there yet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from conformance.targets import ports
from conformance.targets.ports import KEPT, LOOPBACK, PortTakenError, free_port, free_ports, hold

ANOTHER_RUN = "import conformance.targets.ports as own; print(own.free_ports(1)[0], flush=True); input()"


@pytest.fixture
def offered(monkeypatch) -> list[int]:
    """Ports that the kernel is to offer next, last one first."""
    found: list[int] = []

    class Socket(socket.socket):
        def bind(self, where):
            super().bind((where[0], found.pop()) if found and not where[1] else where)

    monkeypatch.setattr(ports.socket, "socket", Socket)
    return found


@pytest.mark.program
def test_the_port_of_another_run_is_not_given_out_until_that_run_has_ended(offered: list[int]) -> None:
    another = subprocess.Popen(
        [sys.executable, "-c", ANOTHER_RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    port = int(another.stdout.readline())
    offered.append(port)
    assert free_port(LOOPBACK) != port
    assert not offered, "it was looked at"
    another.communicate("\n", timeout=30)
    offered.append(port)
    assert free_port(LOOPBACK) == port


def test_ports_differ_and_can_be_listened_on() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        with socket.create_server((LOOPBACK, port)):
            pass


@pytest.mark.skipif(not ports.LINUX, reason="elsewhere the UDP port is the sign")
def test_a_gateway_with_http3_gets_the_udp_port_too() -> None:
    port = free_port(LOOPBACK)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as http3:
        http3.bind((LOOPBACK, port))
    with pytest.raises(PortTakenError):
        hold(LOOPBACK, port)


def test_a_port_is_free_again_after_many_others() -> None:
    port = free_port(LOOPBACK)
    with pytest.raises(PortTakenError):
        hold(LOOPBACK, port)
    free_ports(KEPT)
    os.close(hold(LOOPBACK, port))
