"""Starting, watching and ending a real Envoy, and what is said when that fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from envoy_help import SmallEpp, model_servers
from programs import needs_envoy

from ext_proc.server import serve
from fake_proxy.client import HttpRequest
from fake_proxy.config import ProxyConfig
from real_envoy import (
    EnvoyBinary,
    EnvoyDiedError,
    EnvoyFailedError,
    EnvoyRejectedError,
    EnvoySettings,
    Routing,
    process,
    send_request,
    start_envoy,
    validate,
)

pytestmark = pytest.mark.program

GATEWAY = EnvoySettings(epp="127.0.0.1:9", routing=Routing.ORIGINAL_DST_HEADER)


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def _program(path: Path, text: str) -> EnvoyBinary:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return EnvoyBinary(path=path, source="a test", version=(1, 40, 0))


@needs_envoy
def test_ports_are_free_ones_and_two_envoys_do_not_meet() -> None:
    async def test() -> None:
        async with await start_envoy({"a": GATEWAY, "b": GATEWAY}) as one, await start_envoy({"a": GATEWAY}) as other:
            addresses = [*one.addresses.values(), *other.addresses.values(), one.admin, other.admin]
            assert list(one.addresses) == ["a", "b"]
            assert len(set(addresses)) == 5
            assert one.running
            one.check()

    _run(test())


@needs_envoy
def test_nothing_is_left_after_stop() -> None:
    async def test() -> None:
        envoy = await start_envoy({"gw": GATEWAY})
        folder = envoy._folder
        assert folder.exists()
        assert await envoy.stop() == 0
        assert await envoy.stop() == 0
        assert not folder.exists()
        assert not envoy.running
        with pytest.raises(ProcessLookupError):
            os.kill(envoy.pid, 0)

    _run(test())


@pytest.mark.smoke
@needs_envoy
def test_counters_and_access_log_tell_of_a_request() -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            server = await serve("127.0.0.1", 0, epp.handle)
            settings = EnvoySettings(epp=server.address, config=ProxyConfig(pool=pool))
            async with await start_envoy({"gw": settings}) as envoy:
                before = await envoy.counters("gw")
                answer = await send_request(
                    envoy.addresses["gw"], HttpRequest(body=b"x", headers=((b"x-request-id", b"mine"),))
                )
                assert answer.status == 200
                async with asyncio.timeout(5):
                    await epp.ended.wait()
                    while not (log := envoy.access_log()):
                        await asyncio.wait([envoy.exited], timeout=0.005)
                    while (delta := await envoy.counters("gw") - before)["ext_proc.streams_closed"] < 1:
                        pass
                assert delta["ext_proc.streams_started"] == delta["downstream_rq_2xx"] == 1
                assert log[0]["request_id"] == "mine"
                assert (log[0]["status"], log[0]["details"], log[0]["endpoint"]) == (200, "via_upstream", pool[0])
                assert "ext_proc" in envoy.tail()
            await server.close()

    _run(test())


@needs_envoy
def test_a_configuration_that_envoy_refuses_is_refused_in_its_words() -> None:
    nonsense = EnvoySettings(
        epp="127.0.0.1:9", routing=Routing.ORIGINAL_DST_HEADER, config=ProxyConfig(status_on_error=299)
    )

    async def test() -> None:
        for refused in (validate({"gw": nonsense}), start_envoy({"gw": nonsense})):
            with pytest.raises((EnvoyRejectedError, ValueError)) as caught:
                await refused
            assert "299" in str(caught.value)
        wrong_address = EnvoySettings(epp="127.0.0.1:9", routing=Routing.ORIGINAL_DST_HEADER, subset_header="")
        for refused in (validate({"gw": wrong_address}), start_envoy({"gw": wrong_address})):
            with pytest.raises(EnvoyRejectedError, match=r"(?i)header"):
                await refused

    _run(test())


@needs_envoy
def test_an_address_that_can_not_be_bound_ends_the_start() -> None:
    async def test() -> None:
        elsewhere = EnvoySettings(epp="127.0.0.1:9", routing=Routing.ORIGINAL_DST_HEADER, listen="192.0.2.1")
        with pytest.raises(EnvoyFailedError, match=r"(?s)(exited|not ready).*192\.0\.2\.1"):
            await start_envoy({"gw": elsewhere}, patience=2)

    _run(test())


@needs_envoy
def test_its_death_is_noticed() -> None:
    async def test() -> None:
        envoy = await start_envoy({"gw": GATEWAY})
        os.kill(envoy.pid, signal.SIGKILL)
        assert await envoy.exited == -signal.SIGKILL
        with pytest.raises(EnvoyDiedError, match="was ended by signal 9"):
            envoy.check()
        with pytest.raises(EnvoyDiedError):
            await envoy.counters("gw")
        assert await envoy.stop() == -signal.SIGKILL

    _run(test())


@needs_envoy
def test_it_does_not_outlive_us() -> None:
    text = (
        "import asyncio, os, signal\n"
        "from real_envoy import EnvoySettings, Routing, start_envoy\n"
        "async def main():\n"
        "    settings = EnvoySettings(epp='127.0.0.1:9', routing=Routing.ORIGINAL_DST_HEADER)\n"
        "    print((await start_envoy({'gw': settings})).pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    state = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(10_000):  # the kernel's signal is on its way
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
    pytest.fail("the Envoy is still running")


def test_a_program_that_dies_at_once_is_shown_with_its_last_words(tmp_path: Path) -> None:
    async def test() -> None:
        text = "import sys\nif 'validate' in sys.argv: sys.exit(0)\nprint('out of luck')\nsys.exit(3)\n"
        with pytest.raises(EnvoyDiedError, match=r"(?s)exited with 3.*out of luck") as caught:
            await start_envoy({"gw": GATEWAY}, binary=_program(tmp_path / "envoy", text))
        assert caught.value.code == 3

    _run(test())


def test_a_program_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    async def test() -> None:
        text = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
        with pytest.raises(EnvoyFailedError, match=r"not ready within 0\.5 s") as caught:
            await start_envoy({"gw": GATEWAY}, binary=_program(tmp_path / "envoy", text), patience=0.5)
        words = [int(word) for word in str(caught.value).split() if word.isdigit()]
        for pid in words:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    _run(test())


def test_a_program_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        text += "print('x' * 9000 + '\\n' * 500, flush=True)\ntime.sleep(60)\n"
        binary = _program(tmp_path / "envoy", text)
        envoy = process.Envoy(binary, tmp_path / "folder", await process._spawn(binary, tmp_path, "http:info"))
        while not envoy.tail():
            await asyncio.wait([envoy.exited], timeout=0.005)
        assert await envoy.stop(patience=0.05) == -signal.SIGKILL
        assert len(envoy.tail()) <= 2000 + 200

    _run(test())


def test_importing_the_package_imports_nothing_heavy() -> None:
    text = "import sys, real_envoy; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", text], text=True).split()
    assert [name for name in loaded if name.startswith(("envoy_data_plane", "betterproto", "pydantic"))] == []
