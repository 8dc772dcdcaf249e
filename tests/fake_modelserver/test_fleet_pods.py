"""Pods come, refuse, come back and go; addresses; what the listener hears; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fake_modelserver import (
    Addresses,
    AddressTakenError,
    AddressUnavailableError,
    Fleet,
    FleetStoppedError,
    PodExistsError,
    PodSpec,
    Reply,
    UnknownPodError,
    has_ipv6_loopback,
    has_loopback_block,
)

own_addresses = pytest.mark.skipif(not has_loopback_block(), reason="this system has only 127.0.0.1")


def refuses(pod) -> bool:
    address = pod.addresses[0]
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as sock:
        return sock.connect_ex((address.host, address.port)) != 0


def open_sockets() -> set[str]:
    descriptors = Path("/proc/self/fd")
    found = set()
    for descriptor in descriptors.iterdir() if descriptors.is_dir() else ():
        with contextlib.suppress(OSError):
            found.add(str(descriptor.readlink()))
    return {target for target in found if target.startswith("socket:")}


@own_addresses
def test_every_pod_has_its_own_address_and_the_same_port(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pods = [await fleet.add(PodSpec(name=f"pod-{number}")) for number in range(200)]
            hosts = [pod.addresses[0].host for pod in pods]
            assert len(set(hosts)) == 200
            assert len({host.rpartition(".")[0] for host in hosts}) == 1
            assert len({pod.addresses[0].port for pod in pods}) == 1
            for pod in pods:
                answer = await client.post(
                    f"http://{pod.endpoint}/v1/completions", json={"model": "fake-model", "prompt": "x"}
                )
                assert answer.json()["choices"][0]["text"] == f"This answer comes from pod {pod.name}."
            assert fleet.at(pods[7].endpoint) is pods[7]
            assert fleet.at("192.0.2.1:8000") is None

    run(scenario())


@own_addresses
def test_more_pods_than_a_block_holds_and_addresses_are_reused_last():
    addresses = Addresses()
    try:
        taken = [addresses.take() for _ in range(253)]
        addresses.give_back(taken[0])
        assert addresses.take() == taken[0]
        other = addresses.take()
        assert other.host.rpartition(".")[0] != taken[0].host.rpartition(".")[0]
        addresses.give_back(other)
        assert addresses.take() != other
    finally:
        addresses.close()


@pytest.mark.program
@own_addresses
def test_two_processes_have_different_blocks():
    """The neighbour begins its search where we do; the claim makes it go on."""
    script = (
        "import os, sys; os.getpid = lambda: int(sys.argv[1]);"
        "from fake_modelserver import Addresses; print(Addresses().take().host)"
    )
    addresses = Addresses()
    try:
        ours = addresses.take().host
        command = [sys.executable, "-c", script, str(os.getpid())]
        theirs = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()
    finally:
        addresses.close()
    assert theirs.startswith("127.")
    assert theirs.rpartition(".")[0] != ours.rpartition(".")[0]


@own_addresses
def test_a_listener_on_every_address_moves_the_fleet_or_is_named(run):
    """Not on 8000: another process of this machine may need it while the test runs."""
    with socket.socket() as wildcard:
        wildcard.bind(("0.0.0.0", 0))
        wildcard.listen()
        port = wildcard.getsockname()[1]
        only = Addresses(port=port)
        with pytest.raises(AddressTakenError, match=rf"127\.\d+\.\d+\.254:{port} is taken.*0\.0\.0\.0:{port}"):
            only.take()
        other = Addresses()
        other._ports = (port, 0)
        assert other.take().port == 0
        other.close()


def test_pods_that_share_an_address_have_ports_of_their_own(run):
    async def scenario():
        async with Fleet(mode="shared") as fleet:
            first = await fleet.add(PodSpec(name="a"))
            second = await fleet.add(PodSpec(name="b"))
            nobody = fleet.allocate()
            assert first.addresses[0].host == second.addresses[0].host == nobody.host == "127.0.0.1"
            assert len({first.endpoint, second.endpoint, str(nobody)}) == 3
            with socket.socket() as sock:
                assert sock.connect_ex((nobody.host, nobody.port)) != 0
            late = await fleet.add(PodSpec(name="c", address=nobody.host, ports=(nobody.port,)))
            assert late.endpoint == str(nobody)

    run(scenario())


@pytest.mark.skipif(not has_ipv6_loopback(), reason="this system has no ::1")
def test_ipv6(run):
    async def scenario():
        async with Fleet(mode="ipv6") as fleet, httpx.AsyncClient() as client:
            pods = [await fleet.add(PodSpec(name=name)) for name in "ab"]
            assert all(pod.endpoint.startswith("[::1]:") for pod in pods)
            assert pods[0].endpoint != pods[1].endpoint
            assert (await client.get(f"http://{pods[1].endpoint}/health")).status_code == 200

    run(scenario())


def test_several_ports(run):
    async def scenario():
        async with Fleet(mode="shared", on_request=(heard := []).append) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a", address="127.0.0.1", ports=(0, 0)))
            assert len(set(pod.endpoints)) == 2
            for endpoint in pod.endpoints:
                assert (await client.get(f"http://{endpoint}/health")).status_code == 200
            assert [served.endpoint for served in heard] == list(pod.endpoints)
            assert pod.served == 2

    run(scenario())


def test_a_pod_refuses_and_comes_back_on_its_address(run, connect):
    async def scenario():
        arrived = asyncio.Event()
        async with Fleet(on_request=lambda _: arrived.set()) as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            other = await fleet.add(PodSpec(name="b"))
            client = await connect(pod)
            name, value = Reply(delay=3600).to_header()
            await client.send(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            await arrived.wait()
            endpoint = pod.endpoint
            await pod.refuse()
            await pod.refuse()
            assert (pod.accepting, pod.connections) == (False, 0)
            assert refuses(pod)
            assert not refuses(other)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await client.head()
            client.close()
            await pod.accept()
            await pod.accept()
            assert pod.endpoint == endpoint
            again = await connect(pod)
            await again.send(b"GET /health HTTP/1.1\r\n\r\n")
            assert (await again.head()).startswith(b"HTTP/1.1 200")
            again.close()

    run(scenario())


def test_a_taken_address_is_named_with_what_to_do(run):
    async def scenario():
        async with Fleet(mode="shared") as fleet:
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                other.listen()
                port = other.getsockname()[1]
                with pytest.raises(AddressTakenError) as caught:
                    await fleet.add(PodSpec(name="a", address="127.0.0.1", ports=(0, port)))
            assert (caught.value.address, caught.value.port, caught.value.code) == ("127.0.0.1", port, "address-taken")
            assert f"127.0.0.1:{port} is taken by another socket" in str(caught.value)
            assert "choose another address or port" in caught.value.hint
            assert not fleet.pods
            for address in ("203.0.113.1", "not-an-address"):
                with pytest.raises(AddressUnavailableError, match=f"{address}:8000 cannot be bound"):
                    await fleet.add(PodSpec(name="a", address=address))
            assert (await fleet.add(PodSpec(name="a"))).accepting

    run(scenario())


def test_names_are_unique_and_known(run):
    async def scenario():
        fleet = Fleet()
        with pytest.raises(FleetStoppedError, match="not running"):
            await fleet.add(PodSpec(name="a"))
        await fleet.start()
        await fleet.start()
        pod = await fleet.add(PodSpec(name="a"))
        with pytest.raises(PodExistsError, match="'a'"):
            await fleet.add(PodSpec(name="a"))
        with pytest.raises(UnknownPodError, match=r"no pod 'b' in the fleet\. Pods now: a"):
            await fleet.remove("b")
        assert list(fleet.pods) == ["a"]
        await fleet.remove("a")
        assert refuses(pod)
        await fleet.stop()
        await fleet.stop()
        with pytest.raises(FleetStoppedError):
            fleet.allocate()

    run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a", "models": ()},
        {"name": "a", "ports": (70000,)},
        {"name": "a", "engine": "ollama"},
        {"name": "a", "block_size": 0},
        {"name": "a", "generation": "0.7"},
        {"name": "a", "page": "long"},
        {"name": "a", "ranks": 0},
        {"name": "a", "ranks": 2, "engine": "triton-tensorrt-llm"},
        {"name": "a", "ranks": 2, "rank_ports": True, "ports": (1,)},
        {"name": "a", "metrics_path": "metrics"},
        {"name": "a", "metrics_port": -1},
    ],
)
def test_a_pod_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r" is | are "):
        PodSpec(**wrong)


def test_what_was_served_is_told(run):
    body = b'{"model": "m", "prompt": "' + b"x" * 100 + b'"}'

    async def scenario():
        heard = []
        async with Fleet(on_request=heard.append, keep_body=10) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            base = f"http://{pod.endpoint}"
            await client.post(f"{base}/v1/completions", content=body, headers={"X-Trace": "7"})
            await client.get(f"{base}/metrics")
            await client.get(f"{base}/health", headers=dict([Reply(status=418).to_header()]))
            name, value = Reply(reset=True).to_header()
            with pytest.raises(httpx.TransportError):
                await client.get(f"{base}/gone", headers={name: value})
            return pod.endpoint, heard

    endpoint, (first, second, third) = run(scenario())
    assert (first.pod, first.endpoint, first.method, first.path) == ("a", endpoint, "POST", "/v1/completions")
    assert (first.model, first.status) == ("m", 404)
    assert (first.body, first.body_size) == (body[:10], len(body))
    assert first.body_sha256 == hashlib.sha256(body).hexdigest()
    assert (b"X-Trace", b"7") in first.headers
    assert (second.path, second.model, second.status) == ("/health", None, 418)
    assert (third.path, third.status) == ("/gone", None)
    assert first.t <= second.t <= third.t


def test_stop_leaves_nothing(run):
    """Streams in progress, idle connections and waits end with the fleet; no socket, no task stays."""

    async def scenario():
        before = open_sockets()
        fleet = Fleet()
        await fleet.start()
        pods = [await fleet.add(PodSpec(name=f"pod-{number}")) for number in range(20)]
        streams = []
        name, value = Reply(chunks=(b"a", b"b"), gap=3600).to_header()
        for pod in pods:
            address = pod.addresses[0]
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            await reader.readuntil(b"\r\n\r\n")
            streams.append((reader, writer))
        waiting = asyncio.create_task(pods[0].scraped(timeout=3600))
        await asyncio.sleep(0)
        await fleet.stop()
        assert not await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*[writer.wait_closed() for _, writer in streams], return_exceptions=True)
        await asyncio.sleep(0)
        gc.collect()
        assert open_sockets() == before
        assert all(refuses(pod) for pod in pods)

    run(scenario())
