"""A target that is a container: its output followed, its end noticed, and removed whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.errors import HarnessError, UsageError
from conformance.targets.bridge import Bridge
from conformance.targets.containers import call, connect, explained, labels, said
from conformance.targets.output import Output
from ext_proc.http2.address import UNIX

if TYPE_CHECKING:
    import docker
    from docker.types import CancellableStream

LAST_WORDS = 5.0
"""Seconds to read what the target printed before it ended."""


class TargetContainer:
    """A running container (`Running`). Make one with `start_container`."""

    def __init__(self, client: docker.DockerClient, image: str, args: Sequence[str], output: Output) -> None:
        self.command = (image, *args)
        self.pid = 0
        self.image: str | None = None
        self.asked_to_stop = False
        self._client = client
        self._output = output
        self._id = ""
        self._address = ""
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.create_task(self._wait())

    @property
    def running(self) -> bool:
        """False once the container has ended."""
        return not self.exited.done()

    def tail(self) -> str:
        """The last lines of its output (both streams), with secrets redacted."""
        return self._output.tail()

    def reach(self, address: str) -> str:
        """The same port, on the container's own address if it has one. A Unix socket is in a folder that both see."""
        if address.startswith(UNIX):
            return address
        return f"{self._address}:{address.rpartition(':')[2]}" if self._address else address

    async def stop(self, patience: float) -> int:
        """Its stop signal, SIGKILL after `patience` seconds, and the container is removed; returns the exit code.

        With a `patience` of 0 it is killed without the stop signal.
        """
        self.asked_to_stop = True
        try:
            with contextlib.suppress(HarnessError, TimeoutError):
                if patience:
                    await call(self._ask_to_stop, math.ceil(patience))
                    await asyncio.wait_for(asyncio.shield(self.exited), LAST_WORDS)
        finally:
            await self.remove()
        return self._end.result() if not self._end.exception() else -signal.SIGKILL

    async def remove(self) -> None:
        """Remove the container, running or not."""
        with contextlib.suppress(HarnessError):
            await call(self._remove)
        if not self._end.done():
            self._end.set_result(-signal.SIGKILL)  # it never ran, or no one can say any more how it ended
        with contextlib.suppress(HarnessError):
            await self.exited
        self._client.close()

    async def _wait(self) -> int:
        return await self._end

    # -- in threads ----------------------------------------------------------------------------------------------------

    def create(self, settings: Mapping[str, Any], host_config: Mapping[str, Any]) -> None:
        """Make the container. Raises docker's errors."""
        api = self._client.api
        made = api.create_container(**settings, labels=labels(), host_config=api.create_host_config(**host_config))
        self._id = made["Id"]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start it, with somebody reading from the first byte on. Raises docker's errors."""
        api = self._client.api
        output: CancellableStream[bytes] = api.attach(self._id, stdout=True, stderr=True, stream=True)
        threading.Thread(target=self._follow, args=(output, loop), name="epp-conformance-output", daemon=True).start()
        api.start(self._id)
        state = api.inspect_container(self._id)
        self.pid = state["State"]["Pid"]
        self._address = next((one["IPAddress"] for one in state["NetworkSettings"]["Networks"].values()), "")

    def _follow(self, output: CancellableStream[bytes], loop: asyncio.AbstractEventLoop) -> None:
        try:
            with explained("following the target's container"):
                try:
                    for data in output:
                        self._output.feed(data)
                finally:
                    with contextlib.suppress(OSError):
                        output.close()
                    # Its own close() forgets the file around the socket.
                    output._response.close()  # type: ignore[attr-defined]  # noqa: SLF001
                code = int(self._client.api.wait(self._id, timeout=None)["StatusCode"])
        except Exception as problem:  # noqa: BLE001 - whatever it is must reach who waits
            trouble = problem if isinstance(problem, HarnessError) else HarnessError(f"{type(problem)}: {problem}")
            self._settle(loop, lambda: self._end.set_exception(trouble))
        else:
            self._settle(loop, lambda: self._end.set_result(code))

    def _settle(self, loop: asyncio.AbstractEventLoop, how: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no one waits any more
            loop.call_soon_threadsafe(lambda: None if self._end.done() else how())

    def _ask_to_stop(self, patience: int) -> None:
        with explained("stopping the target's container"):
            self._client.api.stop(self._id, timeout=patience)

    def _remove(self) -> None:
        if self._id:
            with explained("removing the target's container"):
                self._client.api.remove_container(self._id, force=True, v=True)


async def start_container(
    image: str,
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    bridge: Bridge | None,
    folders: Mapping[Path, str],
    workdir: Path | None = None,
    redact: Callable[[str], str] = str,
) -> TargetContainer:
    """Start `image` with `args` for its entry point, in `bridge` or else in this machine's own network.

    `folders` of this machine are seen at the same place in the container, `rw` or `ro`. An image that is not here is
    pulled. Raises `UsageError` if there is no engine or no such image, or if it can't be started.
    """
    client = await connect()
    output = Output(redact)
    container = TargetContainer(client, image, args, output)
    try:
        facts = await _image(client, image)
        container.image = _digest(facts)
        for note in await call(_notes, client, facts, bridge):
            output.feed(f"({note})\n".encode())
        for folder in (folder for folder, mode in folders.items() if mode == "rw"):
            await call(folder.chmod, 0o755)  # the suite made it, and images run as other users
        await call(
            container.create,
            {
                "image": image,
                "command": list(args) or None,
                "environment": dict(env),
                "working_dir": str(workdir) if workdir else None,
            },
            {
                "binds": [f"{folder}:{folder}:{mode}" for folder, mode in folders.items()],
                "network_mode": bridge.id if bridge else "host",
                "log_config": {"type": "none"},  # we read along; a flood must not fill the disk
                "security_opt": ["label=disable"],  # SELinux would hide the folders
            },
        )
        await call(container.start, asyncio.get_running_loop())
    except BaseException as problem:
        await container.remove()
        if (reason := _refusal(problem)) is not None:
            notes = f"\n{output.tail()}" if output.tail() else ""
            raise UsageError(f"the image {image} can't be started: {reason}{notes}", hint=_hint(reason)) from problem
        raise
    return container


async def _image(client: docker.DockerClient, name: str) -> Mapping[str, Any]:
    """What the engine knows of the image, which is pulled if it is not there."""
    from docker.errors import APIError, ImageNotFound

    with explained(f"looking for the image {name}"):
        try:
            return await call(client.api.inspect_image, name)
        except ImageNotFound:
            pass
        except APIError as problem:
            if not problem.is_client_error():
                raise
            raise UsageError(f"{name!r} can't be the name of an image: {said(problem)}") from problem
    given_up = threading.Event()
    try:
        await asyncio.to_thread(_pull, client, name, given_up)
    finally:
        given_up.set()
    with explained(f"looking for the image {name}"):
        return await call(client.api.inspect_image, name)


def _pull(client: docker.DockerClient, name: str, given_up: threading.Event) -> None:
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    reason = ""
    try:
        for step in client.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if given_up.is_set():
                return
            reason = step.get("error", reason)
    except APIError as problem:
        reason = said(problem)
    if reason:
        raise UsageError(
            f"there is no image {name} on this machine, and it can't be pulled: {reason}",
            hint="check its name (`docker images`), build it, or `docker login` to its registry",
        )


def _digest(facts: Mapping[str, Any]) -> str:
    """The digest under which a registry has the image; of one that was never pushed, its own id."""
    known = [name.rpartition("@")[2] for name in facts.get("RepoDigests") or ()]
    return str(known[0] if known else facts["Id"])


def _notes(client: docker.DockerClient, facts: Mapping[str, Any], bridge: Bridge | None) -> list[str]:
    """What may explain a failure later."""
    with explained("asking the engine what it is"):
        engine, info = client.api.version(), client.api.info()
    notes = []
    ours, its = (engine["Os"], engine["Arch"]), (facts["Os"], facts["Architecture"])
    if ours != its:
        notes.append(f"the image is for {'/'.join(its)}, this engine runs {'/'.join(ours)}")
    desktop = info.get("OperatingSystem") == "Docker Desktop"
    if bridge is None and (desktop or any("rootless" in option for option in info.get("SecurityOptions") or ())):
        notes.append("this engine (Docker Desktop or rootless) has its own network, which is not the machine's")
    return notes


def _refusal(problem: BaseException) -> str | None:
    """What the engine said against starting the container; None for any other problem."""
    from docker.errors import APIError

    return said(problem) if isinstance(problem, APIError) else None


def _hint(reason: str) -> str:
    if "exec format error" in reason:
        return "it is for another platform: build or pull it for this one (docker pull --platform)"
    if "not found" in reason or "no such file" in reason:
        return "check the image's entry point, and start.args and start.workdir in the profile"
    return "try it by hand: docker run --rm IMAGE"
