"""Model servers beside the test that asks them: pods of the fleet, and what is no model server at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Self

from fake_modelserver import Fault, Fleet, Latency, Pod, PodSpec, Served, Serving

QUEUES = Serving(max_running=4, max_loras=2, first_token=Latency(mean=0.02), between_tokens=Latency(mean=0.005))
"""How a pod takes requests that is to queue soon."""


@contextlib.contextmanager
def model_server(*, faults: Sequence[Fault] = (), served: list[Served] | None = None, **spec: Any) -> Iterator[Pod]:
    """A pod until the block ends; `spec` are arguments of `PodSpec`, `served` gets what it is asked."""
    wanted = PodSpec(**{"name": "server", "models": ("small-model",), "serving": QUEUES, **spec})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout=20)

    fleet = Fleet(on_request=None if served is None else served.append, keep_body=1_000_000)
    try:
        call(fleet.start())
        pod = call(fleet.add(wanted))
        for fault in faults:
            call(pod.inject(fault))
        yield pod
    finally:
        call(fleet.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class BadTarget:
    """Listens on `address` and answers every connection with `answer`, and then with `endless` again and again."""

    def __init__(self, answer: bytes | None, endless: bytes = b"", context: ssl.SSLContext | None = None) -> None:
        self._answer, self._endless, self._context = answer, endless, context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for one in self._threads:
            one.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._socket.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(taken,)))
                self._threads[-1].start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError), taken:
            taken.settimeout(5)
            spoken = self._context.wrap_socket(taken, server_side=True) if self._context else taken
            while not self._over.is_set() and spoken.recv(65536):
                if self._answer is None:
                    self._over.wait(60)
                    return
                spoken.sendall(self._answer)
                while self._endless and not self._over.is_set():
                    spoken.sendall(self._endless)
                    self._over.wait(0.01)
