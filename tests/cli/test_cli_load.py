"""`load`, end to end: on the bundled EPP, on broken ones, on one that goes away, and interrupted."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

REFERENCE = (
    f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
    "--log-level error"
)
WRONG = f"{REFERENCE} --fault metadata-differs"
UNKNOWN = "--variant refuses-unknown-models --model llama-3"
SHORT = ("--rate", "60", "--seconds", "1")

MIXED = """
pods: 6
mix:
  - {name: small, weight: 3}
  - {name: bodyless, exchange: {method: GET, body: none}}
  - {name: sse, exchange: {reply: {kind: sse, events: 3}, ending: drain}}
  - {name: subset, weight: 2, subsetOf: 2}
  - {name: aborted, exchange: {abort: destination}}
  - {name: slow, serviceTime: 0.2}
arrivals:
  - {seconds: 1, rate: [20, 80]}
  - {seconds: 0.6, burst: 10, every: 0.3}
  - {seconds: 0.5, concurrent: 4}
churn:
  - {change: remove, every: 0.4, lasts: 0.2}
  - {change: un-ready, every: 0.5, lasts: 0.2}
  - {change: restart, every: 0.6}
  - {change: saturate, every: 0.5, lasts: 0.2}
"""


def document(folder: Path) -> dict:
    return json.loads((folder / "load.json").read_text())


def verdicts(folder: Path) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in document(folder)["requirements"]}


@pytest.mark.smoke
@pytest.mark.program
def test_a_right_epp_is_conformant_and_every_exchange_is_judged(cli, tmp_path: Path) -> None:
    ran = cli("load", *SHORT, "-o", tmp_path)
    assert ran.code == 0, ran.out + ran.err
    found = document(tmp_path)
    assert found["exchanges"]["begun"] == found["exchanges"]["judged"] == 60
    assert found["exchanges"]["unfinished"] == 0
    assert {"EPP-DEST-01", "EPP-DEST-06", "ENV-16"} <= {
        one for one, said in verdicts(tmp_path).items() if said == "pass"
    }
    assert 0 < found["memory"]["hitRate"] < 1
    assert found["memory"]["remembered"] + found["memory"]["judgedInFull"] == 60
    times = found["figures"]["milliseconds"]
    assert times["timeToPick"]["count"] == times["addedTimeToFirstByte"]["count"] == times["lateness"]["count"] == 60
    assert "conformant under this load" in ran.out
    if sys.platform == "linux":
        assert found["figures"]["target"]["firstMiB"] > 1
        assert found["figures"]["suite"]["firstDescriptors"] > 1


@pytest.mark.program
@pytest.mark.parametrize(("seconds", "broken"), [(0.5, set()), (1.5, {"ENV-16"})])
def test_a_close_at_the_response_passes_only_if_it_may_have_been_sent_before(
    cli, tmp_path: Path, seconds: float, broken: set[str]
) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(f"mix: [{{name: long, serviceTime: {seconds}}}]\narrivals: [{{seconds: 1, rate: 10}}]\n")
    ran = cli("load", file, "--epp", f"{REFERENCE} --fault closes-when-a-response-comes", "-o", tmp_path / "r")
    assert {name for name, said in verdicts(tmp_path / "r").items() if said == "fail"} == broken, ran.out + ran.err


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds")
def test_memory_is_that_of_what_a_start_script_starts(cli, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text('"$@" &\nwait\n')
    ran = cli("load", *SHORT, "--epp", REFERENCE.replace("cmd:", f"cmd:sh {script} "), "-o", tmp_path / "r")
    assert ran.code == 0, ran.out + ran.err
    target = document(tmp_path / "r")["figures"]["target"]
    assert target["firstMiB"] > 20  # a shell has one or two, Python with gRPC more
    assert target["firstDescriptors"] > 8


@pytest.mark.program
def test_a_mix_in_a_pool_that_changes(cli, tmp_path: Path) -> None:
    """Requests of all kinds, in all ways of arriving, while pods come, go, restart and fill up."""
    file = tmp_path / "load.yaml"
    file.write_text(MIXED)
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 0, ran.out + ran.err
    found = document(tmp_path / "r")
    assert set(found["exchanges"]["byRequest"]) == {"small", "bodyless", "sse", "subset", "aborted", "slow"}
    assert set(found["pool"]["changes"]) <= {"remove", "un-ready", "restart", "saturate"}
    assert len(found["pool"]["changes"]) > 1
    assert found["exchanges"]["judged"] == found["exchanges"]["begun"] >= 20


@pytest.mark.program
@pytest.mark.parametrize(
    ("fault", "requirement"), [("metadata-differs", "EPP-DEST-05"), ("stranger-in-list", "EPP-DEST-06")]
)
def test_a_fault_is_found_in_every_exchange_with_evidence_to_judge_again(cli, tmp_path, fault, requirement) -> None:
    ran = cli("load", *SHORT, "-o", tmp_path, "--epp", f"{REFERENCE} --fault {fault}")
    assert ran.code == 1, ran.out + ran.err
    assert verdicts(tmp_path)[requirement] == "fail"
    found = document(tmp_path)
    assert found["exchanges"]["failed"] == found["exchanges"]["judged"]
    assert f"FAIL {requirement} in " in ran.out
    examples = [one for one in found["findings"] if one["requirement"] == requirement]
    assert examples
    assert len(examples) < found["exchanges"]["judged"]
    again = cli("judge", tmp_path / "load-evidence.ndjson.gz")
    assert again.code == 1
    assert requirement in again.out


@pytest.mark.program
def test_a_pod_that_is_gone_may_not_be_picked_after_the_grace_time(cli, tmp_path: Path) -> None:
    """An EPP that keeps picking what has left the pool is told from one that follows."""
    file = tmp_path / "load.yaml"
    file.write_text(
        "pods: 3\nmix: [{name: plain}]\narrivals: [{seconds: 2.5, rate: 60}]\n"
        "churn: [{change: remove, every: 0.3, lasts: 0.1}]\n"
    )
    stale = f"{REFERENCE} --fault removed-endpoint-kept"
    ran = cli("load", file, "-o", tmp_path / "r", "--epp", stale, "--grace", "0.5")
    assert ran.code == 1, ran.out + ran.err
    assert verdicts(tmp_path / "r")["EPP-DEST-06"] == "fail"
    within = cli("load", file, "-o", tmp_path / "r", "--epp", REFERENCE, "--grace", "0.5")
    assert within.code == 0, within.out + within.err


@pytest.mark.program
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_pod_that_joined_serves_what_was_sent_to_it(cli, tmp_path: Path, processes: str) -> None:
    """The EPP is told of the endpoint that it picked, however late that joined the pool."""
    file, told = tmp_path / "load.yaml", tmp_path / "told"
    file.write_text(
        "pods: 3\nmix: [{name: plain}, {name: subset, subsetOf: 1}]\narrivals: [{seconds: 2, rate: 50}]\n"
        "churn: [{change: remove, every: 0.2, lasts: 0.1}]\n"
    )
    watching = tmp_path / "watching.py"
    watching.write_text(f"""
from reference_epp.__main__ import main
from reference_epp.service import Service

parse = Service.parse

def watched(self, raw):
    message = parse(self, raw)
    if message.HasField("response_headers"):
        fields = message.metadata_context.filter_metadata["envoy.lb"].fields
        pair = [fields["x-gateway-destination-endpoint" + end].string_value for end in ("", "-served")]
        with open({str(told)!r}, "a") as file:
            print(*pair, file=file)
    return message

Service.parse = watched
main()
""")
    epp = REFERENCE.replace("-m reference_epp", str(watching))
    ran = cli("load", file, "--processes", processes, "-o", tmp_path / "r", "--epp", epp)
    assert ran.code == 0, ran.out + ran.err
    pairs = [line.split() for line in told.read_text().splitlines()]
    assert len({picked for picked, _ in pairs}) > 3, "none of those that joined was picked"
    assert [pair for pair in pairs if pair[0].split(",")[0] != pair[1]] == []


@pytest.mark.program
def test_a_process_that_ends_is_one_finding(cli, tmp_path: Path) -> None:
    """What was lost with it is counted, and accuses it of nothing more."""
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, sys, threading\n"
        "from reference_epp.__main__ import main\n"
        "threading.Timer(2.5, os._exit, (7,)).start()\n"
        "main()\n"
    )
    epp = REFERENCE.replace("-m reference_epp", str(dying))
    ran = cli("load", "--concurrent", "16", "--seconds", "60", "-o", tmp_path / "r", "--epp", epp)
    assert ran.code == 1, ran.out + ran.err
    assert [one for one, said in verdicts(tmp_path / "r").items() if said == "fail"] == ["ENV-27"]
    assert document(tmp_path / "r")["crashes"][0]["code"] == 7
    lost = document(tmp_path / "r")["exchanges"]["lostWithTheProcess"]
    assert 0 < lost < 16 * 100, "each of the sixteen waits a moment before the next takes its place"
    assert not document(tmp_path / "r")["complete"]


@pytest.mark.program
def test_metrics_are_scraped_while_it_runs(program, tmp_path: Path) -> None:
    process = program(
        "load", "--rate", "50", "--seconds", "60", "--json-lines", "--metrics-port", "0", "-o", tmp_path,
        "--epp", f"{REFERENCE} --fault metadata-differs",
    )  # fmt: skip
    said = ""
    while "metrics: " not in said:
        said = process.stderr.readline()
        assert said
    json.loads(process.stdout.readline())
    json.loads(process.stdout.readline())
    page = httpx.get(said.split()[-1]).text
    found = {one.name: one for one in text_string_to_metric_families(page)}
    outcomes = {one.labels["outcome"]: one.value for one in found["epp_load_exchanges"].samples}
    assert outcomes["failed"] > 0
    (broken,) = (s for s in found["epp_load_violations"].samples if s.labels["requirement"] == "EPP-DEST-05")
    assert broken.value == outcomes["failed"]
    times = {one.name.rpartition("_")[2]: one.value for one in found["epp_load_time_to_pick_seconds"].samples}
    assert times["count"] == outcomes["failed"] + outcomes["undecided"] + outcomes["conformant"]
    assert times["bucket"] == times["count"]
    assert {"epp_load_lateness_seconds", "epp_load_exchanges_under_way", "epp_load_remembered_ratio"} < set(found)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert document(tmp_path)["exchanges"]["judged"] >= outcomes["failed"]


def test_a_port_for_metrics_that_is_taken_is_refused(cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = cli("load", *SHORT, "-o", tmp_path, "--metrics-port", str(taken.getsockname()[1]))
    assert ran.code == 2
    assert "--metrics-port: 127.0.0.1:" in ran.err


@pytest.mark.program
def test_ctrl_c_gives_a_report_of_what_was_seen(program, tmp_path: Path) -> None:
    process = program("load", "--rate", "50", "--seconds", "60", "--json-lines", "-o", tmp_path)
    first = json.loads(process.stdout.readline())
    assert first["judged"] > 0
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert "the load ended before its time: it was interrupted after " in said
    found = document(tmp_path)
    assert not found["complete"]
    assert found["cutShort"] in (tmp_path / "load.html").read_text()
    assert found["exchanges"]["judged"] >= first["judged"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mix: [{name: a, wait: 3}]\n", "load.yaml:1:17: mix[0].wait"),
        ("mix: [{name: a}]\narrivals: [{seconds: 1}]\n", "give one of rate, concurrent and burst"),
        ("mix: [{name: a, exchange: {repeat: 3}}]\n", "`repeat` has no meaning under load"),
        ("mix: [{name: a, expect: {status: 200}}]\n", "`expect.status` has no meaning under load"),
        ("mix: [{name: a, expect: {answer: [endpont]}}]\n", "no answer is 'endpont'"),
        ("mix: [{name: a}, {name: a}]\n", "load.yaml:1:25: mix[1].name: two kinds of request are called a"),
        (
            "mix: [{name: a, exchange: {body: {size: 9, text: x}}}]\n",
            "give one of json, text, base64 and size, not text and size",
        ),
        ("mix: [{name: a}]\nchurn: [{change: explode, every: 1}]\n", "load.yaml:2:"),
        (
            "mix: [{name: a}]\nchurn: [{change: restart, every: 1, lasts: 2}]\n",
            "load.yaml:2:9: churn[0]: `lasts` has no meaning for `restart`",
        ),
        (
            "mix: [{name: a}]\narrivals: [{seconds: 1, rate: 5, every: 2}]\n",
            "load.yaml:2:12: arrivals[0]: `every` is the time between two bursts, and has no meaning beside `rate`",
        ),
        ("mix:\n- {name: a, exchange: {subset: ['{q1}']}}\n", "load.yaml:2:33: mix[0].exchange.subset[0]: {q1} is no"),
        (
            "mix:\n- {name: a, exchange: {subset: [p1]}}\n",
            "mix[0].exchange.subset[0]: p1 is no endpoint",
        ),
        ("mix: []\n", "load.yaml:1:"),
        ("mix: [{name: a, weight: .inf}]\n", "load.yaml:1:25: mix[0].weight"),
        ("mix: [{name: a}]\narrivals: [{seconds: 1, rate: [.inf, 20]}]\n", "load.yaml:2:"),
        ("mix: [{name: a}]\narrivals: [{seconds: 1, rate: [.nan, 20]}]\n", "load.yaml:2:"),
        (
            "mix: [{name: a}]\narrivals: [{seconds: .nan, rate: 5}]\n",
            "load.yaml:2:22: arrivals[0].seconds: expected a number, got .nan",
        ),
        ("mix: [{name: a}]\narrivals: [{seconds: 1, rate: [-5, 20]}]\n", "a rate is above 0"),
        ("mix: [{name: a}]\narrivals: [{seconds: 1, rate: [0, 0]}]\n", "a rate is above 0"),
        ("mix: [{name: a}]\narrivals: [{seconds: 1, rate: 1.0e+9}]\n", "a rate is above 0"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(cli, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(text)
    ran = cli("load", file, "-o", tmp_path / "r")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize("flags", [("--rate", "inf"), ("--rate", "1e300"), ("--concurrent", "1000000")])
def test_a_number_beyond_all_bounds_is_refused(cli, tmp_path: Path, flags: tuple[str, str]) -> None:
    ran = cli("load", *flags, "-o", tmp_path / "r")
    assert ran.code == 2
    assert flags[0] in ran.err


@pytest.mark.parametrize(
    ("flags", "text", "said"),
    [
        (("--concurrent", "20000"), "", "concurrent: 20000 is more than --at-once lets begin, which is 10000"),
        (("--at-once", "5"), "arrivals: [{seconds: 1, burst: 6}]", "burst: 6 is more than --at-once lets begin"),
    ],
)
def test_more_at_a_time_than_may_begin_is_refused(cli, tmp_path: Path, flags: tuple, text: str, said: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(f"mix: [{{name: a}}]\n{text}\n")
    ran = cli("load", file, *flags, "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8011", "-o", tmp_path / "r")
    assert ran.code == 2
    assert said in ran.err
    assert "add --at-once" in ran.err


def test_a_load_is_judged_by_one_version(cli, tmp_path: Path) -> None:
    for flags in (("all",), ("1.0.0", "--protocol-version", "next")):
        ran = cli("load", "--protocol-version", *flags, "-o", tmp_path / "r")
        assert ran.code == 2
        assert "a load is judged by one version, not by " in ran.err


def test_pods_are_not_asked_for_where_endpoints_are_fixed(cli, tmp_path: Path) -> None:
    ran = cli("load", "--pods", "9", "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8011", "-o", tmp_path / "r")
    assert ran.code == 2
    assert "--pods makes a pool, and this target's endpoints are fixed" in ran.err


@pytest.mark.parametrize("address", ["192.0.2.1:9002", "127.epp.invalid:9002"])
def test_another_machine_is_loaded_only_on_purpose(cli, tmp_path: Path, address: str) -> None:
    ran = cli("load", "--epp", address, "--endpoints", "127.0.0.1:8011", "-o", tmp_path)
    assert ran.code == 2
    assert "--allow-remote" in ran.err


@pytest.mark.program
def test_a_load_goes_on_when_the_reader_of_its_lines_is_gone(program, tmp_path: Path) -> None:
    """Its exit code says what came out, as of `| head -1`."""
    load = program("load", "--rate", "20", "--seconds", "3", "--json-lines", "--epp", WRONG, "-o", tmp_path)
    assert load.stdout.readline()
    load.stdout.close()
    said = load.stderr.read()
    assert load.wait(timeout=30) == 1, said
    assert verdicts(tmp_path)["EPP-DEST-05"] == "fail"


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="makes a pipe small")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_load_goes_on_when_its_reader_stops_reading(tmp_path: Path, stream: str) -> None:
    """Neither its requests nor its end wait for a reader."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writes, bytes(3900))  # as if it had gone on for long: there is room for a line or two
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writes}
    flags = ["--json-lines"] if stream == "stdout" else []
    command = [sys.executable, "-m", "conformance", "load", "--rate", "20", "--seconds", "2", "-o", str(tmp_path)]
    process = subprocess.Popen([*command, *flags], **said, text=True)
    try:
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(reads)
        os.close(writes)
    assert process.returncode == 0, error
    assert document(tmp_path)["exchanges"]["judged"] == 40
    assert stream == "stderr" or "lines were not written: their reader stopped reading" in error


@pytest.mark.program
def test_an_earlier_report_stays_whole_until_the_next_takes_its_place(cli, tmp_path: Path) -> None:
    assert cli("load", *SHORT, "-o", tmp_path, "--epp", WRONG).code == 1
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    ran = cli("load", *SHORT, "-o", tmp_path, "--epp", "cmd:false {endpointsFile}")
    assert ran.code == 4, ran.out + ran.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert cli("judge", tmp_path).code == 1
    (tmp_path / "locust_stats.csv").write_text("those of an earlier load by workers")
    assert cli("load", *SHORT, "-o", tmp_path).code == 0
    assert {path.name for path in tmp_path.iterdir()} == set(before)
    assert cli("judge", tmp_path).code == 2  # there is nothing to show


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="needs a device that is always full")
def test_a_full_disk_is_reported_with_the_files_that_were_written(cli, tmp_path: Path) -> None:
    """What the load came to is printed, and where there was no room."""
    (tmp_path / "load.json.new").symlink_to("/dev/full")
    ran = cli("load", *SHORT, "-o", tmp_path, "--epp", WRONG)
    assert ran.code == 3
    assert "FAIL EPP-DEST-05" in ran.out
    assert f"{tmp_path}/load.json: No space left on device" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_pool_that_can_not_change_is_not_churned(cli, tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("mix: [{name: a}]\nchurn: [{change: remove, every: 1}]\n")
    ran = cli("load", file, "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8011", "-o", tmp_path / "r")
    assert ran.code == 2
    assert "load.yaml:2:18: churn[0].change: `remove` needs a pool that changes; this target's" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("churn: [{change: saturate, every: 30}]", "load.yaml:3:35: churn[0].every: the first comes after 30 s, and"),
        ("pods: 1\nchurn: [{change: remove, every: 1}]", "load.yaml:4:18: churn[0].change: `remove` leaves one pod"),
    ],
)
def test_a_change_that_can_not_come_is_refused_with_its_place(cli, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(f"mix: [{{name: a}}]\narrivals: [{{seconds: 3, rate: 9}}]\n{text}\n")
    ran = cli("load", file, "-o", tmp_path / "r")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.program
def test_a_change_that_no_pick_can_violate_is_reported(cli, tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(
        "mix: [{name: a}]\narrivals: [{seconds: 1, rate: 30}]\n"
        "churn: [{change: un-ready, every: 0.4, lasts: 0.2}, {change: remove, every: 0.4}]\n"
    )
    for grace, changes in (("0.3", ["un-ready"]), ("0.7", ["un-ready", "remove"]), ("0.1", [])):
        ran = cli("load", file, "--grace", grace, "-o", tmp_path / "r")
        assert ran.code == 0, ran.out + ran.err
        assert [one["change"] for one in document(tmp_path / "r")["pool"]["blind"]] == changes
        assert [f"after churn `{one}` no pick could be wrong: " in ran.out for one in ("un-ready", "remove")] == [
            one in changes for one in ("un-ready", "remove")
        ]


@pytest.mark.program
def test_requests_beyond_the_capacity_of_a_slow_target_are_reported(cli, tmp_path: Path) -> None:
    """The generator is not blamed for them."""
    file = tmp_path / "load.yaml"
    file.write_text("mix: [{name: long, serviceTime: 0.2}]\narrivals: [{seconds: 1, rate: 200}]\n")
    ran = cli("load", file, "--at-once", "1", "-o", tmp_path / "r")
    assert ran.code == 0, ran.out + ran.err
    found = document(tmp_path / "r")
    assert found["generator"]["notBegun"] > 0
    assert found["generator"]["tooManyUnderWay"] == found["generator"]["notBegun"]
    assert "as 1 were under way (`--at-once`): the target was that far behind" in ran.out
    assert "its time was over" not in ran.out


# -- several processes -------------------------------------------------------------------------------------------------


@pytest.mark.program
def test_processes_share_the_requests_in_a_pool_that_changes(cli, tmp_path: Path) -> None:
    """Each request that is due is begun by one of them, and the results of all are one."""
    file = tmp_path / "load.yaml"
    file.write_text(MIXED)
    ran = cli("load", file, "--processes", "2", "-o", tmp_path / "r", "--epp", REFERENCE)
    assert ran.code == 0, ran.out + ran.err
    found = document(tmp_path / "r")
    exchanges, generator = found["exchanges"], found["generator"]
    assert generator["processes"] == len(found["figures"]["generators"]) == 2
    assert generator["due"] == exchanges["begun"] == exchanges["judged"] >= 70
    assert sum(exchanges["byRequest"].values()) == exchanges["judged"]
    assert len(found["pool"]["changes"]) > 1
    assert found["memory"]["remembered"] + found["memory"]["judgedInFull"] >= exchanges["judged"]
    assert found["figures"]["milliseconds"]["lateness"]["count"] == exchanges["begun"]


@pytest.mark.smoke
@pytest.mark.program
def test_processes_find_a_fault_each_and_keep_its_evidence_once(cli, tmp_path: Path) -> None:
    epp = f"{REFERENCE} --fault metadata-differs"
    ran = cli("load", *SHORT, "--processes", "2", "-o", tmp_path, "--epp", epp)
    assert ran.code == 1, ran.out + ran.err
    found = document(tmp_path)
    assert found["exchanges"]["failed"] == found["exchanges"]["judged"] == 60
    [row] = [row for row in found["requirements"] if row["id"] == "EPP-DEST-05"]
    assert row["exchanges"] == {"fail": 60}
    examples = [one["episode"] for one in found["findings"] if one["requirement"] == "EPP-DEST-05"]
    assert 0 < len(examples) == len(set(examples)) < 60
    again = cli("judge", tmp_path / "load-evidence.ndjson.gz")
    assert again.code == 1
    assert "EPP-DEST-05" in again.out


@pytest.mark.program
def test_processes_know_when_a_pod_has_gone(cli, tmp_path: Path) -> None:
    """An EPP that keeps picking what has left the pool is told from one that follows, by each process."""
    file = tmp_path / "load.yaml"
    file.write_text(
        "pods: 3\nmix: [{name: plain}]\narrivals: [{seconds: 2.5, rate: 60}]\n"
        "churn: [{change: remove, every: 0.3, lasts: 0.1}]\n"
    )
    stale = f"{REFERENCE} --fault removed-endpoint-kept"
    two = ("load", file, "--processes", "2", "--grace", "0.5", "-o", tmp_path / "r")
    ran = cli(*two, "--epp", stale)
    assert ran.code == 1, ran.out + ran.err
    assert verdicts(tmp_path / "r")["EPP-DEST-06"] == "fail"
    within = cli(*two, "--epp", REFERENCE)
    assert within.code == 0, within.out + within.err


@pytest.mark.program
def test_a_target_that_ends_is_one_finding_of_several_processes(cli, tmp_path: Path) -> None:
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, sys, threading\n"
        "from reference_epp.__main__ import main\n"
        "threading.Timer(4, os._exit, (7,)).start()\n"
        "main()\n"
    )
    epp = REFERENCE.replace("-m reference_epp", str(dying))
    ran = cli(
        "load", "--concurrent", "16", "--seconds", "60", "--processes", "2", "-o", tmp_path / "r", "--epp", epp
    )  # fmt: skip
    assert ran.code == 1, ran.out + ran.err
    assert [one for one, said in verdicts(tmp_path / "r").items() if said == "fail"] == ["ENV-27"]
    assert len(document(tmp_path / "r")["crashes"]) == 1


@pytest.mark.program
def test_ctrl_c_gives_a_report_of_what_all_processes_saw(program, tmp_path: Path) -> None:
    process, first = until_requests(program, tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert "the load ended before its time: it was interrupted after " in said
    found = document(tmp_path)
    assert not found["complete"]
    assert found["cutShort"] in (tmp_path / "load.html").read_text()
    assert found["exchanges"]["judged"] >= first["judged"]


@pytest.mark.program
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_generator_process_that_ends_is_trouble_of_the_suite(program, tmp_path: Path) -> None:
    process, _ = until_requests(program, tmp_path)
    generators = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(generators) == 2
    os.kill(int(generators[0]), signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 3, said
    assert "signal 9" in said


@pytest.mark.program
@pytest.mark.skipif(sys.platform == "win32", reason="a process is stopped by a signal")
def test_a_standstill_of_the_suite_is_not_held_against_the_target(program, tmp_path: Path) -> None:
    """What was answered meanwhile is read before it is said what was not."""
    made = tmp_path / "profile.yaml"
    command = [*REFERENCE.removeprefix("cmd:").split(), "--objective", "batch=-1"]
    limits = {"answer": 1, "convergence": 1}
    made.write_text(json.dumps({"timeouts": limits, "discovery": {"file": {}}, "start": {"command": command}}))
    process, _ = until_requests(program, tmp_path, "--concurrent", "20", "--seconds", "4", "--profile", made)
    for _ in range(2):
        process.send_signal(signal.SIGSTOP)
        assert not select.select([process.stdout], [], [], 1.5)[0]
        process.send_signal(signal.SIGCONT)
        process.stdout.readline()
    _, said = process.communicate(timeout=60)
    assert "fail" not in verdicts(tmp_path).values(), said
    assert process.returncode in (0, 3), said


@pytest.mark.program
@pytest.mark.parametrize("way", ["--rate", "--concurrent"])
def test_requests_without_a_client_prove_nothing(cli, tmp_path: Path, way: str) -> None:
    """They are over as soon as they begin, also where each makes the next begin; and no rule was seen to hold."""
    file = tmp_path / "load.yaml"
    file.write_text("mix: [{name: gone, exchange: {abort: request-headers}}]\n")
    ran = cli("load", file, way, "5", "--seconds", "0.5", "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert document(tmp_path / "r")["exchanges"]["judged"] > 0


@pytest.mark.program
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_while_the_last_exchanges_are_awaited_leaves_the_load_incomplete(
    program, tmp_path: Path, processes: str
) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("mix: [{name: slow, serviceTime: 40}]\n")
    process = program(
        "load", file, "--rate", "20", "--seconds", "1.2", "--processes", processes, "--json-lines", "-o", tmp_path
    )
    process.stdout.readline()
    process.stdout.readline()  # the load is over, and what goes on is still told of
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert "it was interrupted while the last exchanges were awaited" in said
    found = document(tmp_path)
    assert not found["complete"]
    assert found["exchanges"]["unfinished"] == found["exchanges"]["begun"] - found["exchanges"]["judged"] > 0


@pytest.mark.program
def test_ctrl_c_of_several_processes_is_quiet_about_what_is_under_way(program, tmp_path: Path) -> None:
    """Their connections close last, and exchanges that had no pick yet are lost with them."""
    slow = f"{REFERENCE} --variant slow"
    process, _ = until_requests(
        program, tmp_path, "--rate", "200", "--seconds", "60", "--processes", "2", "--epp", slow
    )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert "exchanges were still under way" in said
    assert "Traceback" not in said


def until_requests(program, folder: Path, *flags: object):
    """A load (by default: by two processes), and the first line that it prints of exchanges."""
    flags = flags or ("--rate", "50", "--seconds", "60", "--processes", "2")
    process = program("load", *flags, "--json-lines", "-o", folder)
    for line in process.stdout:
        found = json.loads(line)
        if found["judged"]:
            return process, found
    raise AssertionError(process.stderr.read())


@pytest.mark.program
@pytest.mark.parametrize(
    ("flags", "asked", "right"),
    [
        (UNKNOWN, "body: {fields: {model: m2}}", False),
        (UNKNOWN, "body: {fields: {model: m2}}}, expect: {answer: [endpoint, 4xx]", True),
        ("--variant refuses-odd-queries", "path: '/v1/completions?x=%zz'", True),
    ],
)
def test_a_request_may_declare_that_it_can_be_refused(cli, tmp_path: Path, flags: str, asked: str, right: bool) -> None:
    load = tmp_path / "load.yaml"
    load.write_text(f"mix:\n  - {{name: refused, exchange: {{{asked}}}}}\n  - {{name: plain}}\n")
    ran = cli("load", load, "--epp", f"{REFERENCE} {flags}", *SHORT, "-o", tmp_path / "report")
    assert ran.code == (0 if right else 1), ran.out + ran.err
    assert verdicts(tmp_path / "report").get("EPP-DEST-01") == ("pass" if right else "fail")
    again = cli("judge", tmp_path / "report")
    assert right or (again.code == 1 and "EPP-DEST-01" in again.out), again.out + again.err


@pytest.mark.program
def test_an_epp_that_does_not_know_the_model_is_told_apart(cli, tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(f"""timeouts: {{start: 10}}
start:
  command: ["{sys.executable}", -m, reference_epp, --listen, "127.0.0.1:{{port}}",
    --endpoints-file, "{{endpointsFile}}", --variant, refuses-unknown-models, --model, m1]
discovery: {{file: {{}}}}
""")
    ran = cli("load", "--profile", profile, *SHORT, "-o", tmp_path)
    assert ran.code == 4
    assert "serves no model 'llama-3'" in ran.err


@pytest.mark.program
@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("mix: [{name: rare, weight: 1.0e-7}, {name: often, weight: 1.0e+6}]", 0, "no request `rare` was judged"),
        ("mix: [{name: a}]\narrivals: [{seconds: 0.5, rate: 0.1}]", 4, "no request was due"),
        (
            "mix: [{name: a}]\npods: 2\narrivals: [{seconds: 1.5, rate: 20}]\n"
            "churn: [{change: un-ready, every: 0.2, lasts: 60}, {change: remove, every: 0.7}]",
            0,
            "churn `remove` never happened",
        ),
        ("pods: 2\nmix: [{name: a, subsetOf: 3}]", 0, "no pick for `a` could be outside of its hint"),
        (
            "mix: [{name: a, subsetOf: 3}]\narrivals: [{seconds: 1, rate: 20}]\nchurn: [{change: restart, every: 0.3}]",
            0,
            "",
        ),
    ],
)
def test_requirements_that_were_never_observed_are_reported(
    cli, tmp_path: Path, text: str, code: int, told: str
) -> None:
    """A load that never asked for something shows nothing of it."""
    load = tmp_path / "load.yaml"
    load.write_text(text)
    flags = () if "arrivals" in text else SHORT
    ran = cli("load", load, *flags, "--seed", "1", "-o", tmp_path / "r")
    assert ran.code == code, ran.out + ran.err
    assert told in ran.out
    assert told or not re.search("never happened|no request|could be outside", ran.out)


@pytest.mark.program
@pytest.mark.parametrize(
    ("flags", "broken"),
    [
        ("", None),
        ("--fault none-eligible-means-all", "EPP-SUB-02"),
        ("--fault none-eligible-429", "EPP-SUB-02"),
    ],
)
def test_503_is_due_when_all_pods_of_a_hint_have_gone(cli, tmp_path: Path, flags: str, broken: str | None) -> None:
    load = tmp_path / "load.yaml"
    load.write_text("""
mix: [{name: subset, subsetOf: 1}]
arrivals: [{seconds: 8, rate: 30}]
churn: [{change: remove, every: 0.4, lasts: 0.2}]
""")
    ran = cli("load", load, "--epp", f"{REFERENCE} {flags}", "--grace", "0.3", "-o", tmp_path / "report")
    assert ran.code == (0 if broken is None else 1), ran.out + ran.err
    found = verdicts(tmp_path / "report")
    assert found.get("EPP-SUB-02") == ("pass" if broken is None else "fail")
    assert broken is None or cli("judge", tmp_path / "report").code == 1


@pytest.mark.program
def test_a_cached_subset_is_detected_when_its_pods_leave(cli, tmp_path: Path) -> None:
    load = tmp_path / "load.yaml"
    load.write_text("""
mix: [{name: subset, subsetOf: 3}]
pods: 6
arrivals: [{seconds: 8, rate: 50}]
churn: [{change: remove, every: 0.4, lasts: 0.2}]
""")
    epp = f"{REFERENCE} --fault cached-per-hint"
    ran = cli("load", load, "--epp", epp, "--grace", "0.3", "-o", tmp_path / "report")
    assert ran.code == 1, ran.out + ran.err
    assert verdicts(tmp_path / "report")["EPP-DEST-06"] == "fail"
