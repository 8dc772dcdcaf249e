"""Targets on Unix sockets: started by the suite or running already, with health checks, TLS, a tap and a real Envoy."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import needs_envoy

from conformance.cli import call
from conformance.targets.ports import free_port
from conformance.targets.resolve import resolve

pytestmark = pytest.mark.program

EPP = f"{sys.executable} -m reference_epp --listen unix:{{socket}} --endpoints-file {{endpointsFile}} --log-level error"
SOME = ("-k", "destination.completion", "-k", "robustness.client*")


@pytest.fixture
def suite(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, dict]]:
    """A command of the suite that writes a report: its exit code, what it printed, and the report."""

    def conduct(*arguments: str) -> tuple[int, str, dict]:
        capfd.readouterr()
        code = call([*arguments, "-q", "-o", str(tmp_path / "r")])
        printed = capfd.readouterr()
        file = tmp_path / "r/report.json"
        return code, printed.out + printed.err, json.loads(file.read_text()) if file.exists() else {}

    return conduct


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def passed(report: dict) -> bool:
    verdicts = {row["verdict"] for row in report["results"]}
    return "pass" in verdicts and verdicts <= {"pass", "notApplicable"}


def test_a_command_that_listens_on_a_socket(suite) -> None:
    _, printed, report = suite("run", "--smoke", "--epp", f"cmd:{EPP}")
    assert passed(report), printed


def test_a_wrong_target_on_a_socket_is_caught(suite) -> None:
    code, printed, _ = suite("run", *SOME, "--epp", f"cmd:{EPP} --fault metadata-differs")
    assert code == 1
    assert "EPP-DEST" in printed


@needs_envoy
def test_a_real_envoy_dials_the_socket(suite) -> None:
    _, printed, report = suite("run", *SOME, "--data-plane", "envoy", "--epp", f"cmd:{EPP}")
    assert passed(report), printed


def test_a_profile_with_a_relative_socket_and_a_health_service_on_another(suite, folder: Path) -> None:
    words = EPP.replace("{socket}", str(folder / "epp.sock")).split()
    (folder / "epp.yaml").write_text(
        f"start: {{command: {json.dumps(words)}}}\n"
        "address: unix:epp.sock\n"
        f"ready: {{rule: health, service: liveness, healthAddress: 'unix:{folder}/epp.sock'}}\n"
        "discovery: {file: {}}\n"
    )
    _, printed, report = suite("run", *SOME, "--profile", str(folder / "epp.yaml"))
    assert passed(report), printed


def test_a_running_target_is_tested_and_examined_by_doctor(
    suite, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoints = folder / "endpoints"
    endpoints.touch()
    words = EPP.replace("{socket}", str(folder / "epp.sock")).replace("{endpointsFile}", str(endpoints)).split()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "listening" in process.stdout.readline()
            target = ("--epp", f"unix:{folder}/epp.sock", "--endpoints-file", str(endpoints))
            _, printed, report = suite("run", *SOME, *target)
            assert passed(report), printed
            assert call(["doctor", *target]) == 0
            assert f"reached at unix:{folder}/epp.sock" in capfd.readouterr().out
        finally:
            process.terminate()


def test_a_target_that_makes_its_socket_elsewhere(suite, folder: Path) -> None:
    (folder / "epp.yaml").write_text(
        f"start: {{command: {json.dumps(EPP.split())}}}\ndiscovery: {{file: {{}}}}\ntimeouts: {{start: 2}}\n"
    )
    code, printed, _ = suite("run", *SOME, "--profile", str(folder / "epp.yaml"))
    assert code == 4
    assert "it listens on unix:/" in printed


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("unix:", 2, "not the address of a Unix socket"),
        ("unix:/tmp/" + "x" * 120, 2, "at most 107"),
        ("unix:/no/such.sock", 4, "there is no such socket, nor the folder /no"),
        (f"unix:{__file__}", 2, "there is a file, not a socket"),
        (f"unix:{Path(__file__).parent}", 2, "there is a folder, not a socket"),
    ],
)
def test_sockets_that_can_not_be_reached(suite, address: str, code: int, text: str) -> None:
    found, printed, _ = suite("run", *SOME, "--epp", address, "--endpoints", f"127.0.0.1:{free_port('127.0.0.1')}")
    assert found == code
    assert text in printed
    assert "hint:" in printed


def test_a_profile_that_names_a_file_for_the_socket(suite, folder: Path) -> None:
    (folder / "epp.yaml").write_text("name: mine\naddress: unix:epp.yaml\ndiscovery: {file: {path: endpoints}}\n")
    code, printed, _ = suite("run", *SOME, "--profile", str(folder / "epp.yaml"))
    assert code == 2
    assert "epp.yaml:2:10: address: unix:" in printed
    assert "there is a file, not a socket (give the path at which the target makes its socket)" in printed


def test_a_scratch_folder_too_deep_for_a_socket(suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    code, printed, _ = suite("run", *SOME, "--epp", f"cmd:{EPP}")
    assert code == 2
    assert "TMPDIR" in printed


def test_copies_of_a_target_on_a_socket_do_not_share_it() -> None:
    profile = resolve(f"cmd:{EPP}").profile
    assert profile.address == "unix:{socket}"
    assert profile.only_one_at_a_time is None


def test_invalid_socket_addresses_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["proxy", "--epp", "unix:"]) == 2
    assert "not the address of a Unix socket" in capfd.readouterr().err
    assert call(["tap", "--upstream", "unix:", "--listen", "127.0.0.1:0"]) == 2
    assert "not the address of a Unix socket" in capfd.readouterr().err
    assert call(["tap", "--upstream", "127.0.0.1:9", "--listen", f"unix:{__file__}"]) == 2
    assert "hint:" in capfd.readouterr().err
