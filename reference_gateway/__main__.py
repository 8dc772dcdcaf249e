"""`python -m reference_gateway`: serve the gateway, right or with a named fault, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Sequence

from ext_proc.http2.address import split_address
from ext_proc.http2.errors import BadAddress
from reference_gateway.fault import Fault
from reference_gateway.faults import FAULTS, VARIANTS
from reference_gateway.http import ClientSide, listen
from reference_gateway.relay import BackendPool, Settings


def main() -> None:
    """The command. A name that is not known, or an address that can't be bound, is an error of one line."""
    parser = argparse.ArgumentParser(prog="python -m reference_gateway", description=__doc__)
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="where clients connect")
    parser.add_argument("--epp", metavar="HOST:PORT", action="append", default=[], help="an EPP; one for each pool")
    parser.add_argument(
        "--endpoints",
        metavar="IP:PORT,…",
        action="append",
        default=[],
        help="the endpoints of a pool, in the same order",
    )
    parser.add_argument("--subset-header", metavar="NAME", default="x-subset", help="the header that names a subset")
    parser.add_argument("--split-header", metavar="NAME", default="", help="requests with it go to the pools in turn")
    parser.add_argument("--protocol-version", metavar="VERSION", default="1.0.0", help="0.3.0 has a fallback endpoint")
    parser.add_argument("--fault", metavar="NAME", help="do this one thing wrongly")
    parser.add_argument("--variant", metavar="NAME", help="be odd, and right")
    parser.add_argument("--list-faults", action="store_true", help="print the faults as JSON")
    parser.add_argument("--list-variants", action="store_true", help="print the variants as JSON")
    arguments = parser.parse_args()
    if arguments.list_faults or arguments.list_variants:
        listed = [one.listed() for one in (FAULTS if arguments.list_faults else VARIANTS)]
        sys.stdout.write(json.dumps(listed, indent=1) + "\n")
        return
    if not arguments.epp or len(arguments.epp) != len(arguments.endpoints):
        parser.error("give --epp and --endpoints, as often as there are pools")
    for address in (arguments.listen, *arguments.epp):
        try:
            split_address(address)
        except BadAddress as problem:
            parser.error(f"{address}: {problem.what}; {problem.hint}")
    fault = _named(parser, arguments.fault, FAULTS) or _named(parser, arguments.variant, VARIANTS)
    settings = Settings(
        pools=tuple(
            BackendPool(epp=epp, endpoints=tuple(endpoints.split(",")))
            for epp, endpoints in zip(arguments.epp, arguments.endpoints, strict=True)
        ),
        subset_header=arguments.subset_header.lower(),
        split_header=arguments.split_header.lower(),
        version=arguments.protocol_version,
    )
    if fault is not None and fault.envoy is not None:
        from reference_gateway.envoy import BROKEN, become

        become(arguments.listen, settings, BROKEN[fault.envoy])
    try:
        asyncio.run(_serve(arguments.listen, settings, fault or Fault(name="right", why="")))
    except OSError as problem:
        sys.exit(f"{arguments.listen} can't be listened on: {problem.strerror or problem}")


def _named(parser: argparse.ArgumentParser, name: str | None, known: Sequence[Fault]) -> Fault | None:
    found = next((one for one in known if one.name == name), None)
    if name is not None and found is None:
        parser.error(f"there is no {name!r}; there are {', '.join(one.name for one in known)}")
    return found


async def _serve(address: str, settings: Settings, fault: Fault) -> None:
    gateway = fault.gateway(dataclasses.replace(settings, **fault.settings))
    host, port = split_address(address)
    settings = gateway.settings
    side = ClientSide(
        handler=gateway.handle,
        http2=settings.http2,
        continues=settings.continues,
        cut_is_whole=settings.cut_is_whole,
    )
    server = await listen(host, port, side)
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    sys.stdout.write(f"http://{address}\n")
    sys.stdout.flush()
    await over.wait()
    server.close()
    await gateway.close()


if __name__ == "__main__":
    main()
