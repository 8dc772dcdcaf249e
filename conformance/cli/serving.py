"""Something that is served until Ctrl-C or SIGTERM: for `kube`, `pool`, `proxy` and `tap`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any


def until_interrupted(work: Coroutine[Any, Any, None], leave: Callable[[], None] | None = None) -> str:
    """Run `work` on its own engine. An interruption is its normal end: everything is closed, the exit code 0.

    With `leave`, the first interruption calls that, on the engine's loop, and `work` then ends by itself; a second one
    is what the first is without. Returns what failed of the suite itself meanwhile, in words; empty if nothing did.
    """
    from conformance.cli.interrupt import second_is_another_wish
    from conformance.run.engine import EngineThread

    if leave is not None:
        second_is_another_wish()
    with EngineThread() as engine, contextlib.suppress(KeyboardInterrupt):
        engine.call(work, leave)
    return engine.defects.since(0)
