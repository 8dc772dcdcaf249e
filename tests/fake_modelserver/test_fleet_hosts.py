"""Pods on given addresses of the machine instead of its loopback blocks."""

from __future__ import annotations

import asyncio
import os

import pytest

from fake_modelserver import AddressUnavailableError, Fleet, PodSpec

HOSTS = tuple(f"127.254.{os.getpid() % 254}.{number}" for number in range(1, 5))


async def _names(fleet: Fleet, count: int) -> list[str]:
    return [(await fleet.add(PodSpec(name=f"pod-{number}"))).endpoint for number in range(count)]


def test_each_pod_gets_one_of_the_given_addresses():
    async def check():
        async with Fleet(hosts=HOSTS, port=18_731) as fleet:
            assert await _names(fleet, 3) == [f"{host}:18731" for host in HOSTS[:3]]
            assert not fleet.shares_address

    asyncio.run(check())


def test_the_last_address_is_the_claim():
    async def check():
        async with Fleet(hosts=HOSTS, port=18_732) as fleet:
            await _names(fleet, 3)
            with pytest.raises(AddressUnavailableError, match="all 3 addresses are in use"):
                fleet.allocate()
            await fleet.remove("pod-1")
            assert fleet.allocate().host == HOSTS[1]

    asyncio.run(check())


def test_two_fleets_take_different_ports_of_the_same_addresses():
    async def check():
        async with Fleet(hosts=HOSTS) as one, Fleet(hosts=HOSTS) as other:
            [first], [second] = await _names(one, 1), await _names(other, 1)
            assert first.partition(":")[0] == second.partition(":")[0]
            assert first != second

    asyncio.run(check())


def test_a_single_address_is_shared():
    async def check():
        async with Fleet(hosts=HOSTS[:1]) as fleet:
            assert fleet.shares_address
            endpoints = await _names(fleet, 3)
            assert {endpoint.partition(":")[0] for endpoint in endpoints} == {HOSTS[0]}
            assert len(set(endpoints)) == 3

    asyncio.run(check())
