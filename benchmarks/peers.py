"""The load path beside clients that judge nothing, on the fast server of the benchmarks: what a stream costs each.

`costs` gives the processor time of a stream by the name of the client: the load path, grpc.aio, and of h2load, ghz
(grpc-go) and Locust with grpcio those that are installed. Each does the same two messages and reads two answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fake_proxy_vs_grpc import messages
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ext_proc import grpc
from fake_proxy.metadata import varint

HERE = Path(__file__).parent
PACKAGE = "envoy.service.ext_proc.v3"
SCHEMA = HERE.parent / "ext_proc" / "schema.binpb"
STREAMS = 20_000
"""What a client does whose amount is given as a number."""


def costs(streams: int, seconds: float) -> dict[str, float]:
    """Microseconds of processor time for each stream, so many streams at a time, by client."""
    command = [sys.executable, str(HERE / "load_path.py"), "--serve"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            found = {
                "load path, judged": _ours("load", address, streams, seconds),
                "grpc.aio": _ours("grpc", address, streams, seconds),
            }
            others: dict[str, Callable[[], float]] = {
                "h2load": lambda: _h2load(address, streams, Path(folder)),
                "ghz": lambda: _ghz(address, streams, Path(folder)),
                "locust": lambda: _locust(address, streams, seconds, Path(folder)),
            }
            for name, cost in others.items():
                if _program(name) is None:
                    continue
                try:
                    found[name] = cost()
                except RuntimeError as problem:  # it can't keep so many streams
                    print(f"{name} is left out, {streams} at a time: {problem}", file=sys.stderr)
        return {name: cost * 1e6 for name, cost in found.items()}
    finally:
        server.communicate()


def _program(name: str) -> str | None:
    """Where a program is: beside this Python, or on the path."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def _ran(command: Sequence[str]) -> tuple[str, float]:
    """What a client printed, and its seconds of processor time. Raises `RuntimeError` if it failed."""
    program = _program(command[0]) or command[0]
    ran = subprocess.Popen([program, *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=HERE)
    assert ran.stdout is not None
    output = ran.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(ran.pid, 0)
    ran.returncode = os.waitstatus_to_exitcode(status)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} ended with exit code {ran.returncode}:\n{output[-1000:]}")
    return output, usage.ru_utime + usage.ru_stime


def _ours(kind: str, address: str, streams: int, seconds: float) -> float:
    """A client of `load_path.py`."""
    client = ["--client", f"{kind}-{streams}", "--address", address, "--seconds", str(seconds)]
    output, _ = _ran([sys.executable, str(HERE / "load_path.py"), *client])
    return float(json.loads(output.splitlines()[-1])["cpu"])


def _h2load(address: str, streams: int, folder: Path) -> float:
    """The messages as the body of an HTTP/2 request."""
    body, connections = folder / "body", min(streams, 2)
    body.write_bytes(b"".join(grpc.frame(one) for one in messages()))
    amount = ["-n", str(STREAMS), "-c", str(connections), "-m", str(streams // connections)]
    request = ["-d", str(body), "-H", "content-type: application/grpc", "-H", "te: trailers"]
    output, cpu = _ran(["h2load", *amount, *request, f"http://{address}{grpc.PROCESS.decode()}"])
    if f"{STREAMS} succeeded" not in output:
        raise RuntimeError(f"h2load did not do its {STREAMS} streams:\n{output[-1000:]}")
    return cpu / STREAMS


def _ghz(address: str, streams: int, folder: Path) -> float:
    """ghz wants the service described, and each message after its length."""
    service = FileDescriptorProto(name="service.proto", package=PACKAGE, dependency=[f"{PACKAGE}.proto"])
    service.service.add(name="ExternalProcessor").method.add(
        name="Process",
        input_type=f".{PACKAGE}.ProcessingRequest",
        output_type=f".{PACKAGE}.ProcessingResponse",
        client_streaming=True,
        server_streaming=True,
    )
    schema, body = folder / "schema.binpb", folder / "messages"
    schema.write_bytes(SCHEMA.read_bytes() + FileDescriptorSet(file=[service]).SerializeToString())
    body.write_bytes(b"".join(varint(len(one)) + one for one in messages()))
    what = ["--insecure", "--protoset", str(schema), "--call", f"{PACKAGE}.ExternalProcessor.Process", "-B", str(body)]
    amount = ["-n", str(STREAMS), "-c", str(streams), "--connections", str(min(streams, 2)), "--timeout", "60s"]
    output, cpu = _ran(["ghz", *what, *amount, "--format", "json", address])
    answered = json.loads(output)["statusCodeDistribution"]
    if answered != {"OK": STREAMS}:
        raise RuntimeError(f"ghz did not do its {STREAMS} streams: {answered}")
    return cpu / STREAMS


def _locust(address: str, streams: int, seconds: float, folder: Path) -> float:
    """Twice, briefly and for longer: the difference is without starting."""
    users = ["--users", str(streams), "--spawn-rate", str(streams)]
    command = ["locust", "-f", "locust_grpcio.py", "--headless", "--host", address, *users]
    command += ["--json-file", str(folder / "locust"), "--loglevel", "ERROR"]
    taken = []
    for length in (seconds, 3 * seconds):
        _, cpu = _ran([*command, "--run-time", f"{length:g}s"])
        for done in json.loads((folder / "locust.json").read_text()):  # one, or none if nothing was done
            if done["num_failures"]:
                raise RuntimeError(f"Locust had {done['num_failures']} failures of {done['num_requests']}")
            taken.append((cpu, done["num_requests"]))
    if len(taken) < 2:
        raise RuntimeError(f"Locust did no stream in {seconds:g} s: give it more --seconds")
    (brief, few), (longer, many) = taken
    return float(longer - brief) / float(many - few)
