"""The container engine: found, asked in threads, and left without anything that the suite made.

What we make there carries a label that names this process. What an earlier run left behind, because it was killed, is
found by that label and removed before anything new is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conformance.errors import HarnessError, UsageError

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

OWNER = "epp-conformance.owner"
"""Label of everything that the suite makes there: host, process id and start of the process that made it."""

TIMEOUT = 30
"""Seconds for one answer of the engine."""


async def connect() -> docker.DockerClient:
    """A client of the engine that the environment names. Raises `UsageError` without the SDK, or without an engine."""
    client = await call(_client)
    await call(_sweep, client)
    return client


async def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a blocking function in a thread. Who is cancelled waits for it, so that nothing is made unbeknown."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def labels() -> dict[str, str]:
    """For everything that is made in the engine."""
    return {OWNER: _identity(os.getpid())}


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Trouble with the engine while doing `what` becomes a `HarnessError`."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as problem:
        raise HarnessError(f"{what}: the container engine says: {said(problem)}") from problem
    except (DockerException, RequestException) as problem:
        raise HarnessError(
            f"{what}: the container engine does not answer: {problem}", hint="is it still running? `docker info`"
        ) from problem


def said(problem: Any) -> str:
    """What the engine said, without the client's words around it."""
    return str(problem.explanation or problem)


def _client() -> docker.DockerClient:
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        raise UsageError(
            "image: targets need the Docker SDK for Python", hint="pip install 'epp-conformance[docker]'"
        ) from None
    try:
        return docker.from_env(timeout=TIMEOUT)
    except (DockerException, ValueError) as problem:  # of a URL without a sense the SDK lets Python's own word through
        where = os.environ.get("DOCKER_HOST", "its usual socket")
        raise UsageError(
            f"no container engine answers at {where}: {str(problem).splitlines()[0]}",
            hint="start Docker (`docker info` must work for this user), or name the engine in DOCKER_HOST",
        ) from problem


def _sweep(client: docker.DockerClient) -> None:
    """Remove what runs left behind that are not running any more."""
    with explained("looking for what earlier runs left behind"):
        filters = {"label": OWNER}
        containers = client.api.containers(all=True, filters=filters)
        networks = client.api.networks(filters=filters)
        for one in containers:
            if _abandoned(one["Labels"][OWNER]):
                _remove(functools.partial(client.api.remove_container, one["Id"], force=True, v=True))
        for one in networks:
            if _abandoned(one["Labels"][OWNER]):
                _remove(functools.partial(client.api.remove_network, one["Id"]))


def _remove(removal: Callable[[], object]) -> None:
    from docker.errors import APIError

    with contextlib.suppress(APIError):  # another run was quicker
        removal()


def _abandoned(owner: str) -> bool:
    """Whether the process that made something has ended; no one can tell for another machine."""
    host, pid, _ = (*owner.split(), "", "", "")[:3]
    return host == socket.gethostname() and pid.isdigit() and _identity(int(pid)) != owner


def _identity(pid: int) -> str:
    """Host, process id and, since ids are used again, the start time of a process; no process id if it has ended."""
    host = socket.gethostname()
    try:
        started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return f"{host} -"
        except OSError:
            pass
        started = "-"
    return f"{host} {pid} {started}"
