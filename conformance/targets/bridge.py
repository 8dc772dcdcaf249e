"""The bridge between the suite and a container with its own network.

The engine's bridge has an address on this machine, its gateway, which the container reaches: there the emulated
Kubernetes API listens. Each pod needs its own address, as in a cluster: the upper end of the bridge's subnet is
made local to this machine (one route of type `local`, which needs CAP_NET_ADMIN and vanishes with the bridge). Without
that right the pods share the gateway's address and have a port each, which Kubernetes discovery can't express. IPv6
pods share one address and have a port each in any case, as they do on the loopback interface.
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
from fake_modelserver import has_ipv6_loopback

if TYPE_CHECKING:
    import docker

_RTM_NEWADDR, _RTM_NEWROUTE = 20, 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE = 0x1, 0x4, 0x400
_NLMSG_ERROR = 2
_RTA_DST, _RTA_OIF = 1, 4
_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL = 255, 4, 254, 2
_IFA_ADDRESS, _IFA_F_NODAD, _RT_SCOPE_UNIVERSE = 1, 2, 0


OUR_HOST = 0xFFFF
"""Which IPv6 address of the bridge's network is ours; the engine counts from 1."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A network of the engine. Make one with `open_bridge`; `close` removes it when its containers are gone."""

    client: docker.DockerClient
    id: str
    gateway: str
    """This machine's address in it."""
    pods: tuple[str, ...]
    """Addresses for pods; the gateway's alone if the suite may not have more."""
    ipv6: str | None
    """An IPv6 address of this machine in it, if the suite may have one."""

    async def close(self) -> None:
        """Remove it, and its addresses with it."""
        with explained("removing the network"):
            await call(self.client.api.remove_network, self.id)
        self.client.close()


async def open_bridge(*, kubernetes: bool) -> Bridge:
    """A new network. Raises `UsageError` if the engine's bridges are not on this machine, or if the target learns its
    pool from Kubernetes and pods can't have their own addresses.
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
    name = f"epp-conformance-{os.getpid()}-{os.urandom(4).hex()}"
    with explained("making a network"):
        private = _private_network() if has_ipv6_loopback() else None
        made.append(_create(client, name, private))
        addresses = client.api.inspect_network(made[0])["IPAM"]["Config"]
    subnet, gateway = next((ipaddress.IPv4Network(a["Subnet"]), a["Gateway"]) for a in addresses if "." in a["Subnet"])
    _must_be_here(gateway)
    interface = f"br-{made[0][:12]}"
    try:
        block = pod_block(subnet)
        make_local(block, interface)
        pods = tuple(str(host) for host in block.hosts())
        ipv6 = None
        if private is not None:
            add_address(private[OUR_HOST], interface)
            ipv6 = str(private[OUR_HOST])
    except OSError as problem:
        if kubernetes:
            raise UsageError(
                f"in a bridge network every pod needs its own address, and this user may not add any "
                f"({problem.strerror})",
                hint="say `start.network: host` in the profile, or run the suite as root",
            ) from problem
        pods, ipv6 = (gateway,), None
    return Bridge(client, made[0], gateway, pods, ipv6)


def _create(client: docker.DockerClient, name: str, private: ipaddress.IPv6Network | None) -> str:
    from docker.types import IPAMConfig, IPAMPool

    ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=str(private))]) if private is not None else None
    made = client.api.create_network(
        name, driver="bridge", labels=labels(), ipam=ipam, enable_ipv6=private is not None, check_duplicate=True
    )
    return str(made["Id"])


def _private_network() -> ipaddress.IPv6Network:
    """A random unique local network (RFC 4193)."""
    return ipaddress.IPv6Network((b"\xfd" + os.urandom(5) + bytes(10), 64))


def pod_block(subnet: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The upper end of a subnet: 254 addresses, or half of it. Containers get theirs from the lower end."""
    prefix = max(24, subnet.prefixlen + 1)
    return ipaddress.IPv4Network((int(subnet.broadcast_address) >> (32 - prefix) << (32 - prefix), prefix))


def make_local(block: ipaddress.IPv4Network, interface: str) -> None:
    """Let this machine answer for every address of `block` on `interface`, as `ip route add local BLOCK dev INTERFACE`.

    Raises `OSError`: EPERM without CAP_NET_ADMIN, ENODEV without that interface, ENOSYS where there is no rtnetlink.
    """
    route = struct.pack(
        "=8BI",
        *(socket.AF_INET, block.prefixlen, 0, 0),
        *(_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL),
        0,
    )
    route += struct.pack("=HH4s", 8, _RTA_DST, block.network_address.packed)
    _ask_kernel(_RTM_NEWROUTE, route + struct.pack("=HHI", 8, _RTA_OIF, socket.if_nametoindex(interface)))


def add_address(address: ipaddress.IPv6Address, interface: str) -> None:
    """As `ip address add ADDRESS/128 dev INTERFACE nodad`: usable at once. Raises `OSError`, as `make_local`."""
    index = socket.if_nametoindex(interface)
    order = struct.pack("=4BI", socket.AF_INET6, 128, _IFA_F_NODAD, _RT_SCOPE_UNIVERSE, index)
    _ask_kernel(_RTM_NEWADDR, order + struct.pack("=HH16s", 20, _IFA_ADDRESS, address.packed))


def _ask_kernel(kind: int, order: bytes) -> None:
    """One message to rtnetlink, and its answer."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(order), kind, flags, 1, 0) + order)
        answer = kernel.recv(4096)
    sort, code = struct.unpack_from("=4xH10xi", answer)
    if sort != _NLMSG_ERROR or code:
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
