"""A gateway under test with everything around it: its model servers, its EPPs, its client, and the log of it all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from conformance.errors import GateFailedError
from conformance.evidence.episode import GatewayFacts
from conformance.planning.epp_scripts import scripts_of
from conformance.printable import quoted
from conformance.run.capture import UNNAMED
from conformance.run.gateway.pickers import Pickers
from conformance.run.gateway.pods import EXCHANGE, PLAIN, Pods
from conformance.run.gateway.target import GatewayTarget
from conformance.run.target_runner import TargetRunner
from conformance.scenario import references
from conformance.scenario.epp_script import EppScript
from conformance.scenario.pool import Pool
from conformance.scenario.schema import Request
from conformance.targets.gateway import EPPS, GatewayProfile
from conformance.targets.http_request import http_request
from ext_proc.protocol import DESTINATION
from ext_proc.record import (
    A_CONNECTION,
    STREAMS_END,
    UNCONNECTED,
    ClientAborted,
    ClientResponse,
    Entry,
    ExchangeOpened,
    Headers,
    Recorder,
    StreamEnded,
    StreamOpened,
    Wait,
    header,
)
from fake_proxy.client import HttpRequest
from real_envoy import CONNECT, MOST, HttpResponse, send_request

ENDING = 1.0
"""Seconds that a gateway has to end its ext_proc streams once the client has its response, or went away."""

HOLDING = 0.3
"""Seconds for which a client that goes away in the midst of its request waits for the EPP to be asked about it. A
gateway that reads all of a request first does not ask until it is complete."""


Send = Callable[[HttpRequest, float], Coroutine[Any, Any, HttpResponse]]
"""Sends a request within so many seconds. Raises `OSError`."""


class GatewayRunner(TargetRunner):
    """A gateway, tested one scenario at a time: scenarios share the pods and the EPPs, and change their conduct."""

    strays = True
    profile: GatewayProfile
    target: GatewayTarget
    claims: GatewayFacts
    """What its profile says of it, with the pools that it was given."""

    def __init__(self, profile: GatewayProfile, version: str, values: Mapping[str, str], **rest: Any) -> None:
        super().__init__(profile, version, values, **rest)
        self._refused = False
        """A connection to the gateway was refused; it may be gone."""
        self._told: set[str] = set()
        """What it did not find in time, as far as it was told."""
        self._streams = _OpenStreams(self.recorder)
        self.pods = Pods(self.recorder.emit)
        self.pickers = Pickers(profile, self.recorder, self.folder.own)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def close(self, *, hurry: bool = False) -> None:
        """See `TargetRunner`."""
        try:
            if hasattr(self, "target"):
                await self.target.stop(hurry=hurry)
        finally:
            await self.pickers.close()
            await self.pods.close()
            self.folder.release()

    async def start(self) -> None:
        """See `TargetRunner`."""
        await self.pods.start(self.profile.backends, self.profile.requests.model)
        await self.pickers.start()
        self.claims = dataclasses.replace(self.profile.claims, backends=self.pods.backends)
        values = dict(self._values)
        for name, suffix in zip(EPPS, ("", "2"), strict=True):
            if name in self.pickers.addresses:
                values[f"epp{suffix}"] = self.pickers.addresses[name]
                values[f"endpoints{suffix}"] = ",".join(self.pods.pools[name])
        self.target = GatewayTarget(
            self.profile,
            self.version,
            values,
            self.pods.pools,
            emit=self.recorder.emit,
            redact=self.redactor.text,
        )
        await self.start_target()

    async def start_target(self) -> None:
        """Start the gateway and pass the gate: a plain request must reach the EPP and the pod that it names."""
        started = "starting the gateway" if self.profile.started_by_us else f"connecting to {self.profile.url}"
        self.status(started)
        await self.target.on_a_free_port(self._start_once)

    async def _start_once(self) -> None:
        await self.target.start()
        self.status("waiting for the first request to pass")
        await self._gate()

    async def restart_target(self) -> None:
        """Stop it and start it again."""
        await self.target.stop()
        await self.start_target()

    # -- the gate ------------------------------------------------------------------------------------------------------

    async def _gate(self) -> None:
        loop = asyncio.get_running_loop()
        patience = self.profile.timeouts.start if self.profile.started_by_us else self.profile.timeouts.answer
        until = loop.time() + patience
        await self.pods.cast(Pool(pods=()))
        self.pods.reply(None)
        pick = (self.pods.pools[EPPS[0]][0],)
        for number in itertools.count(1):
            name = f"gate.{number}"
            response = await self.exchange(Request(epp=EppScript(pick=pick)), name, self.send, Random(name))
            if self.target.crashed:
                raise await self.target.explain_end()
            if response is not None and self._streams.seen[name] and self.pods.reached[name]:
                break
            if loop.time() >= until:
                raise self._gate_error(name, response)
            await asyncio.sleep(0.05)
        for number in range(self.profile.limits.warm_up):
            name = f"warm-up.{number}"
            await self.exchange(Request(epp=EppScript(pick=pick)), name, self.send, Random(name))

    def _gate_error(self, name: str, response: HttpResponse | None) -> GateFailedError:
        asked, reached = self._streams.seen[name], self.pods.reached[name]
        if not asked and self._streams.strays:
            what = "calls the EPP without the request's headers"
            hint = f"it must forward the header {EXCHANGE} to the EPP, by which the suite knows its requests"
        elif not asked and reached:
            what = "sent the first plain request to a model server and did not call the EPP"
            hint = f"is ext_proc configured for this route, with the EPP at {self.pickers.addresses[EPPS[0]]}?"
        elif not asked and self.pods.reached[""]:
            what = f"sent the first plain request to a model server without its header {EXCHANGE}"
            hint = "the suite knows its requests by this header; let it pass"
        elif not asked:
            what = "did not call the EPP for the first plain request"
            where, tls = self.pickers.addresses[EPPS[0]], self.profile.backends[0].tls
            hint = f"it must call the EPP at {where} ({tls}); and {self.profile.requests.path} must be routed"
        elif spoken := self.pods.spoken:
            what = f"called the EPP and spoke {next(iter(spoken))[1]} to a model server"
            hint = PLAIN
        else:
            what = "called the EPP and sent the first plain request to no model server"
            pool = ", ".join(self.pods.pools[EPPS[0]])
            hint = (
                f"the pool that it knows must be {pool}; the EPP must be sent the request to its end_of_stream; and its"
                f" answer names the endpoint in raw_value of {DESTINATION}, or in dynamic_metadata"
            )
        text = f"the gateway {what}; the client got {_got(response)}"
        if self.target.output:
            text += f"\nits last output:\n{quoted(self.target.output)}"
        return GateFailedError(text, hint=hint)

    # -- work ----------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """See `TargetRunner`."""
        if self._refused and not self.profile.started_by_us:
            await self.target.check()

    async def exchange(self, request: Request, name: str, send: Send, rng: Random) -> HttpResponse | None:
        """One request through the gateway; everything that happens is in the log. None if it could not be sent."""
        http = self._http(request, name, rng)
        self.pickers.script(name, scripts_of(request), self.pods.pods_of)
        slow = request.reply.pause + max(request.epp.delay, request.second_epp.delay)
        limit = self.profile.timeouts.answer + slow
        async with self.throttle:
            spoken = self.pods.spoken
            self.recorder.emit(
                ExchangeOpened(
                    exchange=name,
                    method=http.method,
                    path=http.path,
                    http=http.http,
                    headers=http.headers,
                    request_body_mode="",  # the gateway's business: it tells the EPP
                    response_body_mode="",
                    note=self._note(request, http),
                    body=(body := b"".join(chunk.data for chunk in http.chunks)),
                    size=len(body),
                )
            )
            response: HttpResponse | None = None
            details = ""
            try:
                response = await send(http, limit)
            except OSError as problem:
                self._refused = True
                if isinstance(problem, TimeoutError):
                    self.recorder.emit(Wait(exchange=name, what=A_CONNECTION, outcome="expired", seconds=CONNECT))
                details = f"{UNCONNECTED}: {problem.strerror or problem}"
                await self.target.given_time_to_end()
            self._came(name, http, response, details)
            self.pods.tell_of_others(name, spoken)
        # It may let what is under way come to its end when the client is gone.
        ending = ENDING + slow if response is not None and response.aborted else ENDING
        if not await self._streams.ended(name, ending):
            self.recorder.emit(Wait(exchange=name, what=STREAMS_END, outcome="expired", seconds=ending))
        self.pickers.forget(name)
        return response

    async def send(self, http: HttpRequest, timeout: float) -> HttpResponse:
        """Send a request on its own connection. Raises `OSError`."""
        name = (header(http.headers, EXCHANGE.encode()) or b"").decode()
        leaving = functools.partial(self._streams.begun, name)
        return await send_request(self.target.address, http, leaving=leaving, timeout=timeout)

    async def found(self, epp: str) -> None:
        """Send requests until the gateway asks the EPP `epp`, which listens again, or has had time to find it.

        gRPC clients wait between attempts to connect, by default a second after the first: until then the EPP is as
        good as away. These requests are no part of a scenario, and not judged.
        """
        before = self._streams.asked[epp]
        if self._addressable(epp):
            plain = self._plain(epp, self.pods.pools[epp][0])
            if not await self._poll(plain, lambda: self._streams.asked[epp] > before, self._convergence()):
                self._unsettled("did not call its EPP", "it listened again")

    async def recover(self) -> None:
        """Send requests to pods that serve again until each has served one, or the gateway has had time to find out.

        Gateways leave out for a while what failed requests or health checks. These requests are not judged either.
        """
        until = self._convergence()
        for endpoint in self.pods.returned:
            epp = next(name for name, endpoints in self.pods.pools.items() if endpoint in endpoints)
            if self._addressable(epp) and not self.pickers.down:
                found = functools.partial(self.pods.has_served, endpoint)
                if not await self._poll(self._plain(epp, endpoint), found, until):
                    self._unsettled("sent no request to a model server", "that one served again")
                self.pods.known(endpoint)

    def _addressable(self, epp: str) -> bool:
        """Whether a request can be sent to this EPP's pool. One that takes over for the first is asked where that
        fails, which no scenario has together with a return."""
        return epp == EPPS[0] or bool(self.profile.claims.split_header)

    def _plain(self, epp: str, endpoint: str) -> Request:
        """A request for which the EPP `epp` names `endpoint`, and another EPP the first of that pool."""
        picks = {name: (endpoint,) if name == epp else endpoints[:1] for name, endpoints in self.pods.pools.items()}
        first, second = (EppScript(pick=picks.get(name, ())) for name in EPPS)
        return Request(epp=first, second_epp=second, split=epp != EPPS[0])

    def _convergence(self) -> float:
        """When the gateway has had time to follow a change that is made now."""
        return asyncio.get_running_loop().time() + self.profile.timeouts.convergence

    def _unsettled(self, what: str, since: str) -> None:
        """Tell once what the gateway did not find in time: verdicts may hang on it."""
        text = f"the gateway {what} within {self.profile.timeouts.convergence:g} s after {since}"
        if not self.crashed and text not in self._told:
            self._told.add(text)
            self.noting("unsettled")(f"{text}; timeouts.convergence of the profile gives it longer")

    async def _poll(self, request: Request, known: Callable[[], bool], until: float) -> bool:
        """Send a plain request again and again, until the gateway knows, has ended, or the time is over; whether it
        knows."""
        self.pods.reply(None)
        for number in itertools.count(1):
            name = f"poll.{number}"
            await self.exchange(request, name, self.send, Random(name))
            if known() or self.crashed or asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(0.05)
        return known()

    def _note(self, request: Request, http: HttpRequest) -> dict[str, Any]:
        """What judges can't read off the messages."""
        note: dict[str, Any] = {"authority": http.authority}
        if http.unannounced:
            note["unannounced"] = True
        if request.written != "ordinary":
            note["written"] = request.written
        if request.subset is not None:
            note["subset"] = list(references.resolve(request.subset, self.pods.pods_of))
            note["subset_owed"] = self.profile.subset_header is not None  # and not our way of setting an Envoy up
        return note

    def _http(self, request: Request, name: str, rng: Random) -> HttpRequest:
        endpoints = self.pods.pods_of
        headers = references.resolve(request.headers, endpoints)
        http = http_request(request.model_copy(update={"headers": headers}), self.profile.requests, rng)
        added: Headers = ((EXCHANGE.encode(), name.encode()),)
        if request.split:
            added += ((self.profile.claims.split_header.lower().encode(), b"1"),)
        if request.subset is not None:
            added += self.target.subset(references.resolve(request.subset, endpoints))
        return dataclasses.replace(
            http, headers=(*http.headers, *added), authority=self.target.address, written=request.written
        )

    def _came(self, name: str, http: HttpRequest, response: HttpResponse | None, details: str) -> None:
        """What the client got, or that it went away."""
        if response is not None and response.aborted and http.abort is not None:
            self.recorder.emit(ClientAborted(exchange=name, point=http.abort.at))
            return
        if response is not None and response.expired:
            limit = self.profile.timeouts.answer
            self.recorder.emit(Wait(exchange=name, what="answer of the gateway", outcome="expired", seconds=limit))
            details = "no complete response in time"
        elif response is not None and response.endless:
            details = f"the body is larger than {MOST // 1024 // 1024} MiB"
        body = response.body if response else b""
        self.recorder.emit(
            ClientResponse(
                exchange=name,
                status=response.status if response else None,
                headers=response.headers if response else (),
                body=body,
                size=len(body),
                trailers=response.trailers if response else (),
                complete=response is not None and response.complete,
                details=details,
            )
        )


def _got(response: HttpResponse | None) -> str:
    """What a client got, in words."""
    if response is None:
        return "no connection"
    if response.status is None:
        return "no response in time" if response.expired else "no HTTP response before the connection ended"
    body = response.body[:80].decode(errors="replace").strip()
    return f"HTTP {response.status}" + (f": {body!r}" if body else "")


class _OpenStreams:
    """Counts ext_proc streams by request and by EPP, and those that are open."""

    def __init__(self, recorder: Recorder) -> None:
        self.seen: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._changed = asyncio.Event()
        recorder.listen(self._take)

    @property
    def strays(self) -> int:
        """How many streams named no request of the suite."""
        return sum(count for name, count in self.seen.items() if name.startswith(UNNAMED))

    async def begun(self, exchange: str) -> None:
        """Wait until the EPP is asked about a request, or `HOLDING` is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLDING):
                while not self.seen[exchange]:
                    self._changed.clear()
                    await self._changed.wait()

    async def ended(self, exchange: str, within: float) -> bool:
        """Wait until the streams of a request are over; False if one is not in so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._open[exchange]:
                    self._changed.clear()
                    await self._changed.wait()
        return not self._open[exchange]

    def _take(self, entry: Entry) -> None:
        match entry.event:
            case StreamOpened(exchange=str(exchange), epp=epp):
                self.seen[exchange] += 1
                self.asked[epp] += 1
                self._open[exchange] += 1
                self._changed.set()
            case StreamEnded(exchange=str(exchange)):
                self._open[exchange] -= 1
                self._changed.set()
