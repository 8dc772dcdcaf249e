"""`epp-conformance pool`: pods of every engine, with ranks, adapters and faults, by flags or from a file."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from fake_modelserver import GENERATIONS

pytestmark = pytest.mark.program

Serve = Callable[..., list[str]]


@pytest.fixture
def serve(program) -> Iterator[Serve]:
    """Start `pool` with these flags; where its pods are, `lines` of them."""
    started = []

    def start(*flags: object, lines: int = 1) -> list[str]:
        process = program("pool", *flags)
        started.append(process)
        return [process.stdout.readline().strip() for _ in range(lines)]

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, process.stderr.read()


def page(endpoint: str, path: str = "/metrics") -> dict[str, float]:
    with httpx.Client(trust_env=False, timeout=60) as client:
        got = client.get(f"http://{endpoint}{path}")
    assert got.status_code == 200, got.text
    lines = [line for line in got.text.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def value(found: dict[str, float], name: str) -> list[float]:
    return [number for key, number in found.items() if key.partition("{")[0] == name]


@pytest.mark.parametrize(
    ("engine", "path", "queue"),
    [
        ("vllm", "/metrics", "vllm:num_requests_waiting"),
        ("sglang", "/metrics", "sglang:num_queue_reqs"),
        ("trtllm-serve", "/prometheus/metrics", "trtllm_num_requests_waiting"),
    ],
)
def test_pods_are_of_the_engine_that_is_named(serve: Serve, engine: str, path: str, queue: str) -> None:
    generation = next(iter(GENERATIONS[engine]))
    (endpoint,) = serve("--pods", 1, "--engine", engine, "--generation", generation, "--page", "real", "--queue", 7)
    found = page(endpoint, path)
    assert value(found, queue) == [7]
    assert len(found) > 10


def test_each_rank_is_a_series_or_has_a_port(serve: Serve) -> None:
    (endpoint,) = serve("--pods", 1, "--ranks", 3, "--running", 2)
    assert len(value(page(endpoint), "vllm:num_requests_running")) == 3
    ports = serve("--pods", 1, "--ranks", 3, "--rank-ports", lines=3)
    assert [len(value(page(one), "vllm:num_requests_running")) for one in ports] == [1, 1, 1]


def test_gauges_follow_requests_that_take_their_time(serve: Serve) -> None:
    (endpoint,) = serve("--pods", 1, "--max-running", 1, "--first-token", 50, "--between-tokens", 200, "--adapter", "x")
    body = {"model": "x", "prompt": "hello", "max_tokens": 1000, "stream": True}
    with (
        httpx.Client(trust_env=False, timeout=60) as client,
        client.stream("POST", f"http://{endpoint}/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        assert sum(line.startswith("data:") for line, _ in zip(lines, range(3), strict=False)) == 2
        found = page(endpoint)
    assert value(found, "vllm:num_requests_running") == [1]
    assert any('running_lora_adapters="x"' in name for name in found)


def test_faults_are_given_as_flags(serve: Serve) -> None:
    flags = ("--fault", "status,path=/metrics,status=503,count=2", "--fault", "missing,families=queue+running")
    (endpoint,) = serve("--pods", 1, *flags)
    with httpx.Client(trust_env=False, timeout=60) as client:
        answers = [client.get(f"http://{endpoint}/metrics") for _ in range(3)]
    assert [one.status_code for one in answers] == [503, 503, 200]
    assert "num_requests" not in answers[-1].text
    assert "cache_usage_perc" in answers[-1].text


FILE = """
pods:
  - name: old
    generation: 0.8.5
    gauges: {queue: 3}
  - name: other
    engine: sglang
    faults:
      - {type: status, path: /metrics, attributes: {status: 500}}
"""


@pytest.mark.smoke
def test_a_file_says_what_each_pod_is(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(FILE.replace("0.8.5", '"0.8.5"'))
    old, other = serve("--file", path, lines=2)
    assert value(page(old), "vllm:gpu_cache_usage_perc") == [0.0]
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(f"http://{other}/metrics").status_code == 500


@pytest.mark.smoke
def test_the_control_api_changes_pods(program) -> None:
    process = program("pool", "--pods", 1, "--control", "127.0.0.1:0", "--no-table")
    line, endpoint = process.stderr.readline(), process.stdout.readline().strip()
    base = line.split()[-1].removesuffix("/openapi.json")
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(f"{base}/openapi.json").json()["openapi"].startswith("3.")
        body = {"type": "status", "path": "/metrics", "attributes": {"status": 500}}
        made = client.post(f"{base}/pods/pod-1/faults", json=body)
        assert made.status_code < 300, made.text
        assert client.get(f"http://{endpoint}/metrics").status_code == 500
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


@pytest.mark.smoke
def test_a_terminal_shows_a_live_table() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "conformance", "pool", "--pods", "1", "--queue", "41"]
    environment = {**os.environ, "COLUMNS": "200", "LINES": "40", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        with httpx.Client(trust_env=False, timeout=60) as client:
            for _ in range(3):
                client.get(f"http://{endpoint}/metrics")
        shown = ""
        while "scrapes" not in shown or " 3 " not in shown.rpartition("scrapes")[2]:
            shown += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert endpoint in shown
    assert " 41 " in shown


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--engine", "vlm"), "--engine"),
        (("--generation", "0.1"), "generation is '0.1'; of vllm the fleet knows"),
        (("--engine", "triton-tensorrt-llm", "--ranks", 2), "has no label to tell them apart"),
        (("--queue", 3, "--max-running", 2), "--queue, --max-running: gauges are set, or follow from requests"),
        (("--fault", "latncy"), "--fault 'latncy'"),
        (("--fault", "latency,late=5"), "unknown attribute 'late' of latency"),
        (("--fault", "latency,5"), "'5' is no KEY=VALUE"),
        (("--control", "8080"), "--control '8080'"),
        (("--endpoint", "pod"), "--endpoint 'pod'"),
        (("--file", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_a_mistake_is_told(cli, flags: tuple[object, ...], said: str) -> None:
    ran = cli("pool", *flags)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert said in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pods: []\n", ":1:7"),
        ("pods:\n  - {name: a, enginee: vllm}\n", ":2:15"),
        ("pods:\n  - {name: a, ranks: 0}\n", ":2:5"),
        ("pods:\n  - {name: a, faults: [{type: latency, attributes: {x: 1}}]}\n", ":2:24"),
    ],
)
def test_a_mistake_in_a_file_has_its_place(cli, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(text)
    ran = cli("pool", "--file", path)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert f"{path}{said}" in ran.err
