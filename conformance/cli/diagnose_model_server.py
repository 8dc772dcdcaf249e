"""What `profile check` finds out about a model server: it starts, serves a plain request, and shows its metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from conformance.cli.diagnosis import Diagnosis

if TYPE_CHECKING:
    from conformance.run.model_server.runner import ModelServerRunner


async def model_server(lane: ModelServerRunner, took: float) -> AsyncIterator[Diagnosis]:
    """Look for the metrics on its page; it `took` so many seconds to start."""
    from conformance.reading.metrics_page import look_up, read_page

    text = f"serves {lane.model} at {lane.target.url}, ready after {took:.1f} s"
    yield Diagnosis(name="model server", state="good", text=text)
    got = await lane.client.page()
    if got.outcome != "response" or got.status != 200:
        what = got.details or f"answered {got.status}"
        text = f"{lane.client.page_url}: {what}"
        yield Diagnosis(name="metrics", state="bad", text=text, hint="see --metrics-url")
        return
    page, names = read_page(got.body, got.content_type), lane.facts.names
    for field in dataclasses.fields(names):
        if selectors := getattr(names, field.name):
            found = look_up(page, selectors, match=lane.facts.match)
            text = found.selector if found is not None else f"no {' or '.join(selectors)} yet"
            yield Diagnosis(name=field.name.replace("_", " "), state="good" if found else "note", text=text)
