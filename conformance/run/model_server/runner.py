"""A model server under test: started or reached, asked and scraped, and the log of it all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import urlsplit

from conformance.errors import IncompleteError
from conformance.evidence.model_server import ModelServerFacts, ServerAnswered
from conformance.printable import quoted
from conformance.run.model_server.client import Got, ServerClient
from conformance.run.model_server.gate import ENDING, LISTING, STARTING, models_of, refused, serves, trouble
from conformance.run.model_server.requests import ServerRequest, request_of
from conformance.run.model_server.target import ModelServerTarget
from conformance.run.target_runner import TargetRunner
from conformance.scenario.model_server import API_PATHS, Ask
from conformance.scenario.server_stimulus import HIDDEN
from conformance.targets.model_server import ModelServerProfile
from ext_proc.record import Headers, Wait

RETRY = 0.25
"""Seconds between attempts to reach a server that is starting."""

WAKES = 4
"""How often our loop must wake up until it has an answer: connected, sent, its head, its body. Each may be late."""

_KEPT_HEADERS = frozenset(
    {b"content-type", b"content-length", b"transfer-encoding", b"date", b"server", b"retry-after", b"x-request-id"}
)


class ModelServerRunner(TargetRunner):
    """A model server, tested one scenario at a time: the load of one would be on the gauges of another."""

    profile: ModelServerProfile
    target: ModelServerTarget
    client: ServerClient
    model: str
    """The model that is asked for."""

    def __init__(self, profile: ModelServerProfile, version: str, values: Mapping[str, str], **rest: Any) -> None:
        super().__init__(profile, version, values, **rest)
        self.facts: ModelServerFacts = profile.claims

    # -- life ----------------------------------------------------------------------------------------------------------

    async def close(self, *, hurry: bool = False) -> None:
        """See `TargetRunner`."""
        try:
            if hasattr(self, "client"):
                await self.client.close()
            if hasattr(self, "target"):
                await self.target.stop(hurry=hurry)
        finally:
            self.folder.release()

    async def start(self) -> None:
        """See `TargetRunner`."""
        self.target = ModelServerTarget(
            self.profile,
            self.version,
            self._values,
            emit=self.recorder.emit,
            redact=self.redactor.text,
        )
        await self._start_target()

    async def restart_target(self) -> None:
        """Stop it and start it again."""
        await self.client.close()
        await self.target.stop()
        await self._start_target()

    async def _start_target(self) -> None:
        ours = self.profile.started_by_us
        self.status("starting the model server" if ours else f"connecting to {self.profile.url}")
        await self.target.on_a_free_port(self._start_once)

    async def _start_once(self) -> None:
        await self.target.start()
        self.client = ServerClient(self.profile, self.target.url, self.profile.page_url(self.target.url), self.late)
        self.status("waiting for the first answer")
        until = asyncio.get_running_loop().time() + (self.profile.timeouts.start if self.profile.started_by_us else 0.0)
        try:
            await self._gate(until)
        except IncompleteError as problem:
            await self.client.close()
            await self.target.given_time_to_find_its_port_taken(urlsplit(self.target.url).netloc, until)
            if self.target.crashed:
                raise await self.target.explain_end() from problem
            raise

    # -- the gate ------------------------------------------------------------------------------------------------------

    async def _gate(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        models = await self._first_answer(until)
        named = "model" in self.profile.requests.model_fields_set
        self.model = self.profile.requests.model if named or not models else models[0]
        while True:
            got = {
                API_PATHS[api]: await self.client.ask(self._plain(Ask(api=api, tokens=1)), whole=ENDING)
                for api in ("completions", "chat")
            }  # fmt: skip
            if any(map(serves, got.values())):
                break
            for path, one in got.items():
                if one.outcome == "endless" and (problem := trouble(one, self.target.url, path)):
                    raise problem
            if loop.time() >= until:
                raise refused(self.profile, self.target.url, got)
            await asyncio.sleep(RETRY)
        page = await self.client.page()
        if page.outcome == "endless" or page.status in (401, 403):
            problem = trouble(page, self.client.page_url, "")
            assert problem is not None
            raise problem
        for _ in range(self.profile.limits.warm_up):
            await self.client.ask(self._plain(Ask()))

    async def _first_answer(self, until: float) -> tuple[str, ...]:
        """The models that the server lists, as soon as it answers. Raises `IncompleteError`."""
        loop = asyncio.get_running_loop()
        begin = None if self.profile.started_by_us else LISTING
        while True:
            got = await self.client.ask(self._plain(Ask(api="models")), begin=begin, whole=ENDING)
            if self.target.crashed:
                raise await self.target.explain_end()
            problem = trouble(got, self.target.url, API_PATHS["models"])
            starting = got.outcome != "response" or (got.status in STARTING and got.status != 404)
            if not starting or loop.time() >= until:
                if problem is not None:
                    if self.target.output:
                        problem.message += f"\nits last output:\n{quoted(self.target.output)}"
                    raise problem
                return models_of(got)
            await asyncio.sleep(RETRY)

    def _plain(self, ask: Ask) -> ServerRequest:
        model = getattr(self, "model", self.profile.requests.model)
        return request_of(self.profile, model, ask, Random(self.seed), Random(self.seed))

    # -- work ----------------------------------------------------------------------------------------------------------

    async def responds(self) -> bool:
        """See `TargetRunner`."""
        got = await self.client.ask(self._plain(Ask(tokens=1)))
        return got.outcome == "response"

    def late(self, seconds: float) -> float:
        """Of the last so many seconds, for which an answer was waited for: those that are not the server's, at most."""
        ours = WAKES * self.lag.worst(self.lag.now() - seconds)
        return min(seconds, ours + self.target.withheld(seconds))

    async def exchange(self, request: ServerRequest, name: str) -> Got:
        """One request, in the log with its answer."""
        async with self.throttle:
            self.recorder.emit(dataclasses.replace(request.asked, exchange=name))
            got = await self.client.ask(request)
        if got.outcome == "failed":
            await self.target.given_time_to_end()
        if got.waited:
            what = "answer of the model server"
            self.recorder.emit(Wait(exchange=name, what=what, outcome="expired", seconds=got.waited))
        body = got.body.replace(request.prompt.encode(), HIDDEN.encode()) if request.prompt else got.body
        self.recorder.emit(
            ServerAnswered(
                exchange=name,
                outcome=got.outcome,
                status=got.status,
                headers=_kept(got.headers),
                body=body[:1_000_000],
                details=got.details,
                seconds=round(got.seconds, 4),
            )
        )
        return got


def _kept(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if name in _KEPT_HEADERS)
