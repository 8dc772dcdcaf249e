"""The Kubernetes API emulator: one object that the suite starts, changes, disturbs and asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from fake_kubernetes.api import Api
from fake_kubernetes.builders import kubeconfig
from fake_kubernetes.errors import KubernetesEmulatorError
from fake_kubernetes.faults import Faults
from fake_kubernetes.kinds import KINDS, Kind
from fake_kubernetes.log import Delivery, RequestRecord, WatchRecord
from fake_kubernetes.server import HttpServer
from fake_kubernetes.store import Change, Store
from fake_kubernetes.watch import Watches

__all__ = ["Emulator", "EmulatorEvent"]

EmulatorEvent = Change | Delivery | RequestRecord


class Emulator:
    """An API server on the running loop, plain HTTP, no authentication: bind it to other than loopback with care.

    `store` holds the objects and may be changed at any time from the loop's thread, before `start` too. `port` 0
    takes a free one. `bookmark_interval` is seconds between periodic bookmarks. `on_event` is called on the loop with
    each change, each watch event that was delivered, and each request once it is answered. Use as an async context
    manager, or `start` and `stop`.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        kinds: Iterable[Kind] = KINDS,
        namespaces: Iterable[str] = ("default",),
        bookmark_interval: float = 10.0,
        on_event: Callable[[EmulatorEvent], None] | None = None,
    ) -> None:
        self._on_event = on_event
        self._host = host
        self.store = Store(kinds, namespaces=namespaces)
        self.store.subscribe(self._changed)
        self._watches = Watches(self.store, bookmark_interval=bookmark_interval, on_delivery=self._tell)
        self._api = Api(self.store, self._watches, on_request=self._tell)
        self._server = HttpServer(self._api.answer, host=host, port=port)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises KubernetesEmulatorError if the address can't be bound."""
        try:
            await self._server.open()
        except OSError as error:
            where = f"{self._host}:{self._server.port}"
            raise KubernetesEmulatorError(
                f"the Kubernetes emulator can't listen on {where}: {error}; take another, or port 0"
            ) from error

    async def stop(self) -> None:
        """Stop listening, cut all connections, give the port back. Harmless when not started."""
        await self._server.close()
        self._server.release()

    async def __aenter__(self) -> Emulator:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    @property
    def port(self) -> int:
        """The TCP port; 0 before the first `start` if a free one was asked for."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where this machine reaches the emulator; wildcard addresses are named by their loopback address."""
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def kubeconfig(self, path: Path | str, *, server: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig file and return its path. `server` is the URL in it, where a container needs another."""
        path = Path(path)
        self._server.names.add(urlsplit(server or self.url).hostname or "")
        path.write_text(kubeconfig(server or self.url, namespace=namespace), encoding="utf-8")
        return path

    # -- what was asked and delivered ----------------------------------------------------------------------------------

    @property
    def requests(self) -> Sequence[RequestRecord]:
        """The latest 20,000 requests, oldest first."""
        return tuple(self._api.requests)

    @property
    def watches(self) -> Sequence[WatchRecord]:
        """The watches that are open now."""
        return tuple(watch.record for watch in self._watches.open)

    async def delivered(self, resource_version: int, timeout: float, kinds: Collection[Kind] | None = None) -> bool:
        """Wait until a change has reached every watcher of its kind; return False if `timeout` seconds pass first.

        True means: for each of `kinds` (default: the kind of the change) every open watch has been sent all that it
        should see up to `resource_version`, and the kernel has taken it; where no watch is open, a list at least that
        new was answered since the last watch opened. With no watcher of a kind it is never delivered.
        """
        return await self._watches.delivered(resource_version, timeout, kinds)

    async def watched(self, kinds: Collection[Kind], timeout: float) -> bool:
        """Wait until each of `kinds` is watched or was listed; return False if `timeout` seconds pass first."""
        return await self._watches.delivered(0, timeout, kinds)

    # -- trouble -------------------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """The lasting faults; assign to change them at once, `Faults()` for none."""
        return self._watches.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._watches.faults = faults
        self._watches.signal.notify()

    def drop_watches(self) -> int:
        """Cut the connection of every open watch, as a failing network would; return how many there were."""
        return self._watches.drop()

    def end_watches(self) -> int:
        """End every open watch in the polite way, as its timeout would; return how many there were."""
        return self._watches.drop("timeout")

    def bookmark(self) -> None:
        """Send a bookmark to every open watch that allows them, before any further change."""
        self._watches.bookmark()

    def compact(self) -> None:
        """Forget all history: open watches get an ERROR 410 and end, and every earlier resource version is expired."""
        self.store.compact()

    async def go_down(self) -> None:
        """Refuse connections and cut the open ones; the store stays. `come_up` ends it."""
        await self._server.close()

    async def come_up(self) -> None:
        """Listen again on the same port; resource versions go on from where they were."""
        await self.start()

    async def restart(self, *, down: float = 0.0) -> None:
        """Go down, stay down for `down` seconds, and come up."""
        await self.go_down()
        await asyncio.sleep(down)
        await self.come_up()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _changed(self, change: Change | None) -> None:
        self._watches.signal.notify()
        if change is not None:
            self._tell(change)

    def _tell(self, event: EmulatorEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
