"""A port that another socket takes between its choice and the start of the target: it is started on another one."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

LATE = """
import pathlib, runpy, socket, sys
starts, which, module, *arguments = sys.argv[1:]
with pathlib.Path(starts).open("a+") as file:
    file.write("x")
    file.seek(0)
    number = len(file.read())
if number == int(which):
    address = arguments[arguments.index("--listen") + 1]
    taken = socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Runs a module, and at one of its starts lets another socket take the address that it is to listen on."""

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


def start(tmp_path: Path, module: str, how: tuple[str, ...], text: str, port: str, which: int = 1) -> Path:
    program, starts, profile = tmp_path / "late.py", tmp_path / "starts", tmp_path / "target.yaml"
    program.write_text(LATE)
    words = (sys.executable, program, starts, which, module, *how, "--listen", f"127.0.0.1:{port}")
    command = ", ".join(f"'{word}'" for word in words)
    profile.write_text(text.format(url=f"http://127.0.0.1:{port}", address=f"127.0.0.1:{port}", command=command))
    return profile


@pytest.mark.parametrize(("module", "how", "text", "scenario"), ROLES, ids=[role[0] for role in ROLES])
def test_a_target_that_lost_its_port_is_started_on_another(cli, tmp_path: Path, module, how, text, scenario) -> None:
    profile = start(tmp_path, module, how, text, "{port}")
    ran = cli("run", "-q", "--profile", profile, "-k", scenario, "-o", tmp_path / "r")
    assert len((tmp_path / "starts").read_text()) > 1, "the port was never taken"
    verdicts = {row["verdict"] for row in json.loads((tmp_path / "r/report.json").read_text())["results"]}
    assert verdicts == {"pass"}, ran.out + ran.err


def test_a_restarted_target_that_lost_its_port_is_started_on_another(cli, tmp_path: Path) -> None:
    """Not to get the port is no crash of the target's."""
    module, how, text, _ = ROLES[0]
    profile = start(tmp_path, module, how, text, "{port}", which=2)
    ran = cli("run", "-q", "--profile", profile, "-k", "pool.target-restarted", "--jobs", "1", "-o", tmp_path / "r")
    assert len((tmp_path / "starts").read_text()) >= 3, ran.out + ran.err
    verdicts = {row["verdict"] for row in json.loads((tmp_path / "r/report.json").read_text())["results"]}
    assert verdicts == {"pass"}, ran.out + ran.err


def test_a_target_that_lost_its_port_under_load_has_not_crashed(cli, tmp_path: Path) -> None:
    module, how, text, _ = ROLES[0]
    profile = start(tmp_path, module, how, text, "{port}", which=2)
    file = tmp_path / "load.yaml"
    file.write_text(
        "mix: [{name: a}]\narrivals: [{seconds: 15, rate: 20}]\ntrouble: [{kind: kill-target, at: 1, lasts: 0.5}]\n"
    )
    ran = cli("load", file, "--profile", profile, "-o", tmp_path / "r")
    assert len((tmp_path / "starts").read_text()) >= 3, ran.out + ran.err
    assert json.loads((tmp_path / "r/load.json").read_text())["crashes"] == []


@pytest.mark.parametrize(("module", "how", "text", "scenario"), ROLES, ids=[role[0] for role in ROLES])
def test_a_port_that_the_profile_names_is_not_replaced(
    cli, tmp_path: Path, bound: socket.socket, module, how, text, scenario
) -> None:
    profile = start(tmp_path, module, how, text, str(bound.getsockname()[1]))
    ran = cli("run", "-q", "--profile", profile, "-k", scenario, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert "ddress already in use" in ran.err or "is taken by another socket" in ran.err
