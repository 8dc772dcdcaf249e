"""Machines unlike those that the suite is developed on: one loopback address (macOS), and Windows."""

import json
import os
import subprocess
import sys

import pytest

from conformance import cli
from conformance.evidence.episode import PoolState
from conformance.evidence.store import read_evidence

pytestmark = pytest.mark.program

ONE_ADDRESS = """
import errno, os, socket

whole = socket.socket.bind

def bind(self, address):
    if self.family == socket.AF_INET and address[0].startswith("127.") and address[0] != "127.0.0.1":
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return whole(self, address)

socket.socket.bind = bind
"""
"""Python reads it as `sitecustomize` in every process: 127.0.0.1 is all that there is of 127.0.0.0/8, as on macOS."""


def conformance(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "conformance", *map(str, arguments)],
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_with_one_loopback_address_the_reference_epp_is_conformant(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ONE_ADDRESS)
    said = conformance("doctor", PYTHONPATH=str(tmp_path))
    assert "only 127.0.0.1: pods share it and differ by port" in said.stdout
    ran = conformance("run", "-q", "-o", tmp_path / "r", PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((tmp_path / "r/report.json").read_text())
    assert {row["result"] for row in report["versions"]} == {"conformant"}
    episodes = [line.read()[0] for line in read_evidence(tmp_path / "r/evidence.ndjson.gz")]
    pods = [pod for one in episodes for _, state in one.of(PoolState) for pod in state.pods]
    hosts = {endpoint.rpartition(":")[0] for pod in pods for endpoint in pod.endpoints}
    assert "127.0.0.1" in hosts
    assert not [host for host in hosts - {"127.0.0.1"} if host.startswith("127.")]


def test_windows_is_refused_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "Windows is not supported" in capsys.readouterr().err


def test_windows_is_refused_by_the_program_itself():
    as_windows = "import sys; sys.platform = 'win32'; from conformance.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", as_windows], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert "Windows is not supported\n  hint: run it in WSL 2 or in a container" in ran.stderr
