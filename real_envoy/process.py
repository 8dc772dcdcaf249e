"""A real Envoy as a child process: started, watched, read out and ended; it never outlives us.

The traps are Envoy's own. With hot restart it would end with the thread that spawned it and two of them would fight
for one shared-memory id; with SO_REUSEPORT two of them share a port silently. So: no hot restart, and free ports only,
which the admin API tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_proxy.client import HttpRequest
from real_envoy.binary import EnvoyBinary, find_envoy
from real_envoy.endpoints import write_pool
from real_envoy.errors import EnvoyDiedError, EnvoyFailedError, EnvoyRejectedError
from real_envoy.http_client import send_request
from real_envoy.http_response import HttpResponse
from real_envoy.rendering import ACCESS_LOG, pool_assignment, render
from real_envoy.settings import EnvoySettings

READY_WITHIN = 10.0
"""Seconds that Envoy gets until it is ready; it needs less than 0.3."""

_TAIL_LINES = 200
_LINE = 2000
_POLL = 0.003
_ADMIN = 5.0
_DYING = 1.0
_CONFIG, _ADMIN_ADDRESS = "bootstrap.json", "admin-address"
_NOISE = re.compile(r"^.*?error initializing configuration '[^']*': ", re.DOTALL)


async def validate(gateways: Mapping[str, EnvoySettings], *, binary: EnvoyBinary | None = None) -> None:
    """Let Envoy check the configuration. Raises `EnvoyRejectedError` with its message, or another `EnvoyError`."""
    binary = binary or find_envoy()
    config = await asyncio.to_thread(render, gateways)
    with tempfile.TemporaryDirectory(prefix="epp-envoy-") as folder:
        where = Path(folder)
        (where / _CONFIG).write_bytes(config)
        await _validate(binary, where)


async def _validate(binary: EnvoyBinary, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        binary.path,
        *("--mode", "validate", "-c", _CONFIG, "-l", "warning", "--disable-hot-restart"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        async with asyncio.timeout(READY_WITHIN):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise EnvoyFailedError(
            f"envoy --mode validate did not end within {READY_WITHIN:g} s", "Is the machine overloaded?"
        ) from None
    if process.returncode:
        text = said.decode(errors="replace").strip()
        raise EnvoyRejectedError(_NOISE.sub("", text) or f"it exits with {process.returncode} and says nothing")


async def start_envoy(
    gateways: Mapping[str, EnvoySettings],
    *,
    binary: EnvoyBinary | None = None,
    component_log_level: str = "ext_proc:debug",
    patience: float = READY_WITHIN,
) -> Envoy:
    """Start an Envoy with `gateways` and return when each of them listens.

    Raises `EnvoyMissingError`, `EnvoyUnusableError` or `EnvoyTooOldError` for a binary that won't do,
    `EnvoyRejectedError` with Envoy's own message for a configuration that it refuses, `EnvoyDiedError` if it ends,
    `EnvoyFailedError` if it is not ready within `patience` seconds. Nothing is left running then.
    """
    binary = binary or find_envoy()
    for settings in gateways.values():
        settings.require(binary)
    config = await asyncio.to_thread(render, gateways)
    folder = Path(tempfile.mkdtemp(prefix="epp-envoy-"))
    try:
        (folder / _CONFIG).write_bytes(config)
        for name, settings in gateways.items():
            if settings.changing_pool:
                write_pool(folder, "0", pool_assignment(name, settings, ()))
        envoy = Envoy(binary, folder, await _spawn(binary, folder, component_log_level), gateways)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        await envoy._get_ready(patience)  # noqa: SLF001 - the other half of this function
    except BaseException as problem:
        try:
            if isinstance(problem, EnvoyDiedError):
                await _validate(binary, folder)  # says what is wrong with the configuration, if that is the reason
        finally:
            await envoy.stop()
        raise
    return envoy


async def _spawn(binary: EnvoyBinary, folder: Path, component_log_level: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        binary.path,
        *("-c", _CONFIG, "--concurrency", "1", "--disable-hot-restart"),
        *("--admin-address-path", _ADMIN_ADDRESS, "--file-flush-interval-msec", "20"),
        *("-l", "warning", "--component-log-level", component_log_level),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


class Envoy:
    """A running Envoy. Made by `start_envoy`; ended by `stop`, or as a context manager."""

    def __init__(
        self,
        binary: EnvoyBinary,
        folder: Path,
        process: asyncio.subprocess.Process,
        gateways: Mapping[str, EnvoySettings] | None = None,
    ) -> None:
        self.binary = binary
        self.gateways: Mapping[str, EnvoySettings] = gateways or {}
        self.pid = process.pid
        self.admin = ""
        """`host:port` of the admin API."""
        self.addresses: Mapping[str, str] = {}
        """`host:port` that each gateway listens on."""
        self._folder = folder
        self._process = process
        self._pools = itertools.count(1)
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._reading = asyncio.create_task(self._read())
        self.exited = asyncio.create_task(self._wait())
        """Ends with the exit code (negative: the signal) as soon as the process has ended."""

    async def __aenter__(self) -> Envoy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> bool:
        """False once the process has ended."""
        return self._process.returncode is None

    def check(self) -> None:
        """Raise `EnvoyDiedError` if it has ended."""
        if self._process.returncode is not None:
            raise EnvoyDiedError(self._process.returncode, self.tail(20))

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its log, which name every violation of ext_proc that it noticed."""
        return "\n".join(list(self._tail)[-lines:])

    async def counters(self, gateway: str) -> Counter[str]:
        """The counters of a gateway, without their common prefix: `ext_proc.streams_started`, `downstream_rq_total`, …

        They only grow: subtract what was read before from what is read after. Raises an `EnvoyFailedError`.
        """
        prefix = f"http.{gateway}."
        answer = await self._ask(f"/stats?type=Counters&filter=^{re.escape(prefix)}")
        lines = (line.rpartition(": ") for line in answer.body.decode().splitlines())
        return Counter({name.removeprefix(prefix): int(value) for name, _, value in lines if name.startswith(prefix)})

    async def set_pool(self, gateway: str, endpoints: tuple[str, ...]) -> None:
        """Give a gateway with a `changing_pool` its endpoints, and return when Envoy has them.

        Raises an `EnvoyFailedError`, with its output, if it does not take them.
        """
        assignment = pool_assignment(gateway, self.gateways[gateway], endpoints)
        cluster, version = assignment["clusterName"], str(next(self._pools))
        write_pool(self._folder, version, assignment)
        expires = time.monotonic() + _ADMIN
        stat = f"cluster.{cluster}.version_text"
        while time.monotonic() < expires:
            answer = await self._ask(f"/stats?type=TextReadouts&filter=^{re.escape(stat)}$")
            if answer.body.decode().strip() == f'{stat}: "{version}"':
                return
            await asyncio.wait([self.exited], timeout=_POLL)
        raise EnvoyFailedError(
            f"Envoy did not take the endpoints of {gateway} within {_ADMIN:g} s", f"Its last output:\n{self.tail(20)}"
        )

    def access_log(self) -> list[dict[str, Any]]:
        """What it wrote of each finished request: `gateway`, `request_id`, `status`, `details` (why the response is
        what it is), `flags`, `endpoint`, `attempts`. A line is here some 20 ms after its request."""
        path = self._folder / ACCESS_LOG
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    async def stop(self, patience: float = 5.0) -> int:
        """SIGTERM, SIGKILL to its group after `patience` seconds; returns the exit code. Idempotent."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.exited), patience)
        self._signal(signal.SIGKILL)
        code = await self.exited
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        shutil.rmtree(self._folder, ignore_errors=True)
        return code

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _get_ready(self, patience: float) -> None:
        """Wait for the admin address, for LIVE, and for the listeners."""
        expires = time.monotonic() + patience
        file = self._folder / _ADMIN_ADDRESS
        while time.monotonic() < expires:
            if self.exited.done():
                raise EnvoyDiedError(self.exited.result(), self.tail(20))
            if not self.admin and file.exists():
                self.admin = file.read_text().strip()
            if self.admin and (await self._ask("/ready")).body.startswith(b"LIVE"):
                self.addresses = _listeners(await self._ask("/listeners?format=json"))
                return
            await asyncio.wait([self.exited], timeout=_POLL)
        raise EnvoyFailedError(
            f"Envoy was not ready within {patience:g} s", f"Its last output:\n{self.tail(20) or '(nothing)'}"
        )

    async def _ask(self, path: str) -> HttpResponse:
        request = HttpRequest(method="GET", path=path, authority=self.admin)
        try:
            answer = await send_request(self.admin, request, timeout=_ADMIN)
        except OSError as problem:
            await self._perhaps_died()
            raise EnvoyFailedError(
                f"Envoy's admin API at {self.admin} can't be reached: {problem}", "Is the process being stopped?"
            ) from problem
        if not answer.complete:
            await self._perhaps_died()
            how = f"within {_ADMIN:g} s" if answer.expired else "but cuts the connection"
            raise EnvoyFailedError(f"Envoy's admin API does not answer GET {path} {how}", "Is the machine overloaded?")
        return answer

    async def _perhaps_died(self) -> None:
        """Raise `EnvoyDiedError` if the process is ending: its sockets close a little before it is gone."""
        await asyncio.wait([self.exited], timeout=_DYING)
        self.check()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _wait(self) -> int:
        code = await self._process.wait()
        with contextlib.suppress(TimeoutError):  # its last words
            await asyncio.wait_for(asyncio.shield(self._reading), 0.5)
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while piece := await self._process.stdout.read(64 * 1024):
            *lines, rest = (rest + piece).split(b"\n")
            self._tail.extend(line[:_LINE].decode(errors="replace") for line in lines[-_TAIL_LINES:])
            rest = rest[-_LINE:]
        if rest:
            self._tail.append(rest.decode(errors="replace"))


def _listeners(answer: HttpResponse) -> dict[str, str]:
    found = {}
    for status in json.loads(answer.body).get("listener_statuses", []):
        address = status["local_address"]["socket_address"]
        found[status["name"]] = f"{address['address']}:{address['port_value']}"
    return found


def _die_with_parent() -> None:
    """Linux: be killed when the thread that started it ends, even by SIGKILL (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
