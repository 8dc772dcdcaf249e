"""The command `reference-epp`, also `python -m reference_epp`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from types import ModuleType

from reference_epp.settings import Listing, Settings, parse


def main() -> None:
    """Run the command line and exit: 0 after a stop signal, 1 if the EPP can't serve, 2 for wrong arguments."""
    wanted = parse()
    if isinstance(wanted, Listing):
        try:
            print(json.dumps(_deviations().describe_all(wanted.what), indent=2), flush=True)  # noqa: T201
        except BrokenPipeError:  # the reader has seen enough: `reference-epp --list-faults | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    sys.exit(_run(wanted))


def _run(settings: Settings) -> int:
    import uvloop

    from reference_epp import logs
    from reference_epp.reporter.config import ConfigError
    from reference_epp.server import Parts, serve

    logs.configure(settings.log_level)
    parts = Parts()
    if settings.fault or settings.variants:
        deviations = _deviations()
        try:
            parts = parts.exchange(*deviations.find(settings.fault, settings.variants))
        except deviations.DeviationError as problem:
            print(f"reference-epp: {problem}", file=sys.stderr)  # noqa: T201
            return 2
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, parts))
    except ConfigError as problem:
        print(f"reference-epp: {problem}", file=sys.stderr)  # noqa: T201
        return 2
    except OSError as problem:
        print(f"reference-epp: can't serve: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _deviations() -> ModuleType:
    """The registry, filled."""
    from reference_epp import deviations, faults, variants  # noqa: F401  # importing these two declares all of them

    return deviations


if __name__ == "__main__":
    main()
