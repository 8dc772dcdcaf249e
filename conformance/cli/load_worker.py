"""`epp-conformance load-worker`: one machine's share of a load that another one runs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from conformance.cli import options


def load_worker(
    master: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where `load --workers` waits for workers.")],
    wait: Annotated[
        float, typer.Option("--wait", metavar="S", min=1, max=3600, help="In which the master must answer.")
    ] = 60,
    quiet: options.Quiet = False,
) -> None:
    """Make a share of the requests of a load that runs on another machine.

    It is a worker of Locust, and ends with the load. The EPP must be reachable from here.

    epp-conformance load-worker loader.example:5557
    """
    from conformance.cli.console import err
    from conformance.errors import IncompleteError, UsageError
    from conformance.load.locust_master import import_locust
    from ext_proc.http2.address import split_address
    from ext_proc.http2.errors import BadAddress

    try:
        host, port = split_address(master)
    except BadAddress as problem:
        raise UsageError(
            f"{problem.where}: {problem.what}", hint="write HOST:PORT, as in loader.example:5557"
        ) from problem
    import_locust()
    import gevent

    gevent.get_hub().NOT_ERROR += (KeyboardInterrupt,)  # Ctrl-C is none, and needs no traceback
    from locust.env import Environment
    from locust.runners import MASTER_HEARTBEAT_TIMEOUT

    from conformance.load.locust_user import EppUser

    environment: Any = Environment(user_classes=[EppUser])
    runner = None
    with gevent.Timeout(wait, False):
        try:
            runner = environment.create_worker_runner(f"[{host}]" if ":" in host else host, port)
        except SystemExit:  # what Locust makes of Ctrl-C
            raise KeyboardInterrupt from None
    if runner is None:
        raise IncompleteError(
            f"no master answered at {master} in {wait:g} s",
            hint="start it with: epp-conformance load --workers N --bind HOST:PORT",
        )
    if not quiet:
        err().print(f"epp-conformance load-worker: connected to {master}")
    try:
        runner.greenlet.join()
    finally:
        environment.events.quitting.fire(environment=environment)  # a master that goes on learns that this one does not
        runner.quit()
        runner.client.close(linger=1000)
    if runner.last_heartbeat_timestamp and time.time() - runner.last_heartbeat_timestamp > MASTER_HEARTBEAT_TIMEOUT:
        raise IncompleteError(f"the master at {master} is gone: no sign of life for {MASTER_HEARTBEAT_TIMEOUT} s")
    raise typer.Exit(environment.process_exit_code or 0)
