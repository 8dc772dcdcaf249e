"""The fake proxy beside grpc.aio's bare client: two-message streams against the same fast server, in the same run.

    python benchmarks/fake_proxy_vs_grpc.py [--seconds 2] [--rounds 3] [--concurrent 64]

A stream is a request with a body in full duplex: two messages, two answers, the end. grpc.aio's client sends bytes that
were made before, reads bytes, and does nothing else. Ours records every event; the fake proxy makes its messages as
Envoy does and acts on the answers; judging says of every exchange what all judges have to say. Server and clients are
separate processes, the kinds take turns. `cpu` is user and system time of the client's process for each stream,
`beside` that of the process that judges for it; both count for the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

FIGURE = 1.0
"""So many times the streams that grpc.aio's client does for the same processor time, recorded and judged."""

WARM_UP = 0.5
ENDPOINT = "10.0.0.1:8000"
KEY = "x-gateway-destination-endpoint"
BODY = b'{"model":"llama-3","prompt":"Say hello.","max_tokens":16}'

KINDS = {
    "grpc": "grpc.aio's client, bare",
    "recorded": "our stream, recorded",
    "judged": "our stream, recorded and judged",
    "beside": "our stream, recorded and judged beside",
    "proxy": "the fake proxy, recorded",
    "proxy-judged": "the fake proxy, recorded and judged",
    "proxy-beside": "the fake proxy, recorded and judged beside",
}

One = Callable[[str], Awaitable[None]]
"""Does one exchange with the given name."""


# -- the server --------------------------------------------------------------------------------------------------------


def answers() -> dict[str, bytes]:
    """The right answer to each message, made before."""
    from ext_proc.headers import to_struct
    from ext_proc.messages import (
        BodyMutation,
        BodyResponse,
        CommonResponse,
        HeaderMutation,
        HeadersResponse,
        HeaderValue,
        HeaderValueOption,
        ProcessingResponse,
        StreamedBodyResponse,
    )

    pick = HeaderValueOption(header=HeaderValue(key=KEY, raw_value=ENDPOINT.encode()))
    common = CommonResponse(header_mutation=HeaderMutation(set_headers=[pick]), clear_route_cache=True)
    piece = StreamedBodyResponse(body=BODY, end_of_stream=True)
    body = CommonResponse(body_mutation=BodyMutation(streamed_response=piece))
    return {
        "request_headers": ProcessingResponse(
            request_headers=HeadersResponse(response=common), dynamic_metadata=to_struct({"envoy.lb": {KEY: ENDPOINT}})
        ).SerializeToString(),
        "request_body": ProcessingResponse(request_body=BodyResponse(response=body)).SerializeToString(),
    }


async def serve() -> None:
    """The server's process: answers until its input ends."""
    from ext_proc.messages import ProcessingRequest
    from ext_proc.server import ServedStream
    from ext_proc.server import serve as serve_ext_proc

    made = answers()

    async def handle(stream: ServedStream) -> None:
        while (raw := await stream.recv()) is not None:
            stream.send(made[ProcessingRequest.FromString(raw).WhichOneof("request") or ""])

    server = await serve_ext_proc("127.0.0.1", 0, handle)
    print(server.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()


# -- the clients -------------------------------------------------------------------------------------------------------


async def grpc_client(address: str) -> tuple[One, Callable[[], Awaitable[None]]]:
    """grpc.aio's client with nothing around it."""
    import grpc

    sent = messages()
    channel = grpc.aio.insecure_channel(address)
    process = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")

    async def one(_: str) -> None:
        call = process()
        for raw in sent:
            await call.write(raw)
        await call.done_writing()
        for _message in sent:
            if await call.read() is grpc.aio.EOF:
                raise RuntimeError("the stream ended early")
        if await call.code() is not grpc.StatusCode.OK:
            raise RuntimeError(f"the stream ended with {await call.code()}")

    return one, channel.close


def messages() -> tuple[bytes, bytes]:
    """What is sent, as Envoy would."""
    from ext_proc.headers import header_map
    from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration

    headers = header_map([
        (b":authority", b"gateway"), (b":path", b"/v1/chat/completions"), (b":method", b"POST"),
        (b":scheme", b"http"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY)),
        (b"user-agent", b"benchmark"), (b"x-forwarded-proto", b"http"),
        (b"x-request-id", b"0b0f6a3a-7a70-4e3e-9a53-0a6c1b3f1d63"),
    ])  # fmt: skip
    first = ProcessingRequest(
        request_headers=HttpHeaders(headers=headers),
        protocol_config=ProtocolConfiguration(request_body_mode=4, response_body_mode=0),
    )
    second = ProcessingRequest(request_body=HttpBody(body=BODY, end_of_stream=True))
    return first.SerializeToString(), second.SerializeToString()


async def our_client(address: str, kind: str) -> tuple[One, Callable[[], Awaitable[None]]]:
    """Our stream or the whole fake proxy on it, recorded, and judged as `kind` says."""
    from ext_proc.channel import dial
    from ext_proc.record import Entry, Recorder

    open_exchanges: dict[str | None, list[Entry]] = {}
    recorder = Recorder()
    recorder.listen(lambda entry: open_exchanges[entry.event.exchange].append(entry))
    channel = await dial(address, connections=2)
    exchange = proxied(channel, recorder) if kind.startswith("proxy") else streamed(channel, recorder)
    judge, close_judge = await judging(kind.removeprefix("proxy-"))

    async def one(name: str) -> None:
        open_exchanges[name] = []
        await exchange(name)
        await judge(name, tuple(open_exchanges.pop(name)))

    async def close() -> None:
        await channel.close()
        await close_judge()

    return one, close


def streamed(channel: Any, recorder: Any) -> One:
    """Two messages made before, two answers, and Envoy's reset."""
    sent = messages()

    async def one(name: str) -> None:
        stream = await channel.open(name, recorder)
        for raw in sent:
            stream.send(raw)
        for _ in sent:
            if await stream.recv() is None:
                raise RuntimeError(f"the stream ended early: {stream.ended}")
        stream.reset()

    return one


def proxied(channel: Any, recorder: Any) -> One:
    """A client's request through the machine that is Envoy; the model server answers without a network."""
    from fake_proxy.client import HttpRequest
    from fake_proxy.config import BodyMode, ProxyConfig
    from fake_proxy.exchange import run_exchange
    from fake_proxy.scripted import ScriptedUpstream, json_reply
    from fake_proxy.stimulus import Stimulus

    config = ProxyConfig(response_body_mode=BodyMode.NONE, send_response_headers=False, send_response_trailers=False)
    request = HttpRequest(body=BODY, http=2, headers=((b"content-type", b"application/json"),))
    upstream, stimulus = ScriptedUpstream(json_reply({"choices": []})), Stimulus()

    async def one(name: str) -> None:
        outcome = await run_exchange(channel, request, config, stimulus, upstream, recorder, name)
        if outcome.attempts != (ENDPOINT,) or outcome.status != 200:
            raise RuntimeError(f"not what was expected: {outcome}")

    return one


async def judging(kind: str) -> tuple[Callable[[str, Any], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """Judge here, in a process beside, or not at all; and what ends that. Any violation raises."""
    from conformance.evidence.episode import Context, Episode
    from conformance.judges import judge
    from conformance.requirements.catalogue import Catalogue
    from conformance.tap.gathering import Gathered
    from conformance.tap.judge_process import JudgingProcess
    from conformance.tap.judging import JudgingSettings
    from conformance.verdict import Verdict

    context = Context(version="1.0.0", scenario="benchmark")
    catalogue = Catalogue.load()

    async def nothing(*_: Any) -> None:
        return

    if kind == "judged":

        async def here(name: str, entries: Any) -> None:
            found = judge(Episode(id=name, entries=entries), context, catalogue)
            if not found or any(one.verdict in (Verdict.FAIL, Verdict.WARN) for one in found):
                raise RuntimeError(f"not what was expected: {found}")

        return here, nothing
    if kind != "beside":
        return nothing, nothing
    counts = {"judged": 0, "offered": 0}
    wrong: list[Any] = []

    def on_judged(judged: Any) -> None:
        counts["judged"] += 1
        # Of the response the EPP is told nothing here, which is noted as the data plane's own fault.
        if judged.problem or any(not one.requirement.startswith("DP-") for one in judged.findings):
            wrong.append(judged)

    settings = JudgingSettings(context=context, print_each=0)
    process = JudgingProcess(settings, on_judged, print)
    await process.start()

    async def beside(name: str, entries: Any) -> None:
        gathered = Gathered(exchange=name, entries=entries, reason="ended")
        while not process.offer(gathered):  # noqa: ASYNC110 - it has no event for room
            await asyncio.sleep(0.001)
        counts["offered"] += 1

    async def close() -> None:
        await process.close(60)
        if wrong:
            raise RuntimeError(f"not what was expected: {wrong[0]}")
        if counts["judged"] != counts["offered"]:
            raise RuntimeError(f"not every exchange was judged: {counts}")

    return beside, close


async def client(kind: str, address: str, seconds: float, concurrent: int) -> None:
    """A client's process: prints what it did."""
    one, close = await (grpc_client(address) if kind == "grpc" else our_client(address, kind))
    names = map(str, itertools.count())
    done = 0

    async def worker(end: float) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await one(next(names))
            done += 1

    async def work(seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(worker(end) for _ in range(concurrent)))

    await work(WARM_UP)
    warm, began, used = done, time.perf_counter(), time.process_time()
    await work(seconds)
    cpu, streams = time.process_time() - used, done - warm
    await close()
    took = time.perf_counter() - began
    beside = of_children()
    if beside:  # less what the process takes to start
        one, close = await our_client(address, kind)
        await one("another")
        await close()
        beside = max(0.0, 2 * beside - of_children())
    print(json.dumps({"rate": streams / took, "cpu": cpu / streams, "beside": beside / done}))


def of_children() -> float:
    """Processor time of the processes that were started here and have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


# -- the comparison ----------------------------------------------------------------------------------------------------


def compare(seconds: float, rounds: int, concurrent: int) -> bool:
    """Measure all kinds in turn, and print. True if the figure holds."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    try:
        for kind in [kind for _ in range(rounds) for kind in KINDS]:
            command = [sys.executable, __file__, "--client", kind, "--address", address]
            options = ["--seconds", str(seconds), "--concurrent", str(concurrent)]
            ran = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            taken[kind].append(json.loads(ran.stdout.splitlines()[-1]))
    finally:
        server.communicate()
    print(f"{f'two messages, {concurrent} at once':44}{'streams/s':>10}{'cpu':>10}{'beside':>10}{'x grpc.aio':>12}")
    ratios = {}
    medians = {
        kind: {name: statistics.median(one[name] for one in got) for name in got[0]} for kind, got in taken.items()
    }
    for kind, got in medians.items():
        cost = got["cpu"] + got["beside"]
        ratios[kind] = medians["grpc"]["cpu"] / cost
        beside = f"{got['beside'] * 1e6:7.0f} µs" if got["beside"] else ""
        print(f"  {KINDS[kind]:42}{got['rate']:10.0f}{got['cpu'] * 1e6:7.0f} µs{beside:>10}{ratios[kind]:12.2f}")
    alone = {kind: medians["grpc"]["cpu"] / got["cpu"] for kind, got in medians.items()}
    print(f"judged beside, by the client's own process alone: {alone['beside']:.2f} (stream), "
          f"{alone['proxy-beside']:.2f} (fake proxy)")  # fmt: skip
    held = max(ratios["proxy-judged"], alone["proxy-beside"]) >= FIGURE
    print(f"figure: the fake proxy, recorded and judged, ≥ {FIGURE:g} times grpc.aio: {'held' if held else 'NOT HELD'}")
    return held


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client == "grpc":  # grpc.aio is no faster on uvloop
        asyncio.run(client(options.client, options.address, options.seconds, options.concurrent))
        return
    if options.serve or options.client:
        import uvloop

        from conformance.run.engine import collect_seldom

        collect_seldom()
        work = (
            serve() if options.serve else client(options.client, options.address, options.seconds, options.concurrent)
        )
        uvloop.run(work)
        return
    sys.exit(0 if compare(options.seconds, options.rounds, options.concurrent) else 1)


if __name__ == "__main__":
    main()
