"""`python -m fake_modelserver serve`: one fake model server, right or with a deviation, until it is asked to stop.

python -m fake_modelserver serve --listen 127.0.0.1:8000 --fault queue-always-0
python -m fake_modelserver --list-faults
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence

from fake_modelserver.deviations import FAULTS, RIGHT, VARIANTS, Deviation, signals
from fake_modelserver.errors import FleetError
from fake_modelserver.fleet import Fleet


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 after a stop signal, 1 if it can't listen, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m fake_modelserver", description="A fake model server.")
    lists = parser.add_mutually_exclusive_group()
    lists.add_argument("--list-faults", action="store_true", help="print the faults as JSON")
    lists.add_argument("--list-variants", action="store_true", help="print the conforming variants as JSON")
    commands = parser.add_subparsers(dest="command")
    serve = commands.add_parser("serve", help="serve one model server")
    serve.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="where it listens")
    which = serve.add_mutually_exclusive_group()
    which.add_argument("--fault", choices=[one.name for one in FAULTS], metavar="NAME", help="what is wrong with it")
    which.add_argument("--variant", choices=[one.name for one in VARIANTS], metavar="NAME", help="what is odd about it")
    given = parser.parse_args(arguments)
    if given.list_faults or given.list_variants:
        listed = FAULTS if given.list_faults else VARIANTS
        sys.stdout.write(json.dumps([one.described() for one in listed], indent=2) + "\n")
        return
    if given.command is None:
        parser.error("say what to do: serve, --list-faults or --list-variants")
    known = (*FAULTS, *VARIANTS)
    name = given.fault or given.variant or "right"
    try:
        asyncio.run(_serve(given.listen, next(one for one in known if one.name == name)))
    except (FleetError, ValueError) as problem:
        sys.exit(str(problem))


async def _serve(listen: str, deviation: Deviation) -> None:
    host, _, port = listen.rpartition(":")
    spec = dataclasses.replace(RIGHT, address=host.strip("[]"), ports=(int(port),), **deviation.spec)
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with Fleet(script=deviation.script) as fleet:
        pod = await fleet.add(spec)
        for fault in deviation.faults:
            await pod.inject(fault)
        for gauge, follows in signals(deviation.pins).items():
            for rank in range(spec.ranks):
                pod.pin(gauge, follows, rank=rank)
        sys.stdout.write(f"http://{pod.endpoint}\n")
        sys.stdout.flush()
        await over.wait()


if __name__ == "__main__":
    main()
