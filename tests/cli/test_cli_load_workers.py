"""`load --workers`: a master and two workers as processes of this machine, which talk as machines do."""

from __future__ import annotations

import csv
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
import zmq

REFERENCE = (
    f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
    "--log-level error"
)
SHORT = ("--rate", "60", "--seconds", "2")
LONG = ("--rate", "50", "--seconds", "60", "--json-lines")
STRANGE = (
    [],
    ["hello", None, "stranger"],
    ["epp-hello", None, "stranger"],
    ["epp-said", b"", "stranger"],
    ["heartbeat", None, "stranger"],
    ["quit", None, []],
    [{}, {}, {}],
)
"""Messages as Locust packs them, which say nothing that a worker says."""

LOCUSTFILE = "from conformance.load.locust_user import EppUser\n"


@pytest.fixture
def master(program: Callable, tmp_path: Path) -> Callable[..., tuple[subprocess.Popen[str], int]]:
    """Start a load that waits for workers; it and the port on which it does."""

    def start(*arguments: object, workers: int = 2, epp: str = REFERENCE) -> tuple[subprocess.Popen[str], int]:
        process = program(
            "load", *arguments, "--workers", workers, "--bind", "127.0.0.1:0", "-o", tmp_path / "r", "--epp", epp
        )
        said = ""
        for line in process.stderr:
            said += line
            if " workers on port " in line:
                return process, int(line.split()[-1])
        raise AssertionError(said)

    return start


@pytest.fixture
def worker(program: Callable) -> Callable[[int], subprocess.Popen[str]]:
    """Start a worker of the master at a port."""
    return lambda port: program("load-worker", f"127.0.0.1:{port}")


@pytest.fixture
def locust(program, tmp_path: Path) -> Callable[[int, str], subprocess.Popen[str]]:
    """Start Locust itself with a locustfile, as a worker of the master at a port."""

    def start(port: int, text: str = LOCUSTFILE) -> subprocess.Popen[str]:
        file = tmp_path / "locustfile.py"
        file.write_text(text)
        to_master = ("--worker", "--master-host=127.0.0.1", f"--master-port={port}")
        return program("-f", file, *to_master, module="locust")

    return start


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and all that it still printed."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out + (err or "")


def document(folder: Path) -> dict:
    return json.loads((folder / "r" / "load.json").read_text())


def statistics(folder: Path) -> dict[str, str]:
    """Locust's row of all requests."""
    with (folder / "r" / "locust_stats.csv").open(newline="") as file:
        return {row["Name"]: row for row in csv.DictReader(file)}["Aggregated"]


def until_requests(process: subprocess.Popen[str]) -> dict:
    """The first line that a load prints of exchanges, some of each worker."""
    for line in process.stdout:
        found = json.loads(line)
        if found["judged"]:
            return found
    raise AssertionError(process.stderr.read())


def generator_of(process: subprocess.Popen[str]) -> int:
    """The process in which a worker makes its requests."""
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


@pytest.mark.smoke
@pytest.mark.program
def test_a_worker_and_locust_itself_share_a_load_with_one_report(master, worker, locust, tmp_path: Path) -> None:
    load, port = master(*SHORT)
    workers = [worker(port), locust(port)]
    code, said = ended(load)
    assert code == 0, said
    assert [ended(one)[0] for one in workers] == [0, 0]
    found = document(tmp_path)
    exchanges, generator = found["exchanges"], found["generator"]
    assert found["complete"]
    assert generator["due"] == exchanges["begun"] == exchanges["judged"] == 120
    assert [one["judged"] for one in generator["workers"]] == [60, 60]
    assert len({one["name"] for one in generator["workers"]}) == generator["processes"] == 2
    assert all(one["complete"] for one in generator["workers"])
    assert len(found["figures"]["generators"]) == 2
    assert sum(exchanges["byRequest"].values()) == 120
    assert found["figures"]["milliseconds"]["timeToPick"]["count"] == 120
    assert found["memory"]["remembered"] + found["memory"]["judgedInFull"] == 120
    assert {row["id"]: row["verdict"] for row in found["requirements"]}["EPP-DEST-06"] == "pass"
    assert (statistics(tmp_path)["Request Count"], statistics(tmp_path)["Failure Count"]) == ("120", "0")
    assert "Worker " in (tmp_path / "r" / "load.html").read_text()


@pytest.mark.program
def test_a_fault_is_found_by_each_worker_and_its_evidence_kept_once(master, worker, cli, tmp_path: Path) -> None:
    load, port = master(*SHORT, epp=f"{REFERENCE} --fault metadata-differs")
    for _ in range(2):
        worker(port)
    code, said = ended(load)
    assert code == 1, said
    found = document(tmp_path)
    begun = found["exchanges"]["begun"]
    assert found["exchanges"]["failed"] == sum(one["failed"] for one in found["generator"]["workers"]) == begun
    assert min(one["failed"] for one in found["generator"]["workers"]) > 0
    [row] = [row for row in found["requirements"] if row["id"] == "EPP-DEST-05"]
    assert row["exchanges"] == {"fail": begun}
    examples = [one["episode"] for one in found["findings"] if one["requirement"] == "EPP-DEST-05"]
    assert 0 < len(examples) == len(set(examples)) < begun
    assert statistics(tmp_path)["Failure Count"] == str(begun)
    again = cli("judge", tmp_path / "r" / "load-evidence.ndjson.gz")
    assert again.code == 1
    assert "EPP-DEST-05" in again.out


@pytest.mark.program
def test_a_mix_of_requests_is_shared(master, worker, tmp_path: Path) -> None:
    """What a file says of requests reaches the workers as it is: bodies, answers, aborts, hints, endings."""
    file = tmp_path / "load.yaml"
    file.write_text(
        "pods: 6\n"
        "mix:\n"
        "  - {name: bodyless, exchange: {method: GET, body: none}}\n"
        "  - {name: sse, exchange: {reply: {kind: sse, events: 3}, ending: drain}}\n"
        "  - {name: subset, weight: 2, subsetOf: 2}\n"
        "  - {name: aborted, exchange: {abort: destination}}\n"
        "  - {name: large, exchange: {body: {size: 200000}}}\n"
        "  - {name: slow, serviceTime: 0.2}\n"
        "arrivals:\n"
        "  - {seconds: 1, rate: [20, 80]}\n"
        "  - {seconds: 0.6, burst: 10, every: 0.3}\n"
        "  - {seconds: 0.5, concurrent: 4}\n"
    )
    load, port = master(file)
    for _ in range(2):
        worker(port)
    code, said = ended(load)
    assert code == 0, said
    found = document(tmp_path)
    assert set(found["exchanges"]["byRequest"]) == {"bodyless", "sse", "subset", "aborted", "large", "slow"}
    assert found["exchanges"]["judged"] == sum(one["judged"] for one in found["generator"]["workers"]) >= 70


@pytest.mark.program
def test_unwritable_statistics_do_not_lose_the_report(master, worker, tmp_path: Path) -> None:
    load, port = master(*SHORT)
    (tmp_path / "r" / "locust_stats.csv").mkdir()
    for _ in range(2):
        worker(port)
    code, said = ended(load)
    assert code == 3, said
    assert "locust_stats.csv" in said
    assert "conformant under this load: 120 exchanges judged" in said
    assert document(tmp_path)["exchanges"]["judged"] == 120


@pytest.mark.program
def test_a_target_that_ends_is_one_finding_of_all_workers(master, worker, tmp_path: Path) -> None:
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from threading import Thread\n"
        "from reference_epp.__main__ import main\n"
        "def end():\n"
        "    with open(sys.argv.pop(1)) as pipe:\n"
        "        pipe.read()\n"
        "    os._exit(7)\n"
        "Thread(target=end, daemon=True).start()\n"
        "main()\n"
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    load, port = master(*LONG, epp=REFERENCE.replace("-m reference_epp", f"{dying} {pipe}"))
    for _ in range(2):
        worker(port)
    with pipe.open("w"):
        until_requests(load)
    code, said = ended(load)
    assert code == 1, said
    found = document(tmp_path)
    assert [row["id"] for row in found["requirements"] if row["verdict"] == "fail"] == ["ENV-27"]
    assert len(found["crashes"]) == 1


# -- workers that go, or come late -------------------------------------------------------------------------------------


@pytest.mark.program
def test_a_worker_that_is_killed_leaves_the_load_incomplete(master, worker, tmp_path: Path) -> None:
    slow = tmp_path / "load.yaml"
    slow.write_text("mix: [{name: slow, serviceTime: 0.5}]")
    load, port = master(slow, *LONG)
    one, other = worker(port), worker(port)
    first = until_requests(load)
    one.kill()
    code, said = ended(load)
    assert code == 4, said
    assert "it was lost" in said
    found = document(tmp_path)
    assert not found["complete"]
    assert "it was lost" in found["cutShort"]
    exchanges = found["exchanges"]
    assert exchanges["judged"] >= first["judged"]
    assert exchanges["judged"] == sum(one["judged"] for one in found["generator"]["workers"])
    assert exchanges["begun"] == exchanges["judged"] + exchanges["unfinished"]
    assert ended(other)[0] == 0


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("with_locust", [False, True])
def test_a_generator_that_is_killed_leaves_the_load_incomplete(master, worker, locust, with_locust, tmp_path) -> None:
    load, port = master(*LONG)
    one, other = locust(port) if with_locust else worker(port), worker(port)
    until_requests(load)
    os.kill(generator_of(one), signal.SIGKILL)
    code, said = ended(load)
    assert code == 4, said
    assert "its generator process ended with -9" in document(tmp_path)["cutShort"]
    assert [ended(one)[0], ended(other)[0]] == [0, 0]


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_ctrl_c_of_a_worker_ends_its_requests(master, worker, tmp_path: Path) -> None:
    load, port = master(*LONG)
    one, _ = worker(port), worker(port)
    until_requests(load)
    generator = os.pidfd_open(generator_of(one))
    one.send_signal(signal.SIGINT)
    code, said = ended(one)
    assert code == 4, said
    assert "Traceback" not in said
    assert select.select([generator], [], [], 0)[0], "it is still there"
    os.close(generator)
    code, said = ended(load)
    assert code == 4, said
    assert "it was lost" in document(tmp_path)["cutShort"]


@pytest.mark.program
def test_ctrl_c_gives_a_report_and_ends_the_workers(master, worker, tmp_path: Path) -> None:
    load, port = master(*LONG)
    workers = [worker(port), worker(port)]
    first = until_requests(load)
    load.send_signal(signal.SIGINT)
    code, said = ended(load)
    assert code == 4, said
    found = document(tmp_path)
    assert not found["complete"]
    assert found["exchanges"]["judged"] >= first["judged"]
    assert [ended(one)[0] for one in workers] == [0, 0]


@pytest.mark.program
def test_ctrl_c_while_it_waits_for_workers_says_no_more(master) -> None:
    loading, _ = master(*SHORT)
    loading.send_signal(signal.SIGINT)
    _, said = loading.communicate(timeout=30)
    assert loading.returncode == 4
    assert said.strip() == "interrupted"


@pytest.mark.program
def test_a_worker_that_comes_late_takes_no_share(master, worker, tmp_path: Path) -> None:
    load, port = master(*LONG)
    workers = [worker(port), worker(port)]
    until_requests(load)
    workers.append(worker(port))
    assert "connected to" in workers[-1].stderr.readline()
    before = json.loads(load.stdout.readline())
    while json.loads(load.stdout.readline())["judged"] < before["judged"] + 100:  # two seconds more
        assert load.poll() is None
    load.send_signal(signal.SIGINT)
    code, said = ended(load)
    assert code == 4, said
    found = document(tmp_path)
    assert found["cutShort"].startswith("it was interrupted after ")  # no worker was lost
    assert len(found["generator"]["workers"]) == 2
    assert found["exchanges"]["judged"] == sum(one["judged"] for one in found["generator"]["workers"])
    assert [ended(one)[0] for one in workers] == [0, 0, 0]


# -- what does not fit -------------------------------------------------------------------------------------------------


@pytest.mark.program
def test_too_few_workers_are_not_waited_for_without_end(master, worker, tmp_path: Path) -> None:
    load, port = master(*SHORT, "--wait", "12")
    one = worker(port)
    code, said = ended(load)
    assert code == 4, said
    assert "1 of 2 workers connected" in said
    assert f"epp-conformance load-worker HOST:{port}" in said
    assert not (tmp_path / "r" / "load.json").exists()
    assert ended(one)[0] == 0


@pytest.mark.program
def test_a_worker_of_another_version_is_refused(master, worker, locust) -> None:
    load, port = master(*SHORT)
    other = locust(port, "import conformance.load.locust_user as own\nown.SUITE = '0.0.7'\n" + LOCUSTFILE)
    worker(port)
    code, said = ended(load)
    assert code == 2, said
    assert "has epp-conformance 0.0.7" in said
    assert "install the same version" in said
    code, said = ended(other)
    assert code == 2
    assert "has epp-conformance 0.0.7" in said


@pytest.mark.program
def test_messages_of_workers_are_validated(master, worker, locust) -> None:
    load, port = master(*SHORT)
    locust(
        port, LOCUSTFILE + "EppUser._show_all = lambda self, runner: runner.send_message('epp-said', b'{\"kind\":1}')\n"
    )
    worker(port)
    code, said = ended(load)
    assert code == 3, said
    assert "can't be read" in said


@pytest.mark.program
def test_strangers_at_the_port_do_not_disturb(master, worker, tmp_path: Path) -> None:
    load, port = master(*SHORT)
    with socket.create_connection(("127.0.0.1", port)) as stranger, zmq.Context() as context:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with context.socket(zmq.DEALER) as peer:
            peer.setsockopt(zmq.IDENTITY, b"stranger")
            peer.connect(f"tcp://127.0.0.1:{port}")
            for message in (b"", b"\xc1", b"\x93\xa4", b"\x01", *map(msgpack.dumps, STRANGE)):
                peer.send(message)
            workers = [worker(port), worker(port)]
            code, said = ended(load)
    assert code == 0, said
    assert "Traceback" not in said
    assert document(tmp_path)["exchanges"]["judged"] == 120
    assert [ended(one)[0] for one in workers] == [0, 0]


@pytest.mark.program
def test_ctrl_c_of_a_worker_without_a_master_is_no_success(program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        one = program("load-worker", f"127.0.0.1:{silent.getsockname()[1]}")
        with silent.accept()[0]:
            one.send_signal(signal.SIGINT)
            code, said = ended(one)
    assert code == 4, said
    assert "Traceback" not in said


def test_a_worker_without_a_master_says_so(cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ran = cli("load-worker", f"127.0.0.1:{silent.getsockname()[1]}", "--wait", "1")
    assert ran.code == 4
    assert "no master answered at 127.0.0.1:" in ran.err


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", ":5557"])
def test_a_wrong_address_of_a_master_is_refused(cli, address: str) -> None:
    ran = cli("load-worker", address)
    assert ran.code == 2
    assert "HOST:PORT" in ran.err


@pytest.mark.parametrize(
    ("line", "key"),
    [("churn: [{change: remove, every: 1}]\n", "churn"), ("trouble: [{kind: metrics-lost, at: 1}]\n", "trouble")],
)
def test_a_pool_that_changes_is_for_one_machine(cli, tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("mix: [{name: a}]\narrivals: [{seconds: 5, rate: 9}]\n" + line)
    ran = cli("load", file, "--workers", "2", "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 2
    assert "load.yaml:3:" in ran.err
    assert f": {key}: machines have no common clock" in ran.err
    assert "--processes" in ran.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--workers", "2", "--processes", "2"), "give one of them"),
        (("--wait", "5"), "--wait is for workers"),
        (("--bind", "127.0.0.1:0"), "--bind is for workers"),
        (("--workers", "2", "--bind", "x"), "--bind 'x' is no address"),
        (("--workers", "2", "--bind", ""), "what is given for --bind is empty"),
        (("--workers", "2", "--bind", "0.0.0.0:0"), "--allow-remote"),
        (("--workers", "2", "--bind", ":0", "--allow-remote"), "can't reach a target at 127.0.0.1:"),
    ],
)
def test_flags_that_do_not_fit_are_refused(cli, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    ran = cli("load", *SHORT, *flags, "-o", tmp_path / "r")
    assert ran.code == 2
    assert said in ran.err


def test_a_port_for_workers_that_is_taken_is_refused(cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = cli("load", *SHORT, "--workers", "2", "--bind", f"127.0.0.1:{port}", "-o", tmp_path / "r")
    assert ran.code == 2
    assert f"--bind: 127.0.0.1:{port}: " in ran.err


@pytest.mark.program
@pytest.mark.parametrize("command", [("load", "--workers", "2"), ("load-worker", "127.0.0.1:5557")])
def test_without_locust_a_command_names_the_extra(program, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "locust.py").write_text("raise ModuleNotFoundError('No module named locust')\n")
    process = program(*command, PYTHONPATH=str(tmp_path))
    code, said = ended(process)
    assert code == 2, said
    assert "pip install 'epp-conformance[load]'" in said
