"""A port that another socket takes between its choice and the start of the target: it is started on another one."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

LATE = """
import pathlib, runpy, socket, sys
first, module, *arguments = sys.argv[1:]
if not pathlib.Path(first).exists():
    pathlib.Path(first).touch()
    address = arguments[arguments.index("--listen") + 1]
    taken = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Runs a module, and at its first start lets another socket take the address that it is to listen on."""

GATEWAY = (
    "role: data-plane\nurl: {url}\nstart:\n  command: [{command}, --epp, '{{epp}}', --endpoints, '{{endpoints}}']\n"
)
SERVER = "role: model-server\nurl: {url}\nrequests: {{model: small-model}}\nstart:\n  command: [{command}]\n"
EPP = (
    "address: {address}\ndiscovery: {{file: {{reread: 0.2}}}}\n"
    "start:\n  command: [{command}, --endpoints-file, '{{endpointsFile}}', --log-level=error]\n"
)
ROLES = [
    ("reference_epp", (), EPP, "destination.completion"),
    ("reference_gateway", (), GATEWAY, "gateway.follows-the-pick"),
    ("fake_modelserver", ("serve",), SERVER, "server.answers-with-an-object"),
]


def start(tmp_path: Path, module: str, how: tuple[str, ...], text: str, port: str) -> Path:
    program, first, profile = tmp_path / "late.py", tmp_path / "first", tmp_path / "target.yaml"
    program.write_text(LATE)
    words = (sys.executable, program, first, module, *how, "--listen", f"127.0.0.1:{port}")
    command = ", ".join(f"'{word}'" for word in words)
    profile.write_text(text.format(url=f"http://127.0.0.1:{port}", address=f"127.0.0.1:{port}", command=command))
    return profile


@pytest.mark.parametrize(("module", "how", "text", "scenario"), ROLES, ids=[role[0] for role in ROLES])
def test_a_target_that_lost_its_port_is_started_on_another(cli, tmp_path: Path, module, how, text, scenario) -> None:
    profile = start(tmp_path, module, how, text, "{port}")
    ran = cli("run", "-q", "--profile", profile, "-k", scenario, "-o", tmp_path / "r")
    assert (tmp_path / "first").exists(), "the port was never taken"
    verdicts = {row["verdict"] for row in json.loads((tmp_path / "r/report.json").read_text())["results"]}
    assert verdicts == {"pass"}, ran.out + ran.err


@pytest.mark.parametrize(("module", "how", "text", "scenario"), ROLES, ids=[role[0] for role in ROLES])
def test_a_port_that_the_profile_names_is_not_replaced(
    cli, tmp_path: Path, bound: socket.socket, module, how, text, scenario
) -> None:
    profile = start(tmp_path, module, how, text, str(bound.getsockname()[1]))
    ran = cli("run", "-q", "--profile", profile, "-k", scenario, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert "ddress already in use" in ran.err or "is taken by another socket" in ran.err
