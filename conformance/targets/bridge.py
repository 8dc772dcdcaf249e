"""The bridge between the suite and a container with a network of its own.

The engine's bridge has an address on this machine, its gateway, which the container reaches: there the emulated
Kubernetes API listens. Each pod needs an address of its own, as in a cluster: the upper end of the bridge's subnet is
made local to this machine (one route of type `local`, which needs CAP_NET_ADMIN and vanishes with the bridge). Without
that right the pods share the gateway's address and have a port each, which Kubernetes discovery can't express.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.targets.containers import call, connect, explained, labels

if TYPE_CHECKING:
    import docker

_RTM_NEWROUTE = 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE = 0x1, 0x4, 0x400
_NLMSG_ERROR = 2
_RTA_DST, _RTA_OIF = 1, 4
_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL = 255, 4, 254, 2


@dataclass(frozen=True, slots=True)
class Bridge:
    """A network of the engine. Make one with `open_bridge`; `close` removes it when its containers are gone."""

    client: docker.DockerClient
    id: str
    gateway: str
    """This machine's address in it."""
    pods: tuple[str, ...]
    """Addresses for pods; the gateway's alone if the suite may not have more."""

    async def close(self) -> None:
        """Remove it, and its addresses with it."""
        with explained("removing the network"):
            await call(self.client.api.remove_network, self.id)
        self.client.close()


async def open_bridge(*, kubernetes: bool) -> Bridge:
    """A new network. Raises `UsageError` if the engine's bridges are not on this machine, or if the target learns its
    pool from Kubernetes and pods can't have addresses of their own.
    """
    client = await connect()
    made: list[str] = []
    try:
        return await call(_open, client, made, kubernetes)
    except BaseException:
        for one in made:
            await call(client.api.remove_network, one)
        client.close()
        raise


def _open(client: docker.DockerClient, made: list[str], kubernetes: bool) -> Bridge:
    with explained("making a network"):
        name = f"epp-conformance-{os.getpid()}-{os.urandom(4).hex()}"
        network = client.api.create_network(name, driver="bridge", labels=labels(), check_duplicate=True)
        made.append(network["Id"])
        addresses = client.api.inspect_network(network["Id"])["IPAM"]["Config"][0]
    gateway, subnet = addresses["Gateway"], ipaddress.IPv4Network(addresses["Subnet"])
    _must_be_here(gateway)
    block = pod_block(subnet)
    try:
        make_local(block, f"br-{network['Id'][:12]}")
        pods = tuple(str(host) for host in block.hosts())
    except OSError as problem:
        if kubernetes:
            raise UsageError(
                f"in a bridge network every pod needs an address of its own, and this user may not add any "
                f"({problem.strerror})",
                hint="say `start.network: host` in the profile, or run the suite as root",
            ) from problem
        pods = (gateway,)
    return Bridge(client, network["Id"], gateway, pods)


def pod_block(subnet: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The upper end of a subnet: 254 addresses, or half of it. Containers get theirs from the lower end."""
    prefix = max(24, subnet.prefixlen + 1)
    return ipaddress.IPv4Network((int(subnet.broadcast_address) >> (32 - prefix) << (32 - prefix), prefix))


def make_local(block: ipaddress.IPv4Network, interface: str) -> None:
    """Let this machine answer for every address of `block` on `interface`, as `ip route add local BLOCK dev INTERFACE`.

    Raises `OSError`: EPERM without CAP_NET_ADMIN, ENODEV without that interface, ENOSYS where there is no rtnetlink.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    index = socket.if_nametoindex(interface)
    route = struct.pack(
        "=8BI",
        *(socket.AF_INET, block.prefixlen, 0, 0),
        *(_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL),
        0,
    )
    attributes = struct.pack("=HH4s", 8, _RTA_DST, block.network_address.packed)
    attributes += struct.pack("=HHI", 8, _RTA_OIF, index)
    flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
    length = 16 + len(route) + len(attributes)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("=IHHII", length, _RTM_NEWROUTE, flags, 1, 0) + route + attributes)
        answer = kernel.recv(4096)
    kind, code = struct.unpack_from("=4xH10xi", answer)
    if kind != _NLMSG_ERROR or code:
        raise OSError(-code, os.strerror(-code))


def _must_be_here(gateway: str) -> None:
    try:
        with socket.socket() as sock:
            sock.bind((gateway, 0))
    except OSError as problem:
        raise UsageError(
            f"the container engine's bridge ({gateway}) is not on this machine: its containers can't reach the suite",
            hint="Docker Desktop, rootless and remote engines keep their networks to themselves: run the suite where "
            "the engine runs, or start the target there and give --epp HOST:PORT",
        ) from problem
