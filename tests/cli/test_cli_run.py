"""`run`, end to end: on the bundled EPP, and on targets that do everything wrong that a target can do."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.cli.interrupt import SAME_WISH, Interrupt, second_is_another_wish

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"
REFERENCE = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
FEW = ("-k", "destination.completion", "-k", "subset.only-unready", "--body-mode", "full-duplex")


def report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def complete(folder: Path) -> None:
    """The report is whole, whatever the target did."""
    names = {path.name for path in folder.iterdir()}
    assert names == {"report.json", "evidence.ndjson.gz", "report.html", "junit.xml", "summary.md"}


def hostile(mode: str, good: int) -> str:
    return f"cmd:{sys.executable} {HOSTILE} {{port}} {{endpointsFile}} {mode} {good}"


@pytest.fixture
def patient(tmp_path: Path) -> Path:
    """A profile with time limits that suit a test."""
    path = tmp_path / "profile.yaml"
    path.write_text(
        "name: hostile\ndiscovery: {file: {reread: 0.05}, scrapes: false}\n"
        "timeouts: {start: 4, answer: 1, convergence: 0.3}\nstart: {command: [unused]}\n"
    )
    return path


@pytest.mark.program
def test_an_address_outside_the_pool_is_not_connected_to(cli, tmp_path: Path, patient: Path, monkeypatch) -> None:
    """It would get the profile's secret headers."""
    listed = tmp_path / "elsewhere"
    monkeypatch.setenv("ELSEWHERE", str(listed))
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        listed.write_text(f"127.0.0.1:{elsewhere.getsockname()[1]}")
        ran = cli("run", "--profile", patient, "--epp", hostile("elsewhere", 0), *FEW, "-o", tmp_path / "r")
        assert ran.code == 1, ran.out + ran.err
        assert "EPP-DEST-06" in ran.out
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


# -- the bundled EPP ---------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.program
def test_a_few_scenarios_of_the_reference_epp(cli, tmp_path: Path) -> None:
    ran = cli("run", "-k", "subset.pick-*", "-k", "errors.*", "-o", tmp_path / "r", "--seed", "7")
    assert ran.code == 4, ran.out + ran.err  # a selection gives no full verdict
    complete(tmp_path / "r")
    found = report(tmp_path / "r")
    assert found["environment"]["seed"] == 7
    assert found["result"] == "incomplete"
    assert {row["verdict"] for row in found["results"]} <= {"pass", "notApplicable"}
    assert len(ran.out.strip().splitlines()) <= 12
    assert "seed 7" in ran.err.splitlines()[0]
    assert "protocol 1.0.0:" in ran.err


@pytest.mark.program
def test_quiet_says_nothing_but_the_summary(cli, tmp_path: Path) -> None:
    ran = cli("run", "-q", *FEW, "-o", tmp_path)
    assert ran.err == ""
    assert ran.out.startswith("Endpoint Picker Protocol 1.0.0")


@pytest.mark.smoke
@pytest.mark.program
def test_several_versions_in_one_run(cli, tmp_path: Path) -> None:
    ran = cli("run", "-k", "subset.nobody", "--protocol-version", "0.3.0", "--protocol-version", "next", "-o", tmp_path)
    assert ran.code == 4
    assert [row["version"] for row in report(tmp_path)["versions"]] == ["0.3.0", "next"]
    assert "0.3.0" in ran.out
    assert "next" in ran.out


@pytest.mark.program
def test_exit_zero(cli, tmp_path: Path) -> None:
    assert cli("run", *FEW, "-o", tmp_path, "--exit-zero").code == 0


@pytest.mark.program
def test_accept_incomplete_covers_a_selection_and_no_unreachable_target(cli, tmp_path: Path) -> None:
    assert cli("run", *FEW, "-o", tmp_path / "few", "--accept-incomplete").code == 0
    dead = ("--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:18471", "--smoke")
    assert cli("run", *dead, "-o", tmp_path / "dead", "--accept-incomplete").code == 4
    complete(tmp_path / "dead")


@pytest.mark.program
def test_the_report_of_an_epp_that_closes_streams_early_is_verified(cli, tmp_path: Path) -> None:
    ran = cli("run", "-q", "--epp", hostile("closes", 2), "-k", "subset.large-body*", "-o", tmp_path)
    assert ran.code in (1, 4), ran.err
    ran = cli("report", "verify", tmp_path)
    assert ran.code == 0, ran.out


@pytest.mark.program
def test_a_run_that_breaks_leaves_no_earlier_report_behind(cli, tmp_path: Path) -> None:
    assert cli("run", *FEW, "-o", tmp_path).code == 4
    (tmp_path / "counterexample-1.0.0.yaml").touch()
    (tmp_path / "notes.txt").touch()
    ran = cli("run", "--epp", "cmd:no-such-program {port} {endpointsFile}", "-o", tmp_path)
    assert (ran.code, "is not on PATH" in ran.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


LIMITED = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)"
"""As a full disk: no file can have more bytes than that."""


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Of the files of a report, as `on_a_full_disk` makes them where there is room."""
    folder = tmp_path_factory.mktemp("whole")
    ran = subprocess.run(on_a_full_disk(folder, 10**8), capture_output=True, timeout=120, check=False)
    assert ran.returncode == 4  # a part of a version
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def on_a_full_disk(folder: Path, room: int) -> list[str]:
    program = f"{LIMITED}; from conformance.cli import main; main()"
    return [sys.executable, "-c", program, str(room), "run", "-q", "-k", "destination.c*", "-o", str(folder)]


@pytest.mark.program
@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ("evidence.ndjson.gz", set()),
        ("report.json", {"evidence.ndjson.gz"}),
        ("report.html", {"evidence.ndjson.gz", "report.json", "junit.xml", "summary.md"}),
    ],
)
def test_a_full_disk_loses_only_the_files_that_do_not_fit(
    cli, tmp_path: Path, sizes: dict[str, int], named: str, kept: set[str]
) -> None:
    """What came out is told, the file that could not be written is named, and no part of one is left."""
    made = tmp_path / "report"
    room = (sizes[named] + max((sizes[name] for name in kept), default=0)) // 2
    ran = subprocess.run(on_a_full_disk(made, room), capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (3, f"error: {made}/{named}: File too large")
    assert "requirements" in ran.stdout
    assert {path.name for path in made.glob("*")} == kept
    whole = ran.stdout.partition("written whole: ")[2].partition(" (")[0].strip()
    assert set(whole.split(" · ")) == (kept or {"nothing"})
    if kept:
        assert "0 with a broken rule" in cli("judge", made).out


@pytest.mark.smoke
@pytest.mark.program
def test_a_violation_is_shown_with_its_conversation(cli, tmp_path: Path) -> None:
    fault = (
        f"cmd:{sys.executable} -m reference_epp --fault metadata-differs --listen 127.0.0.1:{{port}} "
        "--endpoints-file {endpointsFile} --log-level error"
    )
    ran = cli("run", "--epp", fault, "-k", "destination.list", "-o", tmp_path)
    assert ran.code == 1
    assert "EPP-DEST-05" in ran.out
    assert "▶" in ran.out
    assert "FAIL destination.list" in ran.err
    summary = ran.out.strip().split("\n\n")[-1]
    assert summary.startswith("Endpoint Picker Protocol")
    assert len(summary.splitlines()) <= 12


@pytest.mark.program
@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("FORCE_COLOR", True)])
def test_colours(program, tmp_path: Path, variable: str, coloured: bool) -> None:
    environment = {"NO_COLOR": "", "FORCE_COLOR": "", variable: "1"}
    process = program("run", "-q", "-k", "subset.nobody", "-o", tmp_path, **environment)
    out, _ = process.communicate(timeout=60)
    assert ("\x1b[" in out) is coloured


# -- an address --------------------------------------------------------------------------------------------------------


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A reference EPP that runs already, and the file that it watches."""
    file = tmp_path / "endpoints"
    file.write_text("")
    process = subprocess.Popen(
        [sys.executable, "-m", "reference_epp", "--listen", "127.0.0.1:0", "--endpoints-file", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{") and (address := json.loads(line).get("address") or json.loads(line).get("listen")):
            break
    drain = threading.Thread(target=process.stdout.read, daemon=True)
    drain.start()
    yield address, file
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)
    drain.join(timeout=20)
    process.stdout.close()


@pytest.mark.smoke
@pytest.mark.program
def test_an_address_with_a_file_is_fully_controllable(cli, tmp_path: Path, reference: tuple[str, Path]) -> None:
    address, file = reference
    ran = cli("run", "--epp", address, "--endpoints-file", file, *FEW, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} == {"pass"}


@pytest.mark.program
@pytest.mark.parametrize("linked", [False, True])
def test_the_endpoints_file_is_restored(cli, tmp_path: Path, reference: tuple[str, Path], linked: bool) -> None:
    address, file = reference
    real = file.with_name("real") if linked else file
    if linked:
        file.unlink()
        file.symlink_to("real")
    real.write_bytes(b"# mine\r\n10.0.0.1:8000\n")
    real.chmod(0o604)
    ran = cli("run", "--epp", address, "--endpoints-file", file, *FEW, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert file.is_symlink() is linked
    assert file.read_bytes() == b"# mine\r\n10.0.0.1:8000\n"
    assert file.stat().st_mode & 0o777 == 0o604
    assert {path.name for path in tmp_path.iterdir()} == {"r", file.name, real.name}


def test_the_endpoints_file_is_restored_when_the_target_is_not_there(cli, tmp_path: Path) -> None:
    file = tmp_path / "endpoints"
    file.write_text("10.0.0.1:8000\n")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert cli("run", "--epp", address, "--endpoints-file", file, *FEW, "-o", tmp_path / "r").code == 4
    assert file.read_text() == "10.0.0.1:8000\n"


@pytest.mark.smoke
@pytest.mark.program
def test_two_targets_never_share_an_endpoints_file(cli, tmp_path: Path) -> None:
    file = tmp_path / "endpoints"
    file.write_text("10.0.0.1:8000\n")
    ran = cli("run", "--epp", REFERENCE, "--endpoints-file", file, *FEW, "-o", tmp_path / "r", "--jobs", "2")
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} == {"pass"}, ran.out
    assert file.read_text() == "10.0.0.1:8000\n"


@pytest.mark.smoke
@pytest.mark.program
def test_an_address_with_fixed_endpoints(cli, tmp_path: Path, reference: tuple[str, Path]) -> None:
    address, file = reference
    endpoints = [f"127.0.71.{host}:18431" for host in (1, 2, 3)]
    file.write_text("".join(f"{one}\n" for one in endpoints))
    ran = cli("run", "--epp", address, "--endpoints", ",".join(endpoints), *FEW, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    verdicts = {row["scenario"]: row["verdict"] for row in report(tmp_path / "r")["results"]}
    assert verdicts == {"destination.completion": "pass", "subset.only-unready": "skipped"}


def test_an_endpoint_that_is_taken(cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = cli("run", "-q", "--epp", "127.0.0.1:1", "--endpoints", endpoint, "-o", tmp_path / "r")
    assert ran.code == 2
    assert ran.err.startswith(f"error: {endpoint} is taken")
    assert not (tmp_path / "r").exists()


# -- what answers there is no EPP --------------------------------------------------------------------------------------


@pytest.fixture
def tcp_server() -> Iterator[Callable[[bytes], str]]:
    """Start a server that says the same on each connection, and hangs up (or, with b"", says nothing and stays)."""
    servers: list[socket.socket] = []

    def start(says: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            kept = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    break
                if says:
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(says)
                else:
                    kept.append(connection)
            for connection in kept:
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/2"),
        (b"", "did not come within 1 s"),
    ],
    ids=["http-1", "plain-tcp", "silent-tcp"],
)
def test_the_wrong_port(cli, tmp_path: Path, patient: Path, tcp_server, says: bytes, expected: str) -> None:
    address = tcp_server(says)
    ran = cli(
        "run", "--epp", address, "--profile", patient, "--endpoints-file", tmp_path / "e", *FEW, "-o", tmp_path / "r"
    )
    assert ran.code == 4
    assert address in ran.err
    assert expected in ran.err, ran.err
    assert "hint:" in ran.err
    complete(tmp_path / "r")
    assert report(tmp_path / "r")["stopped"]


def test_nothing_listens(cli, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        ran = cli("run", "--epp", address, "--endpoints-file", tmp_path / "e", *FEW, "-o", tmp_path / "r")
    assert ran.code == 4
    assert f"{address}: connection refused" in ran.err
    complete(tmp_path / "r")
    assert cli("report", "verify", tmp_path / "r").code in (0, 4)


SELF_SIGNED = " --tls self-signed"


@pytest.mark.program
@pytest.mark.parametrize(
    ("serves", "mode", "expected"),
    [
        ("", "unverified", "does not speak TLS"),
        (SELF_SIGNED, "plaintext", "expects TLS"),
        (SELF_SIGNED, "verified", "certificate"),
    ],
    ids=["tls-to-plaintext", "plaintext-to-tls", "not-verified"],
)
def test_tls_mismatch(cli, tmp_path: Path, serves: str, mode: str, expected: str) -> None:
    ran = cli("run", "--epp", REFERENCE + serves, "--tls", mode, *FEW, "-o", tmp_path)
    assert ran.code == 4
    assert expected in ran.err, ran.err
    assert "hint:" in ran.err
    complete(tmp_path)


@pytest.mark.smoke
@pytest.mark.program
def test_tls_unverified(cli, tmp_path: Path) -> None:
    ran = cli("run", "--epp", REFERENCE + SELF_SIGNED, "--tls", "unverified", *FEW, "-o", tmp_path)
    assert ran.code == 4
    assert {row["verdict"] for row in report(tmp_path)["results"]} == {"pass"}


# -- hostile targets ---------------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize("mode", ["silent", "closes", "dies"])
def test_hostile_from_the_beginning(cli, tmp_path: Path, patient: Path, mode: str) -> None:
    """It never passes the gate: one explanation, a report, exit 4."""
    ran = cli("run", "--epp", hostile(mode, 0), "--profile", patient, *FEW, "-o", tmp_path / "r", "--jobs", "1")
    assert ran.code in (1, 4), ran.err
    assert "Traceback" not in ran.err
    complete(tmp_path / "r")
    if ran.code == 4:
        assert "error:" in ran.err
        assert "hint:" in ran.err
        assert report(tmp_path / "r")["stopped"]
    if mode == "dies":
        assert "this is the end" in ran.err


@pytest.mark.program
@pytest.mark.parametrize("mode", ["silent", "closes", "garbage", "floods", "resets", "dies"])
def test_hostile_in_the_middle(cli, tmp_path: Path, patient: Path, mode: str) -> None:
    """It passes the gate and then goes wrong: that is a violation, with a report, and the run ends."""
    ran = cli("run", "--epp", hostile(mode, 8), "--profile", patient, *FEW, "-o", tmp_path / "r", "--jobs", "1")
    assert ran.code == 1, ran.out + ran.err
    assert "Traceback" not in ran.err
    complete(tmp_path / "r")
    failed = [row["id"] for row in report(tmp_path / "r")["requirements"] if row["verdict"] == "fail"]
    assert failed
    assert all(name in ran.out for name in failed[:3])


@pytest.mark.program
@pytest.mark.parametrize("mode", ["removes_folder", "makes_folder"])
def test_an_endpoints_file_that_the_target_spoils_is_made_again(cli, tmp_path: Path, patient: Path, mode: str) -> None:
    ran = cli("run", "--epp", hostile(mode, 8), "--profile", patient, *FEW, "-o", tmp_path / "r", "--jobs", "1")
    assert ran.code == 1, ran.out + ran.err
    assert "Traceback" not in ran.err
    complete(tmp_path / "r")
    assert any("endpoints was made again" in one["text"] for one in report(tmp_path / "r")["anomalies"])


@pytest.mark.program
@pytest.mark.parametrize("mode", ["goaway", "one_at_a_time"])
def test_unusual_and_conforming_targets_pass(cli, tmp_path: Path, patient: Path, mode: str) -> None:
    ran = cli(
        "run", "--epp", hostile(mode, 0), "--profile", patient, "-k", "destination.completion", "-o", tmp_path / "r"
    )
    assert ran.code == 4, ran.out + ran.err
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} == {"pass"}, ran.out


TAKEN = """
import os, socket, sys, time
port, endpoints, mark = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if not os.path.exists(mark):
    open(mark, "w").close()
    server = socket.create_server(("127.0.0.1", port))
    if not os.fork():
        if os.fork():  # what serves the port is then no child of the target
            os._exit(0)
        while True:
            client, _ = server.accept()
            client.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
            client.close()
    os.wait()
    server.close()
    time.sleep(1.5)  # it takes a while to get as far as its port
epp = ["-m", "reference_epp", "--listen", f"127.0.0.1:{port}", "--endpoints-file", endpoints]
os.execv(sys.executable, [sys.executable, *epp])
"""


@pytest.mark.program
def test_a_port_taken_by_another_process_is_no_defect_of_the_target(cli, tmp_path: Path) -> None:
    script = tmp_path / "epp.py"
    script.write_text(TAKEN)
    epp = f"cmd:{sys.executable} {script} {{port}} {{endpointsFile}} {tmp_path / 'mark'}"
    ran = cli("run", "--epp", epp, "-k", "destination.completion", "-o", tmp_path / "r", "--jobs", "1")
    assert (tmp_path / "mark").exists()
    assert ran.code == 4, ran.out + ran.err
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} == {"pass"}, ran.out + ran.err


# -- a fixed address ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fixed(tmp_path: Path, bound: socket.socket) -> tuple[Path, str]:
    """A profile of the reference EPP on a port that is fixed, and the address."""
    address = f"127.0.0.1:{bound.getsockname()[1]}"
    bound.close()
    command = [sys.executable, "-m", "reference_epp", "--listen", address, "--endpoints-file", "{endpointsFile}"]
    profile = {"name": "fixed", "address": address, "start": {"command": command}, "discovery": {"file": {}}}
    path = tmp_path / "fixed.yaml"
    path.write_text(json.dumps(profile))
    return path, address


@pytest.mark.program
def test_a_fixed_address_is_for_one_run_at_a_time(cli, program, tmp_path: Path, fixed: tuple[Path, str]) -> None:
    """The second would judge the target of the first, and take its own for one that crashes."""
    profile, address = fixed
    first = program("run", "--profile", profile, *FEW, "-o", tmp_path / "first")
    assert first.stderr is not None
    for line in first.stderr:
        if "waiting until it is ready" in line:
            break
    second = cli("run", "--profile", profile, *FEW, "-o", tmp_path / "second")
    assert second.code == 2, second.err
    assert f"{address} is in use by another run" in second.err
    assert "use {port}" in second.err
    out, err = first.communicate(timeout=60)
    assert first.returncode == 4, out + err
    assert {row["verdict"] for row in report(tmp_path / "first")["results"]} == {"pass"}
    assert cli("run", "--profile", profile, *FEW, "-o", tmp_path / "third").code == 4


def test_a_server_that_was_there_before_is_not_taken_for_the_target(
    cli, tmp_path: Path, fixed: tuple[Path, str]
) -> None:
    profile, address = fixed
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        ran = cli("run", "--profile", profile, *FEW, "-o", tmp_path / "r")
    assert ran.code == 2, ran.err
    assert f"something listens on {address} before the target is started" in ran.err


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.program
def test_a_run_survives_the_reader_of_its_progress(program, tmp_path: Path) -> None:
    process = program("run", *FEW, "-o", tmp_path / "r")
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=60) == 4
    complete(tmp_path / "r")


@pytest.mark.program
@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGINT, 1), (signal.SIGINT, 5), (signal.SIGTERM, 1), (signal.SIGHUP, 1)]
)
def test_an_interruption_leaves_a_report_and_nothing_else(
    program, tmp_path: Path, number: signal.Signals, times: int
) -> None:
    pids = tmp_path / "pids"
    (scratch := tmp_path / "scratch").mkdir()
    script = tmp_path / "epp.sh"
    epp = f"{sys.executable} -m reference_epp --listen 127.0.0.1:$1 --endpoints-file $2"
    script.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec {epp}\n")
    script.chmod(0o755)
    process = program(
        "run",
        "--epp",
        f"cmd:{script} {{port}} {{endpointsFile}}",
        "-o",
        tmp_path / "r",
        PYTHONUNBUFFERED="1",
        TMPDIR=str(scratch),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "passed" in line:  # the first tenth is done, and seconds of work are left
            break
    for _ in range(times):
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, out + err
    assert "Traceback" not in err
    complete(tmp_path / "r")
    assert report(tmp_path / "r")["stopped"] == "interrupted"
    assert not list(scratch.iterdir())
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.program
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_late_signal_does_not_change_the_exit_code(program, tmp_path: Path, number: signal.Signals) -> None:
    """A signal that comes once the report is written interrupts nothing."""
    epp = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
    faulty = ("--epp", f"{epp} --fault metadata-differs", "-k", "destination.completion")
    process = program("run", "-q", *faulty, "-o", tmp_path / "r", PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.send_signal(number)
    assert "non-conformant" in process.stdout.read()
    assert (process.wait(timeout=60), process.stderr.read()) == (1, "")


def test_interruptions_in_a_row_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("conformance.cli.interrupt.time.monotonic", lambda: now)
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)
    now += SAME_WISH / 2
    interrupt(signal.SIGINT, None)
    now += SAME_WISH / 2
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)


def test_a_second_interruption_counts_once_it_may_be_deliberate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("conformance.cli.interrupt.time.monotonic", lambda: now)
    interrupt = Interrupt()
    monkeypatch.setattr("conformance.cli.interrupt.signal.getsignal", lambda _: interrupt)
    second_is_another_wish()
    heeded = []
    for now in (100.0, 100.1, 101.0, 102.0, 103.9, 104.0):
        try:
            interrupt(signal.SIGINT, None)
        except KeyboardInterrupt:
            heeded.append(now)
    assert heeded == [100.0, 101.0, 104.0]


@pytest.mark.smoke
@pytest.mark.program
def test_kube_and_pool_serve_until_they_are_interrupted(program, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "new" / "k c"
    kube = program("kube", "--pods", "2", "--kubeconfig", kubeconfig)
    pool = program("pool", "--pods", "2", "--queue", "7", "--endpoints-file", tmp_path / "endpoints")
    assert kube.stdout is not None
    assert pool.stdout is not None
    address = kube.stdout.readline().split()[3].rstrip(",")
    assert kube.stdout.readline().strip() == f"export KUBECONFIG={shlex.quote(str(kubeconfig))}"
    endpoints = [pool.stdout.readline().strip() for _ in range(2)]
    assert (tmp_path / "endpoints").read_text().split() == endpoints

    async def look() -> tuple[dict, str]:
        import httpx

        async with httpx.AsyncClient(trust_env=False) as client:
            pods = await client.get(f"{address}/api/v1/namespaces/default/pods")
            metrics = await client.get(f"http://{endpoints[0]}/metrics")
        return pods.json(), metrics.text

    pods, metrics = asyncio.run(look())
    assert [pod["metadata"]["name"] for pod in pods["items"]] == ["pod-1", "pod-2"]
    assert pods["items"][0]["status"]["podIP"].startswith("127.")
    waiting = next(line for line in metrics.splitlines() if line.startswith("vllm:num_requests_waiting"))
    assert waiting.endswith((" 7", " 7.0"))
    for process in (kube, pool):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


@pytest.mark.program
def test_an_epp_that_answers_headers_only_is_explained_at_the_gate(cli, tmp_path: Path, patient: Path) -> None:
    """The commonest naive EPP: without the gate, most scenarios wait in vain for the same answer."""
    ran = cli("run", "--smoke", "--profile", patient, "--epp", hostile("headers_only", 0), "-o", tmp_path / "r")
    assert ran.code == 4
    said = " ".join(ran.err.split())
    assert "it answers the headers of the first plain request and not its body: nothing came for 1 s" in said
    assert "body_mutation.streamed_response" in said
    assert "--body-mode none" in said
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} <= {"inconclusive"}


@pytest.mark.smoke
@pytest.mark.program
def test_an_epp_that_answers_headers_only_can_be_tested_without_bodies(cli, tmp_path: Path, patient: Path) -> None:
    flags = ("--profile", patient, "--epp", hostile("headers_only", 0), "--body-mode", "none")
    ran = cli("run", *flags, "-k", "destination.bodyless*", "-o", tmp_path / "r")
    assert ran.code == 4, ran.err  # a selection
    assert report(tmp_path / "r")["results"]
