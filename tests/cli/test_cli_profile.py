"""`profile` and `doctor`."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from conformance.targets.resolve import load_profile, shipped

pytestmark = pytest.mark.program

REFERENCE = (
    f"{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} "
    "--endpoints-file {endpointsFile} --log-level error"
)


def test_shipped_profiles_are_listed_and_shown(cli) -> None:
    out = cli("profile", "list").out
    for name, item in shipped().items():
        assert name in out
        assert cli("profile", "show", name).out == item.read_text()
    ran = cli("profile", "show", "gie-epp-1.55")
    assert ran.code == 2
    assert "gie-epp-1.5" in ran.err


def test_a_file_is_not_said_to_be_missing(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    ran = cli("profile", "show", tmp_path / "mine.yaml")
    assert ran.code == 2
    assert "there is no" not in ran.err
    assert f"epp-conformance profile check {tmp_path / 'mine.yaml'}" in ran.err


@pytest.mark.parametrize(
    "flags",
    [
        ("--command", REFERENCE),
        ("--command", "./epp --grpc-port {port} --pool-name {pool}", "--discovery", "kubernetes"),
        ("--command", "./epp 'a \"quoted\" word' {port}", "--discovery", "fixed", "--endpoint", "127.0.0.1:8000"),
        ("--address", "epp.example:9002", "--endpoints-file", "/tmp/e", "--tls", "verified"),
        ("--address", "[::1]:9002", "--discovery", "fixed", "--endpoint", "[::1]:8000", "--model", "a: b # c"),
    ],
)
def test_init_writes_a_profile_that_can_be_read(cli, tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "epp.yaml"
    ran = cli("profile", "init", path, "--name", "my epp", *flags)
    assert ran.code == 0, ran.err
    profile = load_profile(str(path))
    assert profile.name == "my epp"
    assert "#" in path.read_text()
    assert cli("profile", "init", path, "--name", "x", *flags).code == 2
    assert cli("profile", "init", path, "--name", "x", *flags, "--force").code == 0
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(cli("profile", "schema").out))


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        (("--server", "http://127.0.0.1:8000", "--engine", "sglang"), {}),
        (
            ("--server", "cmd:./server 'a word' {port}", "--model", "a: b # c"),
            {"command": ["./server", "a word", "{port}"]},
        ),
        (("--role", "model-server", "--command", "./server {port}"), {"command": ["./server", "{port}"]}),
        (("--server", "image:registry/server:v1"), {"image": "registry/server:v1", "args": []}),
    ],
)
def test_init_writes_the_profile_of_a_model_server(cli, tmp_path: Path, flags: tuple[str, ...], start) -> None:
    path = tmp_path / "server.yaml"
    ran = cli("profile", "init", path, "--name", "my server", *flags)
    assert ran.code == 0, ran.err
    written = yaml.safe_load(path.read_text())
    assert (written["name"], written["role"], written.get("start", {})) == ("my server", "model-server", start)
    schema = json.loads(cli("profile", "schema", "--role", "model-server").out)
    jsonschema.validate(written, schema)


def test_init_explains_the_keys_of_kubernetes_and_of_readiness(cli, tmp_path: Path) -> None:
    path = tmp_path / "epp.yaml"
    assert cli("profile", "init", path, "--name", "x", "--command", "./epp", "--discovery", "kubernetes").code == 0
    for part in (
        "group: inference.networking.k8s.io",
        "x-k8s.io for EPPs",
        "models: [] #",
        "healthAddress",
        "versions",
    ):
        assert part in path.read_text()


def test_init_says_what_it_must_know(cli, tmp_path: Path) -> None:
    ran = cli("profile", "init", tmp_path / "p.yaml", "--name", "x")
    assert ran.code == 2
    assert "--command or --address" in ran.err
    both = cli("profile", "init", tmp_path / "p.yaml", "--name", "x", "--command", "y", "--address", "h:1")
    assert "exclude" in both.err


def test_the_end_of_the_input_is_told_with_the_flag_that_answers(tmp_path: Path) -> None:
    """As on Ctrl-D at a terminal: nothing was tested, so nothing is incomplete."""
    ours, theirs = pty.openpty()
    os.write(ours, b"my epp\n\x04")
    words = [sys.executable, "-m", "conformance", "profile", "init", str(tmp_path / "p.yaml")]
    ran = subprocess.run(words, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    os.close(theirs)
    os.close(ours)
    assert ran.returncode == 2, ran
    said = ran.stderr.strip().splitlines()
    assert said[-2].startswith("error: the input ended at the question: Command that starts it, with {port}")
    assert said[-1] == "  hint: answer it, or give --command or --address"
    assert not (tmp_path / "p.yaml").exists()


@pytest.mark.smoke
def test_check_starts_the_target_and_sends_a_request(cli, tmp_path: Path) -> None:
    path = tmp_path / "epp.yaml"
    assert cli("profile", "init", path, "--name", "x", "--command", REFERENCE).code == 0
    ran = cli("profile", "check", path)
    assert ran.code == 0, ran.out
    assert f"the profile {path} is well-formed" in " ".join(ran.err.split())
    for part in ("✓ target", "✓ request", "HTTP 200", "readiness SERVING", "/metrics of 3 of 3 pods"):
        assert part in ran.out


def test_check_says_what_it_waits_for(cli, program, tmp_path: Path) -> None:
    path = tmp_path / "epp.yaml"
    assert cli("profile", "init", path, "--name", "x", "--command", REFERENCE).code == 0
    path.write_text(f"{path.read_text()}limits: {{rate: 0.0001}}\n")
    process = program("profile", "check", path)
    last = next((line for line in process.stderr if "limits.rate" in line), "")
    assert last == "  waiting: limits.rate lets one request through every 10000 s\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 4


def test_check_explains_a_target_that_ends(cli, tmp_path: Path) -> None:
    ran = cli("profile", "check", "--epp", "cmd:sh -c 'echo no such flag --f; exit 7' {endpointsFile}")
    assert ran.code == 4
    assert "exited with 7" in ran.out
    assert "no such flag --f" in ran.out
    assert "well-formed" not in ran.err  # flags are no profile


def test_check_explains_a_missing_program(cli) -> None:
    ran = cli("profile", "check", "go-epp", "--binary", "./no-such-epp")
    assert ran.code == 2  # as `run` has it
    assert "no-such-epp" in ran.err
    assert "hint:" in ran.err


def test_a_missing_flag_is_the_same_mistake_in_check_and_in_run(cli, tmp_path: Path) -> None:
    for command in (("profile", "check", "gie-epp-1.4"), ("run", "--profile", "gie-epp-1.4", "-o", tmp_path / "r")):
        ran = cli(*command)
        assert ran.code == 2, ran.out + ran.err
        assert "nothing fills {binary}" in ran.err
        assert "--binary" in ran.err


def test_doctor_looks_at_the_machine(cli) -> None:
    ran = cli("doctor")
    assert ran.code == 0, ran.out
    for name in ("python", "loopback", "ipv6", "ports", "files", "docker", "envoy", "property"):
        assert f" {name} " in ran.out


def test_doctor_tells_that_nothing_can_be_reached_over_loopback(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its addresses can be bound where its interface is down, as it is in a fresh network namespace."""

    def unreachable(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    ran = cli("doctor")
    assert ran.code == 3
    assert "✗ loopback     127.0.0.1 can't be connected to: Network is unreachable\n" in ran.out
    assert "ip link set lo up" in ran.out


@pytest.mark.smoke
def test_doctor_looks_at_a_target(cli) -> None:
    ran = cli("doctor", "--epp", "reference")
    assert ran.code == 0
    assert "✓ target" in ran.out
    ran = cli("doctor", "--epp", "127.0.0.1:1", "--endpoints", "127.0.0.1:28411")
    assert ran.code == 4
    assert "✗ target" in ran.out


GOROUTINES = "\n".join(f"goroutine {number} [select]:\nmain.f()" for number in range(50))
GO = f"panic: runtime error: index out of range [3]\n\n{GOROUTINES}"
PYTHON = "Traceback (most recent call last):\n  File 'x.py', line 1, in <module>\nmodule.LookupError: no pool\n"


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (GO, "panic: runtime error: index out of range [3]"),
        (PYTHON, "module.LookupError: no pool"),
        ("thread 'main' panicked at src/main.rs:4:5:\nno pool\nnote: x\n", "panicked at src/main.rs:4:5: no pool"),
        ('Exception in thread "main" java.io.IOException: x\n\tat A.b(C.java:1)\n', "Exception in thread"),
    ],
)
def test_a_crash_shows_its_cause_and_not_the_last_frame(cli, tmp_path: Path, output: str, cause: str) -> None:
    (tmp_path / "output").write_text(output)
    ran = cli("profile", "check", "--epp", f"cmd:sh -c 'cat {tmp_path / 'output'}; exit 2' {{endpointsFile}}")
    assert ran.code == 4
    assert cause in ran.out.splitlines()[0]
    assert "exited with 2" in ran.out.splitlines()[0]


LISTENS = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
ASKS = (
    "import os, time, urllib.request, yaml; "
    "url = yaml.safe_load(open(os.environ['KUBECONFIG']))['clusters'][0]['cluster']['server']; "
    "path = '/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools'; "
    "urllib.request.urlopen(url + path + '?fieldSelector=metadata.name%3D{equals}mypool').read(); "
)


def impatient(tmp_path: Path, discovery: str, program: str) -> Path:
    """A profile of a target that runs `program` and then waits, for which the suite waits a second."""
    path = tmp_path / "profile.yaml"
    command = json.dumps([sys.executable, "-c", f"{program} time.sleep(60)"])
    env = 'env: {KUBECONFIG: "{kubeconfig}"}' if discovery == "kubernetes" else ""
    path.write_text(
        f"discovery: {{{discovery}: {{}}}}\ntimeouts: {{start: 2, answer: 1}}\nstart:\n  command: {command}\n  {env}\n"
    )
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where a process listens")
def test_a_target_that_listens_elsewhere_is_told_where(cli, tmp_path: Path) -> None:
    ran = cli("profile", "check", impatient(tmp_path, "file", LISTENS))
    assert ran.code == 4
    port = re.search(r"^\| (\d+)$", ran.out, re.MULTILINE)
    assert port is not None, ran.out
    assert f"it listens on 127.0.0.1:{port[1]}, not on 127.0.0.1:" in ran.out


@pytest.mark.parametrize("equals", ["", "%3D"])
def test_a_target_that_asks_for_another_pool_is_told_which(cli, tmp_path: Path, equals: str) -> None:
    ran = cli("profile", "check", impatient(tmp_path, "kubernetes", ASKS.replace("{equals}", equals)))
    assert ran.code == 4
    assert "it asks for pool 'mypool' in namespace 'default', and the suite has 'pool' in 'default'" in ran.out


def watching(folder: Path, *told: str) -> Path:
    """The profile of an EPP that watches pods, and objectives only if it is told; it claims to shed by them."""
    script = [sys.executable, str(Path(__file__).with_name("watching_epp.py")), "{port}", str(folder / "found"), *told]
    profile = {
        "name": "watching",
        "start": {"command": script, "env": {"KUBECONFIG": "{kubeconfig}"}},
        "discovery": {"kubernetes": {"objectives": {"batch": -1}}},
        "requests": {"sheddable": {"headers": {"x-gateway-inference-objective": "batch"}}},
        "claims": {"sheds": True},
    }
    (folder / "profile.yaml").write_text(json.dumps(profile))
    return folder / "profile.yaml"


def test_doctor_tells_of_objectives_that_a_target_which_sheds_does_not_read(cli, tmp_path: Path) -> None:
    ran = cli("doctor", "--profile", watching(tmp_path))
    assert "it watches pods" in ran.out, ran.out + ran.err
    assert "✗ objectives" in ran.out
    assert "it claims to shed, and reads no InferenceObjectives (batch)" in ran.out
    assert "claims.sheds: false" in ran.out
    ran = cli("doctor", "--profile", watching(tmp_path, "objectives"))
    assert "✓ objectives" in ran.out, ran.out + ran.err


def test_a_target_is_named_after_its_binary(cli, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("reference-epp")
    flags = '"--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}"'
    profile = tmp_path / "mine.yaml"
    profile.write_text(f'start:\n  command: ["{{binary}}", {flags}]\ndiscovery:\n  file: {{}}\n')
    ran = cli("run", "-q", "-k", "subset.nobody", "--profile", profile, "--binary", program, "-o", tmp_path / "report")
    assert ran.code == 4
    assert ran.out.startswith("Endpoint Picker Protocol 1.0.0: reference-epp\n")
    assert cli("report", "verify", tmp_path / "report").code == 0
    assert cli("report", "convert", tmp_path / "report", "--to", "markdown").out.startswith(
        "## Endpoint Picker Protocol conformance of reference-epp:"
    )


def test_profile_init_refuses_an_invalid_endpoint(cli, tmp_path: Path) -> None:
    """A name would never be what an endpoint picker says, and a right one would be blamed for that."""
    flags = ("--address", "127.0.0.1:9002", "--discovery", "fixed", "--endpoint", "localhost:8000")
    ran = cli("profile", "init", tmp_path / "mine.yaml", *flags)
    assert ran.code == 2
    assert "discovery.fixed.endpoints: 'localhost:8000' is no endpoint: 'localhost' is no IP address" in ran.err
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize("address", ["nonsense", ":", "host:99999", "http://host:80", "unix:"])
def test_profile_init_refuses_an_invalid_address(cli, tmp_path: Path, address: str) -> None:
    """It is refused as in a profile that is there."""
    path = tmp_path / "mine.yaml"
    ran = cli("profile", "init", path, "--name", "x", "--address", address, "--endpoints-file", tmp_path / "endpoints")
    assert (ran.code, path.exists()) == (2, False)
    path.write_text(f"discovery: {{file: {{}}}}\naddress: {json.dumps(address)}\n")
    said = cli("profile", "check", path).err.partition(": address:")[2]
    assert said.endswith(")\n")  # what to do
    assert ran.err.endswith(said)


def test_a_further_object_is_served_as_it_is_written(cli, tmp_path: Path) -> None:
    """Also what the suite knows nothing of, and what is null."""
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": None, "x_y": [1]},
        "data": {},
    }
    (tmp_path / "epp.py").write_text(
        "import json, sys, urllib.request, yaml\n"
        "server = yaml.safe_load(open(sys.argv[1]))['clusters'][0]['cluster']['server']\n"
        "with urllib.request.urlopen(f'{server}/api/v1/namespaces/default/configmaps/a') as answer:\n"
        "    found = json.load(answer)\n"
        "found['metadata'] = {key: found['metadata'][key] for key in ('name', 'labels', 'x_y')}\n"
        "sys.exit(json.dumps(found))\n"
    )
    command = [sys.executable, str(tmp_path / "epp.py"), "{kubeconfig}"]
    profile = {"start": {"command": command}, "discovery": {"kubernetes": {"objects": [wanted]}}}
    (tmp_path / "epp.yaml").write_text(json.dumps(profile))
    ran = cli("profile", "check", tmp_path / "epp.yaml")
    assert ran.code == 4
    assert json.dumps(wanted) in ran.out
