"""Targets that are containers, on a real engine: in the machine's network and in their own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from programs import missing

from conformance.errors import HarnessError, TargetUnreachableError, UsageError
from conformance.outcome import RunOutcome
from conformance.planning.plan import Selection
from conformance.run.engine import EngineThread
from conformance.run.session import RunSettings, run
from conformance.targets import bridge, containers
from conformance.targets.image import TargetContainer, start_container
from conformance.targets.profile import Discovery, File, Fixed, Kubernetes, Profile, Start, Timeouts
from conformance.targets.running import exited_early
from conformance.verdict import Verdict

pytestmark = pytest.mark.program

PATIENT = 60.0
"""Bound of every wait, in seconds; none is expected to last so long."""

IMAGES = Path(__file__).parents[1] / "images"
EPP = (
    *("-m", "reference_epp", "--listen=0.0.0.0:{port}", "--protocol-version={version}"),
    *("--objective=batch=-1", "--scrape-interval=20ms", "--log-level=warning"),
)
STEERING = Selection(scenarios=("destination.completion", "errors.empty-pool", "subset.pick-stays-inside"))


@pytest.fixture(scope="module")
def engine():
    """A client of the engine; at the end nothing that the suite made may be left there."""
    try:
        client = docker.from_env()
    except docker.errors.DockerException:
        pytest.skip(missing("a container engine"))
    yield client
    assert not left(client)
    client.close()


@pytest.fixture(scope="module")
def image(engine):
    """The image of the reference EPP."""
    built = subprocess.run([sys.executable, str(IMAGES / "epp_image.py")], capture_output=True, text=True, check=True)
    return built.stdout.strip()


def left(client, pid: int = os.getpid(), *, networks: bool = True) -> list[str]:
    """Containers and networks that the process `pid` made: this one, or a suite that was started by it."""
    ours = {"label": containers.OWNER}
    found = client.api.containers(all=True, filters=ours)
    found += client.api.networks(filters=ours) if networks else []
    return [one["Id"] for one in found if one["Labels"][containers.OWNER].split()[1] == str(pid)]


def on_the_engine(work):
    with EngineThread() as engine:
        return engine.call(work)


def profile(image: str, network: str, args: tuple[str, ...] = (*EPP, "--endpoints-file={endpointsFile}"), **changes):
    settings = {
        "name": "image",
        "start": Start(image=image, network=network, args=args),
        "discovery": Discovery(file=File(reread=0.15)),
    }
    return Profile(**{**settings, **changes})


def conduct(target: Profile, selection: Selection = STEERING, jobs: int = 1, handler=lambda _: None) -> RunOutcome:
    return run(RunSettings(profile=target, selection=selection, seed=1, jobs=jobs), handler)


def verdicts(outcome: RunOutcome) -> set[Verdict]:
    return {result.verdict for result in outcome.versions[0].results}


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["host", "bridge"])
def test_the_reference_passes_as_an_image(engine, image, network):
    outcome = conduct(profile(image, network), Selection(smoke=True), jobs=2)
    assert verdicts(outcome) == {Verdict.PASS}
    assert outcome.image == engine.images.get(image).id
    assert not left(engine)


def test_ipv6_pods_are_reached_over_a_bridge(image):
    outcome = conduct(profile(image, "bridge"), Selection(scenarios=("destination.ipv6", "subset.ipv6")))
    assert verdicts(outcome) == {Verdict.PASS}


@pytest.mark.parametrize("network", ["host", "bridge"])
def test_the_kubernetes_api_is_reached(image, network):
    script = Path(__file__).with_name("kubernetes_epp.py")
    target = profile(
        image,
        network,
        start=Start(
            image=image,
            network=network,
            args=(script.name, *EPP[2:]),
            workdir=str(script.parent),
            env={"KUBECONFIG": "{kubeconfig}"},
        ),
        discovery=Discovery(kubernetes=Kubernetes()),
    )
    assert verdicts(conduct(target)) == {Verdict.PASS}


def _not_permitted(*_) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_without_rights_pods_share_the_bridge_address(image, monkeypatch):
    monkeypatch.setattr(bridge, "make_local", _not_permitted)
    assert verdicts(conduct(profile(image, "bridge"))) == {Verdict.PASS}


def test_without_rights_kubernetes_needs_the_host_network(engine, image, monkeypatch):
    monkeypatch.setattr(bridge, "make_local", _not_permitted)
    with pytest.raises(UsageError, match="every pod needs its own address") as caught:
        conduct(profile(image, "bridge", discovery=Discovery(kubernetes=Kubernetes())))
    assert "start.network: host" in caught.value.hint
    assert not left(engine)


def test_fixed_loopback_endpoints_need_the_host_network(engine, image):
    fixed = Discovery(fixed=Fixed(endpoints=("127.0.0.1:8000",)))
    with pytest.raises(UsageError, match=r"can't reach 127.0.0.1:8000") as caught:
        conduct(profile(image, "bridge", discovery=fixed))
    assert "start.network: host" in caught.value.hint


def test_one_that_ends_before_it_is_ready_is_explained(image):
    with pytest.raises(TargetUnreachableError, match=r"exited with 1 before it was ready(.|\n)*no config"):
        conduct(profile(image, "bridge", ("-c", "raise SystemExit('no config')")))


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "0.0.0.0:9002"])
def test_one_that_listens_elsewhere_in_its_network_is_told_where(image, address):
    host, _, port = address.partition(":")
    script = f"import socket, time; kept = socket.create_server(({host!r}, {port})); time.sleep(3600)"
    with pytest.raises(TargetUnreachableError, match="connection refused after 5 s: it listens on ") as caught:
        conduct(profile(image, "bridge", ("-c", script), timeouts=Timeouts(start=5)))
    assert re.search(rf"it listens on {address.replace('{port}', '[0-9]+')}, not on ", caught.value.message)


# -- one container -----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def started(image: str, script: str, **options):
    container = await start_container(
        image, ("-u", "-c", script), **{"env": {}, "bridge": None, "folders": {}, **options}
    )
    try:
        yield container
    finally:
        await container.stop(0.1)


async def until_said(container: TargetContainer, text: str) -> None:
    async with asyncio.timeout(PATIENT):
        while text not in container.tail():  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)


def test_its_end_is_told_with_its_last_words(image):
    async def check():
        async with started(image, r"import os; os.write(1, b'out\n'); os.write(2, b'err\n'); os._exit(3)") as container:
            assert await asyncio.wait_for(container.exited, PATIENT) == 3
            assert sorted(container.tail().split()) == ["err", "out"]
            assert not container.running
            assert "exited with 3" in (await exited_early(container)).message

    on_the_engine(check())


SLEEPS = "import signal, sys, time; signal.signal(signal.SIGTERM, {}); print('ready'); time.sleep(3600)"


def test_it_is_stopped_politely_and_then_firmly(engine, image):
    async def check(handler: str, patience: float) -> int:
        async with started(image, SLEEPS.format(handler)) as container:
            await until_said(container, "ready")
            return await container.stop(patience)

    assert on_the_engine(check("lambda *_: sys.exit(7)", PATIENT)) == 7
    assert on_the_engine(check("signal.SIG_IGN", 1)) == 128 + signal.SIGKILL
    unasked = on_the_engine(check("lambda *_: sys.exit(7)", 0))
    assert unasked in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert not left(engine)


def test_environment_folders_and_secrets(image, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "greeting").write_text("hello")

    async def check():
        script = "import os; print(open('greeting').read(), os.environ['WORD'], 'abcdefgh')"
        options = {"env": {"WORD": "a word"}, "folders": {tmp_path: "ro"}, "workdir": tmp_path}
        async with started(image, script, redact=lambda text: text.replace("abcdefgh", "***"), **options) as container:
            await container.exited
            assert container.tail() == "hello a word ***"

    on_the_engine(check())


def test_a_flood_of_output_is_bounded(image):
    async def check():
        script = "import sys\nfor _ in range(2000): sys.stdout.write('x' * 20_000 + chr(10))\nprint('done')"
        async with started(image, script) as container:
            assert await asyncio.wait_for(container.exited, PATIENT) == 0
            assert container.tail().splitlines()[-1] == "done"
            assert len(container._output._kept) < 200_000

    on_the_engine(check())


def test_one_that_is_removed_behind_our_back_has_ended(engine, image):
    async def check():
        async with started(image, "print('ready'); import time; time.sleep(3600)") as container:
            await until_said(container, "ready")
            await asyncio.to_thread(engine.api.remove_container, container._id, force=True)
            with contextlib.suppress(HarnessError):
                await asyncio.wait_for(container.exited, PATIENT)
            assert not container.running

    on_the_engine(check())


def test_a_start_that_is_cancelled_leaves_nothing(engine, image):
    async def check():
        starting = asyncio.create_task(
            start_container(image, ("-c", "import time; time.sleep(3600)"), env={}, bridge=None, folders={})
        )
        async with asyncio.timeout(PATIENT):
            while not await asyncio.to_thread(left, engine) and not starting.done():
                pass
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    on_the_engine(check())
    assert not left(engine)


SUITE = """
import sys
from conformance.events import Status
from conformance.run.session import RunSettings, run
from conformance.targets.profile import Discovery, File, Profile, Start

def handler(event):
    if isinstance(event, Status):
        print(event.text, flush=True)

script = "import time; time.sleep(3600)"
start = Start(image=sys.argv[1], args=("-c", script), network="bridge")
run(RunSettings(profile=Profile(name="image", start=start, discovery=Discovery(file=File())), jobs=1), handler)
"""


@contextlib.contextmanager
def suite(engine, image: str) -> Iterator[subprocess.Popen[str]]:
    """A separate suite process, whose container runs and never gets ready; waits for its end."""
    command = [sys.executable, "-c", SUITE, image]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting the target\n", process.communicate()[0]
        while not left(engine, process.pid, networks=False):
            assert process.poll() is None
        yield process
        process.communicate(timeout=PATIENT)


def test_ctrl_c_leaves_nothing(engine, image):
    with suite(engine, image) as process:
        process.send_signal(signal.SIGINT)
    assert not left(engine, process.pid)


def test_containers_of_a_killed_suite_are_removed_by_the_next_run(engine, image):
    with suite(engine, image) as process:
        process.kill()
    # The container and its network, unless another run was here meanwhile.
    assert len(left(engine, process.pid)) in (2, 0)
    on_the_engine(containers.connect()).close()
    assert not left(engine, process.pid)


# -- what can't be started ---------------------------------------------------------------------------------------------


def refusal(image: str = "localhost:1/no-such-image:latest", args: tuple[str, ...] = ()) -> UsageError:
    with pytest.raises(UsageError) as caught:
        on_the_engine(start_container(image, args, env={}, bridge=None, folders={}))
    return caught.value


def test_a_missing_image(engine):
    error = refusal()
    assert "there is no image localhost:1/no-such-image:latest on this machine, and it can't be pulled" in error.message
    assert "docker images" in error.hint


def test_an_invalid_image_name(engine):
    assert "'No Such Image' can't be the name of an image" in refusal("No Such Image").message


def load(engine, architecture: str, entrypoint: list[str]) -> str:
    """An image whose only program is for RISC-V."""
    elf = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00\x01\x00\x00\x00" + bytes(40)
    layer = archive({"epp": elf})
    name = f"epp-conformance-test:{architecture}-{os.getpid()}"
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": entrypoint},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer)}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": json.dumps(config).encode()}
    engine.api.load_image(archive({**files, "manifest.json": json.dumps(manifest).encode()}))
    return name


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_another_platform(engine):
    name = load(engine, "riscv64", ["/epp"])
    try:
        target = profile(name, "host", ())
        with pytest.raises((UsageError, TargetUnreachableError)) as caught:
            conduct(target)
        assert "the image is for linux/riscv64, this engine runs linux/" in caught.value.message
        assert "exec format error" in caught.value.message
    finally:
        engine.images.remove(name, force=True)
    assert not left(engine)


def test_an_entry_point_that_is_not_there(engine):
    name = load(engine, "amd64", ["/no/such/program"])
    try:
        error = refusal(name)
        assert "no such file" in error.message
        assert "entry point" in error.hint
    finally:
        engine.images.remove(name, force=True)
    assert not left(engine)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    error = refusal()
    assert "no container engine answers at unix:///no/such/socket" in error.message
    assert "docker info" in error.hint
    del error
    gc.collect()  # the SDK leaves a socket behind when it can't connect


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:abc", "tcp://[::1", "nonsense", "tcp://127.0.0.1:99999"])
def test_an_invalid_engine_address(monkeypatch, where):
    monkeypatch.setenv("DOCKER_HOST", where)
    error = refusal()
    assert error.message.startswith(f"no container engine answers at {where}: ")
    assert "DOCKER_HOST" in error.hint


def test_no_sdk(monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    error = refusal()
    assert "Docker SDK" in error.message
    assert "pip install 'epp-conformance[docker]'" in error.hint


def test_an_engine_whose_bridges_are_elsewhere(engine, image, monkeypatch):
    monkeypatch.setattr(bridge.socket.socket, "bind", _not_available)
    with pytest.raises(UsageError, match="is not on this machine") as caught:
        on_the_engine(bridge.open_bridge(kubernetes=False))
    assert "--epp HOST:PORT" in caught.value.hint
    assert not left(engine)


def _not_available(*_) -> None:
    raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
