"""Something that is served until Ctrl-C or SIGTERM: for `kube` and `pool`."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any


def until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` on its own engine. An interruption is its normal end: everything is closed, the exit code 0."""
    from conformance.run.engine import EngineThread

    with EngineThread() as engine, contextlib.suppress(KeyboardInterrupt):
        engine.call(work)
