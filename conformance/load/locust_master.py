"""Locust's master, to which workers of other machines connect. It has its own thread and event loop (gevent's).

Nothing else of the program runs on gevent: Locust is imported without its changes to Python's sockets and threads.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from conformance.errors import ConformanceError, HarnessError, IncompleteError, UsageError
from conformance.load.wire import FORM, Message, WireError, decode, encode
from conformance.printable import plural
from conformance.run.engine import result_of

_log = logging.getLogger(__name__)

T = TypeVar("T")

_GREETING = 15.0
"""Seconds in which a worker that is connected has to say who it is."""

_LOOK = 0.5
"""Seconds between two looks at who is still there."""

_UNPATCHED = "LOCUST_SKIP_MONKEY_PATCH"


def import_locust() -> None:
    """Import Locust, as it is no part of this program's other threads. Raises `UsageError` if it is not installed."""
    given = os.environ.get(_UNPATCHED)
    os.environ[_UNPATCHED] = "1"
    try:
        import conformance.load.locust_user  # noqa: F401
    except ImportError as problem:
        raise UsageError(
            f"workers are Locust's, which can't be imported: {problem}", hint="pip install 'epp-conformance[load]'"
        ) from problem
    finally:
        if given is None:  # what this program starts does not inherit it
            del os.environ[_UNPATCHED]
        else:
            os.environ[_UNPATCHED] = given


class WorkerLink:
    """The generator of one worker, as the run sees it (a `GeneratorLink`)."""

    def __init__(self, name: str, tell: Callable[[str, bytes], object]) -> None:
        self.name = name
        self._tell = tell
        self._said: SimpleQueue[bytes] = SimpleQueue()

    def send(self, command: Message) -> None:
        """See `GeneratorLink`."""
        self._tell(self.name, encode(command))

    def receive(self) -> Message:
        """See `GeneratorLink`. Raises `IncompleteError` if the worker is gone."""
        try:
            message = decode(self._said.get())
        except WireError as problem:
            message = problem
        if isinstance(message, ConformanceError):
            raise type(message)(f"the worker {self.name}: {message.message}", hint=message.hint)
        return message

    def say(self, said: bytes) -> None:
        """The worker said this, or it is said of it."""
        self._said.put(said)

    def let_go(self) -> None:
        """See `GeneratorLink`."""
        self.say(encode(IncompleteError("it is not needed any more")))

    def close(self) -> None:
        """See `GeneratorLink`: the master ends all workers."""


class LocustMaster:
    """A Locust master at `host` and `port` (0: any), for `number` workers. Use as a context manager, which raises
    `UsageError` if it can't listen there. Its methods are for other threads."""

    def __init__(self, host: str, port: int, number: int) -> None:
        self.links: list[WorkerLink] = []
        """The workers that take part, in the order of their shares."""
        self.port = port
        self._host = host
        self._number = number
        self._refusal = ""
        self._over = False
        self._asked: deque[Callable[[], None]] = deque()
        self._listening: Future[None] = Future()
        self._runner: Any = None
        self._wake: Any = None
        self._thread = threading.Thread(target=self._main, name="epp-conformance-locust", daemon=True)

    def __enter__(self) -> Self:
        import_locust()
        _check_free(self._host, self.port)
        self._thread.start()
        self._listening.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._wake.send()
        self._thread.join()

    def gather(self, seconds: float) -> None:
        """Wait for the workers. Raises `IncompleteError` after `seconds`, `UsageError` for one that does not fit."""
        result_of(self._ask(lambda: self._gather(seconds)))

    def statistics(self) -> str:
        """Locust's statistics of the requests of all workers, as Locust writes them with `--csv`."""
        return self._ask(self._statistics).result()

    # -- on the thread of the master -----------------------------------------------------------------------------------

    def _ask(self, work: Callable[[], T]) -> Future[T]:
        """Have it done, after what was asked before."""
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(work())
            except Exception as problem:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(problem)

        self._asked.append(carry_out)
        self._wake.send()
        return done

    def _main(self) -> None:
        import gevent
        from gevent.event import Event

        try:
            self._runner = self._begun()
            turn = Event()
            self._wake = gevent.get_hub().loop.async_()
            self._wake.start(turn.set)
        except BaseException as problem:  # noqa: BLE001 - Locust ends the program, and whatever it is, it is said
            self._listening.set_exception(HarnessError(f"Locust's master does not start: {problem}"))
            return
        self._listening.set_result(None)
        watching = gevent.spawn(self._watch)
        while not self._over:
            turn.wait()
            turn.clear()
            while self._asked:
                self._asked.popleft()()
        watching.kill()
        self._runner.quit()  # the workers, too
        for late in self._runner.clients.all:  # one may have connected meanwhile, and would wait for a minute
            self._runner.send_message("quit", client_id=late.id)
        self._runner.server.close(linger=1000)
        self._wake.close()
        gevent.get_hub().destroy(destroy_loop=True)

    def _begun(self) -> Any:
        from locust.dispatch import UsersDispatcher
        from locust.env import Environment

        from conformance.load.locust_user import HELLO, SAID, EppUser

        class Settled(UsersDispatcher):
            """Users stay on the workers that they began on: a share is one worker's, also when others come or go."""

            def add_worker(self, worker_node: Any) -> None:
                """See `UsersDispatcher`."""

            def remove_worker(self, worker_node: Any) -> None:
                """See `UsersDispatcher`."""

        environment = Environment(user_classes=[EppUser], dispatcher_class=Settled)
        runner: Any = environment.create_master_runner(self._host, self.port)
        self.port = runner.server.port
        runner.register_message(HELLO, self._greet)
        runner.register_message(SAID, self._hear)
        runner.server.recv_from_client = _readable(runner.server.recv_from_client)
        runner.handle_message = _unshaken(runner.handle_message)
        return runner

    def _gather(self, seconds: float) -> None:
        import gevent

        until = time.monotonic() + seconds
        where = f"{self._host}:{self.port}"
        while not self._over and (there := len(self._runner.clients.ready)) < self._number:
            if time.monotonic() > until:
                raise IncompleteError(
                    f"{there} of {plural(self._number, 'worker')} connected to {where} in {seconds:g} s",
                    hint=f"on each machine: epp-conformance load-worker HOST:{self.port}",
                )
            gevent.sleep(0.05)
        if self._over:
            return
        self._runner.start(self._number, self._number)
        until = time.monotonic() + _GREETING
        while not self._over and len(self.links) < self._number:
            if self._refusal:
                raise UsageError(self._refusal, hint="install the same version of epp-conformance on every machine")
            if time.monotonic() > until:
                silent = sorted({one.id for one in self._runner.clients.all} - {link.name for link in self.links})
                raise UsageError(
                    f"no EppUser began on the workers {', '.join(silent) or '(all are gone)'}",
                    hint="a locustfile of a worker has: from conformance.load.locust_user import EppUser",
                )
            gevent.sleep(0.05)

    def _greet(self, msg: Any, **_: object) -> None:
        from conformance.load.locust_user import ANSWER, SUITE

        if msg.node_id not in self._runner.clients:
            return  # it is no worker
        found = msg.data if isinstance(msg.data, dict) else {}
        if (found.get("suite"), found.get("form")) == (SUITE, FORM):
            answer = "" if len(self.links) < self._number else "the load has all the workers that it needs"
            if not answer:
                self.links.append(WorkerLink(msg.node_id, self._tell))
        else:
            answer = self._refusal = (
                f"the worker {msg.node_id} has epp-conformance {found.get('suite')!s:.40} "
                f"(form {found.get('form')!s:.10}), the master has {SUITE} (form {FORM})"
            )
        self._runner.send_message(ANSWER, answer, client_id=msg.node_id)

    def _hear(self, msg: Any, **_: object) -> None:
        for link in self.links:
            if link.name == msg.node_id:
                link.say(msg.data if isinstance(msg.data, bytes) else b"")

    def _tell(self, name: str, data: bytes) -> None:
        from conformance.load.locust_user import COMMAND

        self._ask(lambda: self._runner.send_message(COMMAND, data, client_id=name))

    def _watch(self) -> None:
        """Say it of workers that are gone: Locust misses the sign of life that each gives every second."""
        import gevent
        from locust.runners import STATE_MISSING

        while True:
            gevent.sleep(_LOOK)
            for link in self.links:
                node = self._runner.clients.get(link.name)
                if node is None or node.state == STATE_MISSING:
                    link.say(encode(IncompleteError("it was lost: it ended, or can't be reached")))

    def _statistics(self) -> str:
        from locust.stats import PERCENTILES_TO_REPORT, StatsCSV

        text = io.StringIO(newline="")
        StatsCSV(self._runner.environment, PERCENTILES_TO_REPORT).requests_csv(csv.writer(text))
        return text.getvalue()


def _unshaken(handle: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """`handle`, which passes over a message that it can't handle: no stranger ends the load."""

    def handled(name: str, msg: Any) -> None:
        try:
            handle(name, msg)
        except Exception as problem:  # noqa: BLE001 - a message can be wrong in any way
            _log.warning("a message of %r can't be handled: %r", name, problem)

    return handled


def _readable(receive: Callable[[], T]) -> Callable[[], T]:
    """`receive`, which raises for bytes that are no message what Locust takes for that: it passes over them then."""
    from locust.exception import RPCError, RPCReceiveError

    def received() -> T:
        try:
            return receive()
        except RPCError:
            raise
        except Exception as problem:
            raise RPCReceiveError(f"bytes that are no message ({problem!r})") from problem

    return received


def _check_free(host: str, port: int) -> None:
    """Raise `UsageError` if nothing can listen there."""
    try:
        with socket.create_server(("" if host == "*" else host, port)):
            pass
    except OSError as problem:
        raise UsageError(f"--bind: {host}:{port}: {problem.strerror or problem}") from problem
