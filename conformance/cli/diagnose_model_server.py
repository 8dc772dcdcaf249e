"""What `profile check` finds out about a model server: it starts, serves a plain request, and shows its metrics."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from conformance.cli.diagnosis import Diagnosis
from conformance.errors import ConformanceError, UsageError

if TYPE_CHECKING:
    from conformance.run.engine import EngineThread
    from conformance.run.model_server.runner import ModelServerRunner
    from conformance.targets.resolve_model_server import ResolvedModelServer


def model_server(resolved: ResolvedModelServer, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    """Start the server (if it is ours), pass its gate, and look for the metrics on its page.

    Raises `UsageError` if it can't be started as it was asked for.
    """
    return engine.call(_server(resolved, protocol_version, engine))


async def _server(resolved: ResolvedModelServer, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    from conformance.run.model_server.runner import ModelServerRunner

    began = time.monotonic()
    profile = resolved.profile
    lane = ModelServerRunner(
        profile, protocol_version, dict(resolved.values), seed=0, lag=engine.lag, status=lambda _: None
    )
    try:
        async with lane:
            text = f"serves {lane.model} at {lane.target.url}, ready after {time.monotonic() - began:.1f} s"
            return [Diagnosis(name="model server", state="good", text=text), *await _metrics(lane)]
    except UsageError:  # the same mistake is the same error in `run`
        raise
    except ConformanceError as problem:
        return [Diagnosis(name="model server", state="bad", text=problem.message, hint=problem.hint)]


async def _metrics(lane: ModelServerRunner) -> list[Diagnosis]:
    from conformance.reading.metrics_page import look_up, read_page

    got = await lane.client.page()
    if got.outcome != "response" or got.status != 200:
        what = got.details or f"answered {got.status}"
        return [
            Diagnosis(name="metrics", state="bad", text=f"{lane.client.page_url}: {what}", hint="see --metrics-url")
        ]
    page, names = read_page(got.body, got.content_type), lane.facts.names
    answers = []
    for field in dataclasses.fields(names):
        if selectors := getattr(names, field.name):
            found = look_up(page, selectors, match=lane.facts.match)
            text = found.selector if found is not None else f"no {' or '.join(selectors)} yet"
            answers.append(Diagnosis(name=field.name.replace("_", " "), state="good" if found else "note", text=text))
    return answers
