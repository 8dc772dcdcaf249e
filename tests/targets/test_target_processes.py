"""Targets that are processes: what they may do to the suite, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from conformance.errors import HarnessError, UsageError
from conformance.run.engine import EngineThread
from conformance.run.processor import ProcessorTime
from conformance.targets.listening import family, listening
from conformance.targets.process import TargetProcess, start_process
from conformance.targets.running import exited_early, port_was_taken

pytestmark = pytest.mark.program

PATIENT = 30.0
"""Bound of every wait, in seconds; none is expected to last so long."""


def in_main_thread_with_asyncio(work):
    return asyncio.run(work)


def in_main_thread_with_uvloop(work):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def in_a_thread_with_asyncio(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return found[0]


def on_the_engine(work):
    with EngineThread() as engine:
        return engine.call(work)


LOOPS = [in_main_thread_with_asyncio, in_main_thread_with_uvloop, in_a_thread_with_asyncio, on_the_engine]
run = in_main_thread_with_asyncio


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def started(script: str, **options) -> TargetProcess:
    return await start_process(shell(script), env={"TARGET": script}, **options)


async def until_said(process: TargetProcess, text: str) -> list[str]:
    """The words of the output, once `text` is among them."""
    async with asyncio.timeout(PATIENT):
        while text not in process.tail().split():  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)
    return process.tail().split()


def alive(pid: int) -> bool:
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """One letter, as `ps` shows it; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def sleepers(process: TargetProcess) -> list[str]:
    """Who was started with the environment of this target."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TARGET={process.command[-1]}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENT):
        while alive(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


# -- started, watched, stopped -----------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("run", LOOPS)
def test_it_is_stopped_politely(run):
    async def check():
        process = await started("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
        await until_said(process, "ready")
        assert process.running
        assert alive(process.pid)
        assert await process.stop(PATIENT) == 7
        assert not process.running
        assert process.tail().splitlines()[-1] == "bye"

    run(check())


@pytest.mark.smoke
@pytest.mark.parametrize("run", LOOPS)
def test_a_target_that_ignores_the_stop_signal_is_killed(run):
    async def check():
        process = await started("trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await until_said(process, "ready")
        assert await process.stop(0.05) == -signal.SIGKILL

    run(check())


def test_one_that_is_frozen_is_ended():
    async def check():
        process = await started("kill -STOP $$")
        async with asyncio.timeout(PATIENT):
            while state(process.pid) != "T":  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        assert await process.stop(0.05) == -signal.SIGKILL

    run(check())


@pytest.mark.parametrize("run", LOOPS)
def test_its_end_is_told_at_once_with_its_last_words(run):
    async def check():
        process = await started("echo to-out; echo to-err >&2; exit 3")
        assert await asyncio.wait_for(process.exited, PATIENT) == 3
        assert process.tail() == "to-out\nto-err"
        assert await process.stop(PATIENT) == 3

    run(check())


@pytest.mark.smoke
@pytest.mark.parametrize("run", LOOPS)
def test_an_end_by_a_signal_is_told(run):
    async def check():
        process = await started("kill -SEGV $$")
        assert await asyncio.wait_for(process.exited, PATIENT) == -signal.SIGSEGV
        error = await exited_early(process)
        assert "signal 11" in error.message
        assert "it printed nothing" in error.message

    run(check())


def test_an_end_with_0_has_a_hint_of_its_own():
    async def check():
        process = await started("exit 0")
        error = await exited_early(process)
        assert "exited with 0 before it was ready" in error.message
        assert "foreground" in error.hint

    run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the children of a process")
def test_it_may_end_while_it_is_looked_at():
    with subprocess.Popen(shell("for i in $(seq 200); do (sleep 0 & sleep 0 & wait); done")) as process:
        seen = set()
        while process.poll() is None:
            seen.update(family(process.pid))
            ProcessorTime(process.pid).look()
    assert process.pid in seen
    assert list(family(process.pid)) == [process.pid]


def test_stopping_twice_is_harmless():
    async def check():
        process = await started("sleep 100")
        first = await process.stop(PATIENT)
        assert await process.stop(PATIENT) == first == -signal.SIGTERM

    run(check())


def test_a_stop_that_is_cancelled_still_ends_it():
    async def check():
        process = await started("trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await until_said(process, "ready")
        stopping = asyncio.create_task(process.stop(1000))
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert await asyncio.wait_for(process.exited, PATIENT) == -signal.SIGKILL

    run(check())


def test_environment_folder_and_arguments_reach_it(tmp_path):
    async def check():
        process = await start_process(
            ["/bin/sh", "-c", 'echo "$WORD" "$1"; pwd; cat', "sh", "an argument"],
            env={"WORD": "a word"},
            cwd=tmp_path,
        )
        assert await process.exited == 0
        assert process.tail().splitlines() == ["a word an argument", str(tmp_path)]

    run(check())


def test_no_proxy_is_between_it_and_the_suite(monkeypatch):
    async def check(expected: str):
        process = await start_process(["/bin/sh", "-c", 'echo "$NO_PROXY|$no_proxy"'], env={})
        await process.exited
        assert process.tail().strip() == expected

    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "corp")
    run(check("corp|"))
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    loopback = "localhost,127.0.0.1,127.0.0.0/8,::1"
    run(check(f"corp,{loopback}|{loopback}"))


def test_secrets_are_redacted():
    async def check():
        process = await started("echo token=abcdefgh", redact=lambda text: text.replace("abcdefgh", "***"))
        await process.exited
        assert process.tail() == "token=***"

    run(check())


def test_a_flood_of_output_is_read_and_bounded():
    async def check():
        process = await started("head -c 100000000 /dev/zero | tr '\\0' '.'; echo; echo done")
        assert await asyncio.wait_for(process.exited, PATIENT) == 0
        assert process.tail().splitlines()[-1] == "done"
        assert len(process._output._kept) < 200_000

    on_the_engine(check())


def test_output_about_a_taken_port_is_recognized():
    async def check(text, status):
        process = await started(f"echo '{text}' >&2; exit {status}")
        await process.exited
        return port_was_taken(process)

    assert run(check("listen tcp :9002: bind: address already in use", 1))
    assert run(check("OSError: [Errno 98] Address already in use", 1))
    assert run(check("RuntimeError: Failed to bind to address 127.0.0.1:80", 1))
    assert not run(check("no such file", 1))


# -- nothing is left of it ---------------------------------------------------------------------------------------------

FAMILY = {
    "a child": "sleep 1000 & echo $!",
    "a child that ignores SIGTERM": "(trap '' TERM; while :; do sleep 1000; done) & echo $!",
    "a child in its own session": "setsid sleep 1000 & echo $!",
    "a daemon": "setsid sh -c 'sleep 1000 & echo $!'",
    "a daemon that closed its output": "setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'",
    "a grandchild whose parent is gone": "sh -c 'sleep 1000 & echo $!'",
}


@pytest.mark.parametrize("script", FAMILY.values(), ids=FAMILY.keys())
@pytest.mark.parametrize("end", ["stop", "exit", "killed"])
def test_its_descendants_end_with_it(script, end):
    async def check():
        process = await started(f"{script}; echo started; {'exit 5' if end == 'exit' else 'exec sleep 1000'}")
        child, *_ = await until_said(process, "started")
        if end == "killed":
            os.kill(process.pid, signal.SIGKILL)
        code = await (process.stop(0.2) if end == "stop" else asyncio.wait_for(process.exited, PATIENT))
        assert code == {"stop": -signal.SIGTERM, "exit": 5, "killed": -signal.SIGKILL}[end]
        assert not alive(int(child))
        await process.stop(1)

    run(check())


def test_a_target_that_keeps_forking_is_ended():
    async def check():
        process = await started("trap '' TERM; echo ready; while :; do setsid sleep 1000 & sleep 0.005; done")
        await until_said(process, "ready")
        assert sleepers(process)
        await process.stop(0.1)
        assert not sleepers(process)

    run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where a process listens")
def test_a_socket_for_both_versions_is_told_by_the_address_that_it_was_bound_to():
    """As the JVM opens one for 127.0.0.1."""
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::ffff:127.0.0.1", 0))
        server.listen()
        assert f"127.0.0.1:{server.getsockname()[1]}" in listening(os.getpid())


@pytest.mark.parametrize("script", FAMILY.values(), ids=FAMILY.keys())
def test_nothing_outlives_a_suite_that_is_killed(script, tmp_path):
    suite = f"""
import asyncio
from conformance.run.engine import EngineThread
from conformance.run.processor import ProcessorTime
from conformance.targets.listening import family
from conformance.targets.process import start_process

async def main():
    process = await start_process(["/bin/sh", "-c", {f"{script}; echo started; exec sleep 1000"!r}], env={{}})
    while "started" not in process.tail():
        await asyncio.sleep(0.01)
    print(process.pid, *process.tail().split(), flush=True)
    await asyncio.sleep(1000)

with EngineThread() as engine:
    engine.call(main())
"""
    with subprocess.Popen([sys.executable, "-c", suite], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        target, child, *_ = runner.stdout.readline().split()
        assert alive(int(target))
        runner.kill()
    run(gone(int(target)))
    run(gone(int(child)))


def test_a_supervisor_that_is_killed_takes_the_target_along():
    async def check():
        process = await started("echo ready; exec sleep 1000")
        await until_said(process, "ready")
        process._supervisor.kill()
        assert await asyncio.wait_for(process.exited, PATIENT) == -signal.SIGKILL
        await gone(process.pid)

    run(check())


@pytest.mark.parametrize("said", ["", "print('started 1', file=sys.stderr);"], ids=["at once", "later"])
def test_a_supervisor_that_fails_is_our_trouble(said, tmp_path, monkeypatch):
    broken = tmp_path / "supervisor.py"
    broken.write_text(f"import sys; {said} raise OSError('too many files')")
    monkeypatch.setattr("conformance.targets.process.supervisor", SimpleNamespace(__file__=str(broken)))

    async def check():
        process = await started("exit 0")
        await process.exited

    with pytest.raises(HarnessError, match="too many files"):
        run(check())


# -- what can't be started ---------------------------------------------------------------------------------------------


def refusal(command, **options) -> UsageError:
    with pytest.raises(UsageError) as caught:
        run(start_process(command, env={}, **options))
    return caught.value


def program(folder: Path, content: bytes, *, mode: int = stat.S_IRWXU) -> str:
    path = folder / "epp"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


ELF_OF_RISC_V = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00\x01\x00\x00\x00" + bytes(40)


def test_a_program_beside_the_profile_is_found(tmp_path):
    program(tmp_path, b"#!/bin/sh\necho found\n")

    async def check():
        process = await start_process(["./epp"], env={}, cwd=tmp_path)
        await process.exited
        return process.tail()

    assert run(check()) == "found"


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (["{folder}/epp"], "there is no file {folder}/epp", "build"),
        (["no-such-endpoint-picker"], "not on PATH", "./my-epp"),
        (["{folder}"], "is a folder", ""),
        (["/bin/true", "x" * 3_000_000], "", "longer than the system allows"),
        (["/bin/true", "a\0b"], "null byte", ""),
    ],
    ids=["missing", "not on the path", "folder", "too long", "null byte"],
)
def test_a_command_that_cannot_be_started_is_explained(tmp_path, command, message, hint):
    error = refusal([word.replace("{folder}", str(tmp_path)) for word in command])
    assert message.replace("{folder}", str(tmp_path)) in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("content", "mode", "message", "hint"),
    [
        (b"#!/bin/sh\n", 0o644, "may not be run", "chmod +x"),
        (ELF_OF_RISC_V, 0o700, "Exec format error", "architecture"),
        (b"echo hello\n", 0o700, "", "#! line"),
        (b"#!/no/such/interpreter\n", 0o700, "", "interpreter"),
    ],
    ids=["no run bit", "another architecture", "no first line", "missing interpreter"],
)
def test_a_file_that_cannot_be_started_is_explained(tmp_path, content, mode, message, hint):
    error = refusal([program(tmp_path, content, mode=mode)])
    assert message in error.message
    assert hint in error.hint


def test_a_missing_working_folder_is_named_by_its_key(tmp_path):
    assert "start.workdir" in refusal(["/bin/true"], cwd=tmp_path / "no").message
