"""A generator as a process: what comes on its standard input, and what it answers."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.errors import HarnessError, IncompleteError, UsageError
from conformance.load.generators import GetReady, Share
from conformance.load.mix import Arrivals, LoadFile, MixedRequest
from conformance.load.moments import State
from conformance.load.remote_generator import framed, read_frame
from conformance.load.settings import LoadSettings
from conformance.load.wire import Message, decode, encode
from conformance.targets.profile import Discovery, Fixed, Profile, Tls

pytestmark = pytest.mark.program

COMMAND = [sys.executable, "-m", "conformance.load.remote_generator"]


def share(**profile: object) -> Share:
    file = LoadFile(mix=(MixedRequest(name="a"),), arrivals=(Arrivals(seconds=1, rate=1.0),))
    found = Profile(discovery=Discovery(fixed=Fixed(endpoints=("127.0.0.1:8000",))), **profile)
    settings = LoadSettings(profile=found, version="1.0.0", values={}, file=file, seed=1)
    return Share(settings=settings, address="127.0.0.1:1", endpoints={}, pool=State((), {}), grace=1.0)


def answers(given: bytes) -> tuple[list[Message], int]:
    """What the process says to these bytes, and its exit code when they end."""
    ran = subprocess.run(COMMAND, input=given, capture_output=True, timeout=60, check=False)
    said, rest = [], ran.stdout
    while rest:
        (length,) = struct.unpack_from("<Q", rest)
        said.append(decode(rest[8 : 8 + length]))
        rest = rest[8 + length :]
    assert b"Traceback" not in ran.stderr
    return said, ran.returncode


@pytest.mark.parametrize("given", [b"", b"\x01", framed(b"{}")[:-1], framed(encode(share()))])
def test_it_ends_with_its_input(given: bytes) -> None:
    assert answers(given) == ([], 0)


def test_a_target_that_it_does_not_reach_is_named() -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for one in (share(), GetReady()):
            process.stdin.write(framed(encode(one)))
        process.stdin.flush()
        said = decode(read_frame(process.stdout))
    assert isinstance(said, IncompleteError)
    assert "127.0.0.1:1" in said.message
    assert "reachable from each machine" in said.hint
    assert process.returncode == 0


def test_a_file_for_tls_that_is_not_on_this_machine_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    (said,), _ = answers(framed(encode(share(tls=Tls(mode="verified", ca=str(missing))))))
    assert isinstance(said, UsageError)
    assert f"tls.ca: there is no file {missing}" in said.message


@pytest.mark.parametrize("given", [b"", b"{}", b'{"kind":"share"}', b"\xff"])
def test_unreadable_input_is_reported_and_ends_the_generator(given: bytes) -> None:
    (said,), code = answers(framed(given))
    assert type(said) is HarnessError
    assert "can't be read" in said.message
    assert code == 0
