"""Changes of InferenceModels while a target runs, and whether it follows them: the models that it refuses show it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping

from conformance.run.epp.until import until
from conformance.scenario.models import NAMED, NamedBy
from ext_proc.record import Wait

Ask = Callable[[str], Awaitable[bool]]
"""Ask the target for an endpoint for a model; says whether it gave one."""


async def models_followed(models: Mapping[str, NamedBy], ask: Ask, *, connections: int, patience: float) -> Wait:
    """Poll the target until it answers for each of `models` as it is named now; it has `patience` seconds.

    Polls are sent over so many `connections` in turn, which may lead to workers that each read the API for themselves.
    """

    async def follows(model: str, by: NamedBy) -> bool:
        for _ in range(connections):
            if await ask(model) is not (by in NAMED):
                return False
        return True

    loop = asyncio.get_running_loop()
    start = loop.time()
    met = [await until(functools.partial(follows, *one), start + patience) for one in models.items()]
    said = ", ".join(f"{model}: {by}" for model, by in models.items())
    what = f"the target follows the InferenceModels ({said})"
    return Wait(what=what, outcome="met" if all(met) else "expired", seconds=loop.time() - start)
