"""The project's Dockerfile: built without a registry, and run as a vendor's integration test would run it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import docker
import pytest
from programs import missing
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "tests" / "images"
PAGE = (ROOT / "docs" / "how-to" / "containers.md").read_text()
PATIENT = 280

pytestmark = [pytest.mark.program, pytest.mark.timeout(900)]


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
    except docker.errors.DockerException:
        pytest.skip(missing("a container engine"))
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


def finished(container: DockerContainer) -> tuple[int, str]:
    """The exit code of a container, and what it printed."""
    wrapped = container.get_wrapped_container()
    code = wrapped.wait(timeout=PATIENT)["StatusCode"]
    return code, wrapped.logs().decode()


def test_the_recipe_for_testcontainers(suite, epp, report, tmp_path):
    """As it is on the page, but for names and a selection. In containers without IPv6 a scenario would be skipped."""
    (code,) = re.findall(r"```python\n(from testcontainers.*?)```", PAGE, re.DOTALL)
    own = "-m reference_epp --listen=0.0.0.0:9002 --endpoints-file=/shared/endpoints --objective=batch=-1"
    selected = "run --accept-incomplete -k subset.ipv6 -k destination.completion"
    names = {'"my-epp"': repr(epp), '"epp-conformance"': repr(suite), "run ": f"{selected} "}
    for name, used in {**names, "--port 9002 --endpoints /shared/endpoints": own}.items():
        assert name in code
        code = code.replace(name, used)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    exec(compile(code, "containers.md", "exec"), {"shared": str(shared), "report": str(report)})
    found = json.loads((report / "report.json").read_text())
    assert found["versions"][0]["scenarioVerdicts"].keys() == {"pass"}


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
    (flag,) = re.findall(r"--sysctl (\S+)=0 ", PAGE)
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
