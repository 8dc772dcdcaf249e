"""The endpoints file: its parser, and how a pool follows it."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_epp.endpoints import EndpointsFile, Pool, parse_endpoint, parse_endpoints


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("  10.0.0.1:8000\t", "10.0.0.1:8000"),
        ("[::1]:1", "[::1]:1"),
        ("[FD00:0:0::1]:65535", "[fd00::1]:65535"),
    ],
)
def test_reads_endpoints_in_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_endpoint(text)) == canonical
    assert parse_endpoint(text) == parse_endpoint(canonical)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no port"),
        ("10.0.0.1", "no port"),
        ("localhost:80", "not an IP address"),
        ("http://10.0.0.1:80", "not an IP address"),
        ("::1:80", "brackets"),
        ("[10.0.0.1]:80", "brackets"),
        ("[fe80::1%eth0]:80", "zone"),
        ("10.0.0.1:0", "not a port"),
        ("10.0.0.1:65536", "not a port"),
        ("10.0.0.1:", "not a port"),
        ("10.0.0.1:+80", "not a port"),
        ("10.0.0.1:８０", "not a port"),
        ("10.0.0.1:80,10.0.0.2:80", "not an IP address"),
    ],
)
def test_says_what_is_wrong_with_an_endpoint(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_endpoint(text)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_address_and_port_reads_back(address: ipaddress.IPv4Address, port: int) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    endpoint = parse_endpoint(f"{host}:{port}")
    assert (ipaddress.ip_address(endpoint.ip), endpoint.port) == (address, port)
    assert parse_endpoint(str(endpoint)) == endpoint


@given(st.text())
def test_any_content_is_endpoints_and_problems(content: str) -> None:
    endpoints, problems = parse_endpoints(content)
    assert len(set(endpoints)) == len(endpoints)
    assert parse_endpoints("\n".join(map(str, endpoints))) == (endpoints, [])
    assert all(problem.startswith("line ") for problem in problems)


def test_comments_blanks_repetitions_and_wrong_lines() -> None:
    endpoints, problems = parse_endpoints("# pool\n10.0.0.1:80 # first\n\nnonsense\n10.0.0.1:80\n[::1]:80\n")
    assert [str(endpoint) for endpoint in endpoints] == ["10.0.0.1:80", "[::1]:80"]
    assert problems == ["line 4: 'nonsense' has no port; write ip:port"]


def texts(pool: Pool) -> list[str]:
    return [str(endpoint) for endpoint in pool.endpoints]


def test_without_a_file_the_pool_is_empty_and_not_synced(tmp_path: Path) -> None:
    pool = Pool()
    source = EndpointsFile(tmp_path / "none", pool)
    source.start()
    assert (texts(pool), pool.synced) == ([], False)
    (tmp_path / "none").write_text("")
    source.poll()
    source.poll()
    assert (texts(pool), pool.synced) == ([], True)


def test_a_change_counts_when_seen_twice_alike(tmp_path: Path) -> None:
    file, pool = tmp_path / "file", Pool()
    file.write_text("10.0.0.1:80\n")
    source = EndpointsFile(file, pool)
    source.start()
    assert texts(pool) == ["10.0.0.1:80"]
    file.write_text("")  # truncated, about to be written
    source.poll()
    file.write_text("10.0.0.2:80\n")
    source.poll()
    assert texts(pool) == ["10.0.0.1:80"]
    source.poll()
    assert texts(pool) == ["10.0.0.2:80"]


def test_a_file_that_is_replaced_or_rewritten_alike_in_size_is_seen(tmp_path: Path) -> None:
    file, pool = tmp_path / "file", Pool()
    file.write_text("10.0.0.1:80\n")
    source = EndpointsFile(file, pool)
    source.start()
    other = tmp_path / "other"
    other.write_text("10.0.0.2:80\n")
    other.rename(file)
    source.poll()
    source.poll()
    assert texts(pool) == ["10.0.0.2:80"]
    file.unlink()
    source.poll()
    source.poll()
    assert (texts(pool), pool.synced) == ([], False)


def test_listeners_hear_of_changes_only(tmp_path: Path) -> None:
    file, pool, heard = tmp_path / "file", Pool(), []
    pool.listen(lambda: heard.append(texts(pool)))
    file.write_text("10.0.0.1:80\n")
    source = EndpointsFile(file, pool)
    source.start()
    for _ in range(3):
        source.poll()
    assert heard == [["10.0.0.1:80"]]
