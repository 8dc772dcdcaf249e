"""A load's share as a Locust user: it walks the remembered path, judges every exchange, and tells Locust's statistics.

A worker is `epp-conformance load-worker`, or Locust itself with a locustfile of one line:

    from conformance.load.locust_user import EppUser

The master is `epp-conformance load --workers`. Importing this imports Locust, which replaces Python's sockets and
threads by gevent's, unless `LOCUST_SKIP_MONKEY_PATCH` is set; so the generator is another process.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Any

import gevent
from gevent import subprocess
from gevent.queue import Empty, Queue
from locust import User, constant, task
from locust.exception import StopUser
from locust.runners import WorkerRunner

from conformance.errors import IncompleteError
from conformance.load.figures import PICK
from conformance.load.generators import ShareReport
from conformance.load.remote_generator import framed, read_frame
from conformance.load.wire import FORM, decode, encode

HELLO, ANSWER, COMMAND, SAID = "epp-hello", "epp-answer", "epp-command", "epp-said"
"""Messages between master and worker: who the worker is, whether it may take part, commands for its generator, and what
that says."""

SUITE = version("epp-conformance")

_GREETING = 20.0
"""Seconds in which a master answers."""

_CLEAN_UP = 30.0
"""Seconds that a generator has to leave nothing behind."""

_AT_ONCE = 500
"""Requests that Locust is told of before its other work has a turn."""

_log = logging.getLogger(__name__)


class NonConformantError(Exception):
    """What Locust shows for an exchange that broke a requirement; the load's report says which."""


class EppUser(User):
    """One generator of a load. Its exchanges are requests of the type `EPP`; their time is the time to pick."""

    wait_time = constant(0)

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._judged = self._failed = 0

    @task
    def make_requests(self) -> None:
        """Make one share of a load, from its beginning to its end."""
        runner = self.environment.runner
        if not isinstance(runner, WorkerRunner):
            self._refused("EppUser is for workers: the master is `epp-conformance load --workers N`")
        commands: Queue[bytes] = Queue()
        answers: Queue[str] = Queue()
        runner.custom_messages[COMMAND] = lambda msg, **_: commands.put(msg.data), False
        runner.custom_messages[ANSWER] = lambda msg, **_: answers.put(msg.data), False
        runner.send_message(HELLO, {"suite": SUITE, "form": FORM})
        try:
            refusal = answers.get(timeout=_GREETING)
        except Empty:
            refusal = "the master does not answer: it is to be `epp-conformance load --workers N`"
        if refusal:
            self._refused(refusal)
        self._relay(runner, commands)
        raise StopUser

    def _refused(self, why: str) -> None:
        _log.error(why)
        self.environment.process_exit_code = 2
        raise StopUser

    def _relay(self, runner: Any, commands: Queue[bytes]) -> None:
        """Commands of the master to a generator, and what that says to the master."""
        process = subprocess.Popen(
            [sys.executable, "-m", "conformance.load.remote_generator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
        )
        feeding = gevent.spawn(_feed, commands, process.stdin)
        try:
            while True:
                said = read_frame(process.stdout)
                message = decode(said)
                if isinstance(message, ShareReport):
                    self._show(message)
                    if message.end is not None:
                        self._show_all(runner)
                        runner.send_message(SAID, said)
                        return
                runner.send_message(SAID, said)
        except EOFError:
            code = process.wait(timeout=_CLEAN_UP)
            runner.send_message(SAID, encode(IncompleteError(f"its generator process ended with {code}")))
        finally:
            feeding.kill()
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(timeout=_CLEAN_UP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _show(self, report: ShareReport) -> None:
        """Tell Locust of the exchanges since the last report. Of those that failed it is told how many, not which."""
        new = report.tally.exchanges - self._judged
        failed = min(new, report.tally.failed - self._failed)
        times = report.times.get(PICK, ())
        for number in range(new):
            self.environment.events.request.fire(
                request_type="EPP",
                name="exchange",
                response_time=times[number] * 1000 if number < len(times) else None,
                response_length=0,
                exception=NonConformantError("not conformant") if number < failed else None,
                context={},
            )
            if number % _AT_ONCE == _AT_ONCE - 1:
                gevent.sleep(0)
        self._judged += new
        self._failed += failed

    def _show_all(self, runner: Any) -> None:
        """Have the master know Locust's statistics before it learns that the share is over."""
        data: dict[str, Any] = {}
        self.environment.events.report_to_master.fire(client_id=runner.client_id, data=data)
        runner.send_message("stats", data)


def _feed(commands: Queue[bytes], pipe: Any) -> None:
    while True:
        pipe.write(framed(commands.get()))
        pipe.flush()
