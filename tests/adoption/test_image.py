"""The project's Dockerfile: built without a registry, and run as a vendor's integration test would run it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "tests" / "images"
PATIENT = 280

pytestmark = pytest.mark.timeout(900)


def output(*command: object) -> str:
    """What a command prints last."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def built(target: str) -> str:
    """The image of a target of the Dockerfile, on a base that this machine can make."""
    base = output(sys.executable, IMAGES / "base_image.py")
    name = f"epp-conformance:test-{target}"
    choice = ("--network", "host", "--build-arg", f"BASE={base}", "--target", target)
    output("docker", "build", "--quiet", *choice, "--label", "epp-conformance.suite-image=suite", "--tag", name, ".")
    return name


@pytest.fixture(scope="module")
def engine():
    try:
        client = docker.from_env()
    except docker.errors.DockerException as problem:
        pytest.skip(f"no container engine answers: {problem}")
    testcontainers_config.ryuk_disabled = True  # its image is in a registry
    yield client
    client.images.prune(filters={"label": "epp-conformance.suite-image"})
    client.close()


@pytest.fixture(scope="module")
def suite(engine):
    return built("suite")


@pytest.fixture(scope="module")
def epp(engine):
    return output(sys.executable, IMAGES / "epp_image.py")


@pytest.fixture
def report(tmp_path):
    """A folder that the image's user may write."""
    folder = tmp_path / "report"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def until_listening(container: DockerContainer) -> None:
    """Wait until the container's port 9002 takes connections."""
    wrapped = container.get_wrapped_container()
    deadline = time.monotonic() + 30
    while True:
        wrapped.reload()
        assert wrapped.status != "exited", wrapped.logs().decode()
        try:
            socket.create_connection((wrapped.attrs["NetworkSettings"]["IPAddress"], 9002), timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline, wrapped.logs().decode()
        else:
            return


def finished(container: DockerContainer) -> tuple[int, str]:
    """The exit code of a container, and what it printed."""
    wrapped = container.get_wrapped_container()
    code = wrapped.wait(timeout=PATIENT)["StatusCode"]
    return code, wrapped.logs().decode()


def test_it_tests_an_endpoint_picker_in_the_container_beside_it(suite, epp, report, tmp_path):
    listen = ("-m", "reference_epp", "--listen=0.0.0.0:9002", "--endpoints-file=/shared/endpoints")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "endpoints").touch()
    (shared / "endpoints").chmod(0o666)
    with (
        DockerContainer(epp)
        .with_command([*listen, "--objective=batch=-1", "--scrape-interval=20ms"])
        .with_volume_mapping(str(shared), "/shared", "rw") as picker
    ):
        until_listening(picker)
        beside = f"container:{picker.get_wrapped_container().id}"  # one network, as containers of a pod have
        arguments = ["run", "--epp=127.0.0.1:9002", "--endpoints-file=/shared/endpoints", "--output=/report", "--smoke"]
        runner = DockerContainer(suite).with_command(arguments).with_kwargs(network_mode=beside)
        runner.with_volume_mapping(str(report), "/report", "rw").with_volume_mapping(str(shared), "/shared", "rw")
        with runner:
            code, said = finished(runner)
    assert code == 4, said  # the smoke set is no full verdict
    found = json.loads((report / "report.json").read_text())
    assert found["result"] == "incomplete"
    assert found["versions"][0]["scenarioVerdicts"].keys() <= {"pass", "notApplicable", "skipped"}
    assert found["versions"][0]["scenarioVerdicts"]["pass"]


def test_it_runs_as_an_ordinary_user_and_needs_no_rights(engine, suite, report):
    user = engine.images.get(suite).attrs["Config"]["User"]
    assert int(user.partition(":")[0]) > 0
    hardened = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
    runner = DockerContainer(suite).with_command(["run", "--smoke", "--quiet", "--output=/report"])
    with runner.with_kwargs(**hardened).with_tmpfs_mount("/tmp").with_volume_mapping(str(report), "/report", "rw"):
        code, said = finished(runner)
    assert code == 4, said
    assert (report / "report.html").is_file()


def test_the_documented_flag_gives_it_an_ipv6_loopback_address(suite, report):
    (flag,) = re.findall(r"--sysctl (\S+)=0 ", (ROOT / "docs/how-to/containers.md").read_text())
    runner = DockerContainer(suite).with_command(["run", "--scenario=subset.ipv6", "--output=/report"])
    with runner.with_kwargs(sysctls={flag: 0}).with_volume_mapping(str(report), "/report", "rw"):
        code, said = finished(runner)
    assert code == 4, said
    assert json.loads((report / "report.json").read_text())["versions"][0]["scenarioVerdicts"].keys() == {"pass"}


def test_a_folder_that_it_may_not_write_is_explained(suite, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    with (
        DockerContainer(suite)
        .with_command(["run", "--output=/report"])
        .with_volume_mapping(str(closed), "/report", "rw") as runner
    ):
        code, said = finished(runner)
    assert code == 2
    assert "no report can be written to /report: Permission denied" in said
    assert "--user" in said


def test_a_report_of_another_user_is_not_written_over(suite, report):
    theirs = report / "evidence.ndjson.gz"
    theirs.write_bytes(b"")
    theirs.chmod(0o644)
    arguments = ["run", "--output=/report"]
    with DockerContainer(suite).with_command(arguments).with_volume_mapping(str(report), "/report", "rw") as runner:
        code, said = finished(runner)
    assert code == 2
    assert "no report can be written to /report/evidence.ndjson.gz: Permission denied" in said
    assert "--user" in said


def test_the_target_envoy_runs_a_real_envoy(engine, report):
    image = built("envoy")
    arguments = ["run", "--data-plane=envoy", "--scenario=destination.completion", "--output=/report"]
    with DockerContainer(image).with_command(arguments).with_volume_mapping(str(report), "/report", "rw") as runner:
        code, said = finished(runner)
    assert code == 4, said
    found = json.loads((report / "report.json").read_text())
    assert found["environment"]["topology"]["dataPlane"] == "envoy"
    assert found["versions"][0]["scenarioVerdicts"].keys() == {"pass"}


def test_its_image_for_loads_has_what_master_and_workers_need(engine, report):
    image = built("load")
    hardened = {"read_only": True, "cap_drop": ["ALL"], "network_mode": "host"}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = ["load", "--rate=20", "--seconds=1", "--workers=1", f"--bind=127.0.0.1:{port}", "--output=/report"]
    master = DockerContainer(image).with_command(arguments).with_kwargs(**hardened).with_tmpfs_mount("/tmp")
    worker = DockerContainer(image).with_command(["load-worker", f"127.0.0.1:{port}"]).with_kwargs(**hardened)
    with master.with_volume_mapping(str(report), "/report", "rw"), worker.with_tmpfs_mount("/tmp"):
        code, said = finished(master)
        assert code == 0, said
        assert finished(worker)[0] == 0
    assert json.loads((report / "load.json").read_text())["exchanges"]["judged"] == 20
