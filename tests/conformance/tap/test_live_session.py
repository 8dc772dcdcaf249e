"""Live taps: right and wrong EPPs behind them, a judging process that dies, metrics, transcripts, the commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.cli import call
from conformance.errors import UsageError
from conformance.evidence.episode import Context
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import LagMeter
from conformance.tap import narrator as narration
from conformance.tap.files import Transcript, read
from conformance.tap.gathering import Gathered
from conformance.tap.judge_process import JudgingProcess
from conformance.tap.judging import JudgedExchange, JudgingSettings, context, judged
from conformance.tap.narrator import Narrator
from conformance.tap.redaction import LiveRedaction
from conformance.tap.session import LiveSettings, LiveTap
from conformance.verdict import Verdict
from ext_proc.channel import dial
from ext_proc.headers import header_map
from ext_proc.http2.tls import ClientTls, ServerTls, self_signed
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HttpHeaders,
    ProcessingResponse,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from ext_proc.record import Author, Entry, Message, Recorder, StreamEnded, StreamOpened
from ext_proc.relay import RecordingLimits
from fake_epp import (
    Answer,
    FakeEpp,
    Pick,
    Raw,
    Script,
    answers_immediately,
    closes,
    does,
    open_epp,
    picks,
    stays_silent,
)
from fake_proxy.client import Abort, Chunk, HttpRequest
from fake_proxy.config import BodyMode, Ending, ProxyConfig
from fake_proxy.exchange import run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply, json_reply, sse_reply
from fake_proxy.stimulus import Stimulus, subset_hint

A = "127.0.0.1:8001"
CONTEXT = context("1.0.0")
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "do not keep this"}]}'
REQUEST = HttpRequest(body=(Chunk(data=CHAT[:30]), Chunk(data=CHAT[30:])), headers=((b"authorization", b"Bearer x"),))
SHAPES = {
    "chat": (REQUEST, ScriptedUpstream(json_reply({"ok": True}))),
    "stream": (REQUEST, ScriptedUpstream(sse_reply(b"one", b"two", b"[DONE]"))),
    "bodyless": (HttpRequest(method="GET", path="/v1/models?key=secret"), ScriptedUpstream(json_reply([]))),
    "trailers": (
        replace(REQUEST, trailers=((b"x-sum", b"1"),)),
        ScriptedUpstream(UpstreamReply(body=(b"a", b"b"), trailers=((b"x-done", b"1"),))),
    ),
    "large": (replace(REQUEST, body=CHAT + b" " * 300_000), ScriptedUpstream(UpstreamReply(body=(b"y" * 200_000,)))),
}
CHAT_EXCHANGE = (*SHAPES["chat"], ProxyConfig())
MODES = [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED, BodyMode.STREAMED, BodyMode.NONE]


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


class Staged(LiveTap):
    """A live tap that knows the scripted EPP behind it, and what was shown and warned of."""

    epp: FakeEpp

    def __init__(self, settings: LiveSettings) -> None:
        self.shown: list[str] = []
        self.warned: list[str] = []
        super().__init__(settings, show=self.shown.append, warn=self.warned.append)


@contextlib.asynccontextmanager
async def live(script: Script, **options) -> AsyncIterator[Staged]:
    """A live tap before a scripted EPP. What was judged is complete once the context is left."""
    epp = await open_epp(default=script)
    judging = options.pop("judging", JudgingSettings(context=CONTEXT))
    settings = LiveSettings(host="127.0.0.1", port=0, upstream=epp.address, judging=judging, **options)
    try:
        async with Staged(settings) as tap:
            tap.epp = epp
            yield tap
    finally:
        await epp.close()


async def drive(
    address: str, *exchanges: tuple[HttpRequest, ScriptedUpstream, ProxyConfig], deadline: float = 10
) -> None:
    channel = await dial(address)
    for request, upstream, config in exchanges:
        pace = Pace(deadline=deadline)
        await run_exchange(channel, request, config, Stimulus(), upstream, Recorder(), "x", pace=pace)
    await channel.close()


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize("body", [0, 1 << 20])
def test_a_right_epp_breaks_no_rule_whatever_is_redacted(body: int) -> None:
    everything = [
        (*shape, replace(ProxyConfig().with_modes(mode), ending=ending))
        for shape in SHAPES.values()
        for mode in MODES
        for ending in (Ending.ENVOY, Ending.HALF_CLOSE)
    ]

    async def main() -> None:
        async with live(picks(A), redaction=LiveRedaction(body=body)) as tap:
            await drive(tap.address, *everything)
            tap.epp.default = picks(A, decides="end")
            await drive(tap.address, *everything)
        assert tap.shown == []
        assert tap.warned == []
        tally = tap.tally
        assert (tally.judged, tally.violating, tally.problems) == (2 * len(everything), 0, 0)
        assert tally.findings["EPP-DEST-02", "pass"] > 60
        with_body = 2 * (len(everything) * 4 // 5) * 3 // 4  # not `bodyless`, not in mode NONE
        assert (tally.findings["ENV-09", "pass"] >= with_body) == bool(body)

    run(main)


WRONG = [
    (picks(A, metadata=False), "EPP-DEST-02"),
    (does(pick=Pick(endpoints=(A,)), request_headers=(Answer(), Answer())), "ENV-02"),
    (does(pick=Pick(endpoints=(A,)), request_headers=(Answer(to="response_headers"),)), "ENV-01"),
    (does(request_headers=(Raw(message=b"\xff\xff\xff"),)), "ENV-01"),
    (does(pick=Pick(endpoints=(A,)), request_end=(Answer(form="body"),)), "ENV-04"),
    (does(pick=Pick(endpoints=(A,)), request_body=(Answer(ends=True),)), "ENV-05"),
    (answers_immediately(77), "ENV-15"),
    (closes(13, "oh"), "ENV-16"),
]


@pytest.mark.program
def test_wrong_epps_are_caught_without_any_body() -> None:
    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, print_each=10)
        async with live(Script(), judging=judging) as tap:
            for script, _ in WRONG:
                tap.epp.default = script
                await drive(tap.address, CHAT_EXCHANGE)
        failed = [text for text in tap.shown if text.startswith("✗ fail")]
        for number, (text, (_, requirement)) in enumerate(zip(failed, WRONG, strict=True), 1):
            assert requirement in text.splitlines()[0]
            assert f"(tap-{number})" in text
            assert "▶" in text
        assert "do not keep" not in "".join(tap.shown)

    run(main)


HINT_KEY = "x-gateway-destination-endpoint-subset"
WRONG_DATA_PLANES = [
    (Stimulus(withhold=frozenset({"request_headers"})), "DP-EXTP-01"),
    (Stimulus(duplicate_end=True), "DP-EXTP-01"),
    (Stimulus(metadata=subset_hint(ProxyConfig(), A)), "DP-SUB-01"),
    (Stimulus(metadata={"envoy.lb": {HINT_KEY: [A]}}), "DP-SUB-01"),
    (Stimulus(served="pod-a"), "DP-SRVD-01"),
]


@pytest.mark.program
def test_wrong_data_planes_are_caught_live_and_offline(tmp_path: Path) -> None:
    """An EPP that answers only what it is asked, so that the data plane alone is at fault."""
    record = tmp_path / "traffic.ndjson"

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, print_each=10, record=record)
        async with live(picks(A), judging=judging) as tap:
            channel = await dial(tap.address)
            request, upstream = SHAPES["chat"]
            for stimulus, _ in WRONG_DATA_PLANES:
                pace = Pace(deadline=1)
                await run_exchange(channel, request, ProxyConfig(), stimulus, upstream, Recorder(), "x", pace=pace)
            await channel.close()
        told = {line for text in tap.shown for line in text.splitlines() if "(data plane, tap-" in line}
        for number, (_, requirement) in enumerate(WRONG_DATA_PLANES, 1):
            assert any(requirement in line and f"(data plane, tap-{number})" in line for line in told), number

    run(main)
    transcripts = [one for one in read(record) if isinstance(one, Transcript)]
    again = [judged(one.episode, one.context, Catalogue.load(), roles=("data-plane",)) for one in transcripts]
    assert [one.findings[0].requirement for one in again] == [requirement for _, requirement in WRONG_DATA_PLANES]
    assert call(["judge", str(record)]) == 1


@pytest.mark.program
def test_an_epp_that_hangs_is_caught_while_it_does() -> None:
    async def main() -> None:
        judging = JudgingSettings(context=context("1.0.0", deadline=0.2))
        async with live(stays_silent(), judging=judging) as tap:
            driving = asyncio.create_task(drive(tap.address, (*SHAPES["bodyless"], ProxyConfig()), deadline=30))
            await until(lambda: tap.shown)
            assert not driving.done()
            assert "no answer to request_headers" in tap.shown[0]
            driving.cancel()
            await asyncio.wait([driving])
        assert tap.tally.judged == 1

    run(main)


@pytest.mark.program
@pytest.mark.parametrize("answered", [False, True])
def test_an_epp_that_the_data_plane_does_not_wait_for_is_not_called_right(answered: bool) -> None:
    """A data plane's patience (Envoy: 200 ms) ends long before the EPP is late by the tap's deadline."""

    async def main() -> None:
        async with live(stays_silent()) as tap:
            await drive(tap.address, *[CHAT_EXCHANGE] * 3, deadline=0.05)
            if answered:
                tap.epp.default = picks(A)
                await drive(tap.address, CHAT_EXCHANGE)
        assert tap.tally.untold == 3
        assert "3 tell nothing of the EPP" in tap.summary()
        assert tap.exit_code == (0 if answered else 4)

    run(main)


@pytest.mark.program
def test_findings_of_a_kind_are_printed_some_times_and_counted_always() -> None:
    async def main() -> None:
        async with live(picks(A, metadata=False), judging=JudgingSettings(context=CONTEXT, print_each=2)) as tap:
            await drive(tap.address, *[CHAT_EXCHANGE] * 6)
        assert len([text for text in tap.shown if "EPP-DEST-02" in text]) == 2
        assert "counted, not printed" in tap.shown[-1]
        assert tap.tally.of(Verdict.FAIL) == [("EPP-DEST-02", 6)]
        assert "6 streams relayed, 6 judged, 6 with a broken rule" in tap.summary()
        assert "6 × EPP-DEST-02" in tap.summary()

    run(main)


# -- transcripts and metrics -------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize("failures_only", [False, True])
def test_transcripts_are_judged_again_with_the_same_findings(tmp_path: Path, failures_only: bool) -> None:
    path = tmp_path / "traffic.ndjson"

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, record=path, record_failures_only=failures_only)
        async with live(picks(A), judging=judging) as tap:
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig().with_modes(mode)) for mode in MODES])
            tap.epp.default = picks(A, header=False)
            await drive(tap.address, (*SHAPES["stream"], ProxyConfig()))

    run(main)
    found = list(read(path))
    assert all(isinstance(one, Transcript) for one in found)
    again = [judged(one.episode, one.context, Catalogue.load()) for one in found]
    assert [one.failed for one in again] == ([True] if failures_only else [False] * 4 + [True])
    raw = b"".join(e.event.raw for one in found for e in one.episode.entries if isinstance(e.event, Message))
    assert b"do not keep" not in raw
    assert b"Bearer x" not in raw


@pytest.mark.program
def test_exchanges_that_are_known_in_part_are_told() -> None:
    async def main() -> None:
        limits = RecordingLimits(events=3)
        async with live(picks(A), limits=limits, metrics=("127.0.0.1", 0)) as tap:
            await drive(tap.address, *[CHAT_EXCHANGE] * 3)
            assert "epp_tap_partial_exchanges_total 3.0" in await metrics_page(tap, judged=3)
        assert "3 were judged by the beginning" in tap.summary()

    run(main)


@pytest.mark.program
def test_a_file_that_can_not_be_written_is_told_once(tmp_path: Path) -> None:

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, record=tmp_path / "no" / "such" / "folder")
        async with live(picks(A), judging=judging, metrics=("127.0.0.1", 0)) as tap:
            await drive(tap.address, *[CHAT_EXCHANGE] * 3)
            assert "epp_tap_unwritten_exchanges_total 3.0" in await metrics_page(tap, judged=3)
        assert tap.tally.judged == tap.tally.unwritten == 3
        assert tap.exit_code == 3
        assert "3 are not among the transcripts" in tap.summary()

        (told,) = tap.warned
        assert "transcripts can't be written" in told

    run(main)


async def until(reached: Callable[[], object]) -> None:
    while not reached():  # noqa: ASYNC110 - another process or thread reaches it
        await asyncio.sleep(0.01)


async def metrics_page(tap: Staged, *, judged: int) -> str:
    """The page once so many exchanges were judged."""
    await until(lambda: tap.tally.judged >= judged)
    url = f"http://127.0.0.1:{tap.metrics_port}/metrics"
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())


@pytest.mark.program
def test_metrics_count_exchanges_and_findings() -> None:
    async def main() -> None:
        async with live(picks(A, metadata=False), metrics=("127.0.0.1", 0), every=2) as tap:
            await drive(tap.address, *[CHAT_EXCHANGE] * 4)
            page = await metrics_page(tap, judged=2)
        figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        assert figures["epp_tap_streams_total"] == "4.0"
        assert figures['epp_tap_exchanges_total{outcome="judged"}'] == "2.0"
        assert figures['epp_tap_exchanges_total{outcome="sampled_out"}'] == "2.0"
        assert figures['epp_tap_findings_total{requirement="EPP-DEST-02",verdict="fail"}'] == "2.0"
        assert figures["epp_tap_violating_exchanges_total"] == "2.0"
        assert float(figures['epp_tap_bytes_total{to="epp"}']) == tap.tap.counts.bytes_to_epp
        assert figures["epp_tap_open_streams"] == "0.0"

    run(main)


@pytest.mark.program
@pytest.mark.parametrize(("kept", "equal"), [(0, True), (0, False), (1 << 20, True), (1 << 20, False)])
def test_metrics_tell_how_many_verdicts_were_remembered(kept: int, equal: bool) -> None:
    """Other bodies are other exchanges only where they are kept, and so judged."""
    request, upstream = SHAPES["chat"]
    bodies = [CHAT if equal else CHAT.replace(b"this", b"this %d" % number) for number in range(6)]
    assert equal or len({*bodies}) == 6

    async def main() -> None:
        redaction = LiveRedaction(body=kept)
        async with live(picks(A), metrics=("127.0.0.1", 0), redaction=redaction) as tap:
            await drive(tap.address, *[(replace(request, body=body), upstream, ProxyConfig()) for body in bodies])
            page = await metrics_page(tap, judged=6)
        assert (tap.tally.remembered > 0) == (equal or not kept)
        assert tap.tally.remembered < 6
        assert f"epp_tap_remembered_exchanges_total {tap.tally.remembered}.0" in page

    run(main)


# -- trouble -----------------------------------------------------------------------------------------------------------


def gathered(name: str = "x") -> Gathered:
    recorder, entries = Recorder(), []
    recorder.listen(entries.append)
    recorder.emit(StreamOpened(exchange=name, stream="s", connection=1))
    recorder.emit(StreamEnded(exchange=name, stream="s", author=Author.EPP, how="status", status=0))
    return Gathered(exchange=name, entries=tuple(entries), reason="ended", size=800)


@pytest.mark.program
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process is found in /proc")
def test_a_judging_process_that_dies_is_started_again() -> None:
    async def main() -> None:
        results: list[JudgedExchange] = []
        troubles: list[str] = []
        process = JudgingProcess(JudgingSettings(context=CONTEXT), results.append, troubles.append)
        await process.start()
        assert process.offer(gathered("a"))
        await until(lambda: results)
        os.kill(_child(), signal.SIGKILL)
        while not troubles:
            process.offer(gathered("lost"))
            await asyncio.sleep(0.02)
        assert "signal 9" in troubles[0]
        assert process.offer(gathered("b"))
        await process.close(timeout=30)
        assert "b" in {one.exchange for one in results}
        assert process.lost >= 1

    run(main)


@pytest.mark.program
def test_an_error_where_results_go_is_told_and_judging_goes_on() -> None:
    async def main() -> None:
        results: list[JudgedExchange] = []
        troubles: list[str] = []

        def judged(one: JudgedExchange) -> None:
            if one.exchange == "a":
                raise RuntimeError("ours")
            results.append(one)

        process = JudgingProcess(JudgingSettings(context=CONTEXT), judged, troubles.append)
        await process.start()
        assert process.offer(gathered("a"))
        await until(lambda: troubles)
        assert "RuntimeError('ours')" in troubles[0]
        assert process.offer(gathered("b"))
        await process.close(timeout=30)
        assert [one.exchange for one in results] == ["b"]
        assert process.lost == 1

    run(main)


def _child() -> int:
    """The process id of the judging process that this one has started."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and b"conformance.run.child_process" in (process / "cmdline").read_bytes():
                found.append((process / "status").read_text())
    (mine,) = (status for status in found if f"PPid:\t{os.getpid()}\n" in status)
    return int(re.search(r"^Pid:\t(\d+)$", mine, re.MULTILINE)[1])


def test_a_queue_that_is_full_takes_no_more() -> None:
    async def main() -> None:
        settings = JudgingSettings(context=CONTEXT)
        process = JudgingProcess(settings, lambda _: None, lambda _: None, max_waiting=2)
        assert [process.offer(gathered()) for _ in range(3)] == [True, True, False]
        process = JudgingProcess(settings, lambda _: None, lambda _: None, max_bytes=801)
        assert [process.offer(gathered()) for _ in range(3)] == [True, True, False]
        assert process.waiting == 2

    run(main)


@pytest.mark.program
def test_a_cancelled_tap_counts_exchanges_left_out(tmp_path: Path) -> None:
    """As by a second signal: what was not judged must not pass for what nothing was found in, and what the process has
    in hand is judged, as it is written."""
    record = tmp_path / "traffic.ndjson"

    async def main() -> None:
        driven = asyncio.Event()
        taps: list[LiveTap] = []

        async def serve() -> None:
            async with live(picks(A), judging=JudgingSettings(context=CONTEXT, record=record)) as tap:
                taps.append(tap)
                await drive(tap.address, *[(*SHAPES["bodyless"], ProxyConfig())] * 100)
                driven.set()

        serving = asyncio.create_task(serve())
        await driven.wait()
        await asyncio.sleep(0.05)  # the process that judges takes longer to start
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        (tap,) = taps
        assert len(record.read_bytes().splitlines()) == tap.tally.judged
        left = 100 - tap.tally.judged
        assert tap.left_out == left
        assert (f"{left} were left out, as judging was behind" in tap.summary()) == (left > 0)
        assert tap.exit_code == (4 if left else 0)

    run(main)


@pytest.mark.program
def test_an_epp_that_can_not_be_reached_is_told_once_and_counted_always() -> None:
    async def main() -> None:
        async with live(picks(A)) as tap:
            await tap.epp.close()
            for _ in range(5):
                host, port = tap.address.split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                await reader.read()  # until the tap cuts it
                writer.close()
            (told,) = tap.warned
            assert "can't be reached" in told
        assert "5 connections were cut, as the EPP could not be reached" in tap.summary()
        assert "so nothing is known of the EPP" in tap.summary()
        assert tap.exit_code == 4

    run(main)


def connects(address: str, *, tls: bool) -> None:
    """As a data plane that verifies certificates, or speaks HTTP/1.1."""
    host, port = address.split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=30) as plain:
        if tls:
            ssl.create_default_context().wrap_socket(plain, server_hostname="epp").close()
        plain.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        while plain.recv(1000):
            pass


@pytest.mark.program
@pytest.mark.parametrize(
    ("served", "tls", "said"),
    [
        (False, True, "it speaks TLS, and is served plaintext"),
        (False, False, "it speaks no HTTP/2, and begins with 'GET / HTTP/1.1'"),
        (True, False, "it speaks plaintext, and is served TLS"),
        (True, True, "alert unknown ca"),
    ],
)
def test_a_data_plane_that_can_not_be_served_is_told_of(tmp_path: Path, served: bool, tls: bool, said: str) -> None:
    """A gateway that expects TLS of its EPP, or none, a probe that speaks HTTP/1.1: once in words, each counted."""

    async def main() -> None:
        listen_tls = self_signed(tmp_path) if served else None
        async with live(picks(A), listen_tls=listen_tls) as tap:
            for _ in range(3):
                await asyncio.to_thread(connects, tap.address, tls=tls)
            await until(lambda: tap.tap.counts.unopened >= 3)
        (told,) = tap.warned
        assert "a data plane's connection is cut: " in told
        assert said in told
        assert "3 connections of data planes were cut, as no TLS could be agreed on" in tap.summary()

    run(main)


@pytest.mark.program
def test_a_tap_that_looks_for_silent_streams_no_more_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("ours")

    async def main() -> None:
        monkeypatch.setattr("conformance.tap.session.LOOK", 0.01)
        monkeypatch.setattr("conformance.tap.gathering.Gathering.look", fails)
        async with live(picks(A)) as tap:
            await until(lambda: tap.warned)
            await drive(tap.address, CHAT_EXCHANGE)
        assert "RuntimeError('ours')" in tap.warned[0]
        assert tap.exit_code == 3

    run(main)


@pytest.mark.program
def test_relaying_goes_on_without_any_judging(monkeypatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        async with live(picks(A)) as tap:
            while not tap.warned or "any more" not in tap.warned[-1]:
                await drive(tap.address, (*SHAPES["bodyless"], ProxyConfig()))
            outcome = []
            channel = await dial(tap.address)
            request, upstream = SHAPES["chat"]
            outcome.append(await run_exchange(channel, request, ProxyConfig(), Stimulus(), upstream, Recorder(), "x"))
            await channel.close()
            assert outcome[0].status == 200
            assert tap.left_out > 0
            assert "left out" in tap.summary()

    run(main)


def test_addresses_and_files_that_can_not_be_used_are_wrong_use(tmp_path: Path) -> None:
    judging = JudgingSettings(context=CONTEXT)
    missing = tmp_path / "missing.pem"
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")

    async def enter(**options) -> None:
        settings = LiveSettings(**{"host": "127.0.0.1", "port": 0, "upstream": A, "judging": judging} | options)
        with pytest.raises(UsageError) as raised:
            async with LiveTap(settings, show=print, warn=print):
                pass
        assert raised.value.hint

    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        taken = server.sockets[0].getsockname()[1]
        await enter(upstream="nowhere")
        await enter(port=taken)
        await enter(metrics=("127.0.0.1", taken))
        await enter(listen_tls=ServerTls(certificate=missing, key=missing))
        await enter(listen_tls=ServerTls(certificate=bad, key=bad))
        await enter(upstream_tls=ClientTls(ca=missing))
        server.close()
        await server.wait_closed()

    run(main)


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traffic(tmp_path_factory) -> Path:
    """Transcripts of a right and of a wrong exchange."""
    path = tmp_path_factory.mktemp("live") / "traffic.ndjson"

    async def main() -> None:
        async with live(picks(A), judging=JudgingSettings(context=CONTEXT, record=path)) as tap:
            await drive(tap.address, CHAT_EXCHANGE)
            tap.epp.default = picks(A, header=False)
            await drive(tap.address, CHAT_EXCHANGE)

    run(main)
    return path


@pytest.mark.program
def test_the_command_judge(traffic: Path, tmp_path: Path, capsys) -> None:
    assert call(["judge", str(traffic)]) == 1
    text = capsys.readouterr().out
    assert "EPP-DEST-01" in text
    assert "2 exchanges judged, 1 with a broken rule" in text
    assert call(["judge", "--json", str(traffic)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(line["requirement"], line["verdict"]) for line in lines if line["verdict"] == Verdict.FAIL} == {
        ("EPP-DEST-01", "fail")
    }
    right = tmp_path / "right.ndjson"
    right.write_text(traffic.read_text().splitlines()[0] + "\n")
    assert call(["judge", str(right), "--protocol-version", "0.4.0"]) == 0
    assert call(["judge", str(right), "--exchange", "other"]) == 2
    assert "there is no exchange 'other'" in capsys.readouterr().err
    right.write_text(right.read_text() + "garbage\n")
    assert call(["judge", str(right)]) == 3
    assert "line 2: is no transcript" in capsys.readouterr().err
    assert call(["judge", str(tmp_path / "nothing")]) == 2
    assert call(["judge", str(right), "--protocol-version", "9"]) == 2


def reordered(line: dict) -> None:
    line["entries"].reverse()


def without_its_scenario(line: dict) -> None:
    del line["context"]["scenario"]


@pytest.mark.program
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (reordered, "its entries are not in the order of their numbers (seq)"),
        (without_its_scenario, "not an episode: context.scenario: Field required"),
    ],
)
def test_edited_transcripts_are_not_judged(
    traffic: Path, tmp_path: Path, capsys, change: Callable[[dict], None], said: str
) -> None:
    line = json.loads(traffic.read_text().splitlines()[0])
    change(line)
    edited = tmp_path / "edited.ndjson"
    edited.write_text(json.dumps(line) + "\n")
    assert call(["judge", str(edited)]) == 2
    assert f"line 1: is no transcript: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tap", "--upstream", "nowhere"],
        ["tap", "--upstream", A, "--listen", "here"],
        ["tap", "--upstream", A, "--listen", ":99999"],
        ["tap", "--upstream", A, "--listen", "x..y:9000"],
        ["tap", "--upstream", A, "--listen", f"{'a' * 64}:9000"],
        ["tap", "--upstream", A, "--metrics", "x..y:9000"],
        ["tap", "--upstream", A, "--tls", "some"],
        ["tap", "--upstream", A, "--tls", "plaintext", "--ca", "x"],
        ["tap", "--upstream", A, "--listen-key", "x"],
        ["tap", "--upstream", A, "--protocol-version", "7"],
        ["tap", "--upstream", A, "--profile", "no-such-profile"],
        ["proxy", "--epp", "nowhere"],
        ["proxy", "--epp", A, "--body-mode", "some"],
        ["proxy", "--epp", A, "--listen", "here"],
        ["proxy", "--epp", A, "--listen", ":0", "--pods", "1", "--endpoints-file", "/dev/null/endpoints"],
    ],
)
def test_wrong_use_of_the_commands(arguments: list[str], capsys) -> None:
    assert call(arguments) == 2
    assert "error" in capsys.readouterr().err.lower()


class Command:
    """A command in its own process, whose output is read line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from conformance.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"NO_COLOR": "1"},
        )
        self.lines: list[str] = []

    def until(self, pattern: str) -> str:
        """The first group of the first line that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError("".join(self.lines))

    def end(self) -> tuple[int, str]:
        """Interrupt it: its exit code and the rest of its output."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.mark.program
def test_the_tap_shows_its_certificate_to_an_epp_that_asks_for_one(tmp_path: Path) -> None:
    own = self_signed(tmp_path, names=("127.0.0.1",))
    mutual = replace(own, client_ca=own.certificate)

    async def main() -> None:
        epp = await open_epp(default=picks(A), tls=mutual)
        to = ("tap", "--listen", "127.0.0.1:0", "--upstream", epp.address)
        trusted = ("--ca", str(own.certificate), "--cert", str(own.certificate), "--key", str(own.key))
        tap = Command(*to, *trusted)
        try:
            address = await asyncio.to_thread(tap.until, r"relaying (\S+)")
            await drive(address, CHAT_EXCHANGE)
            code, rest = await asyncio.to_thread(tap.end)
            assert (code, "1 stream relayed, 1 judged, 0 with a broken rule" in rest) == (0, True), rest
        finally:
            tap.process.kill()
            tap.process.wait()
            tap.process.stdout.close()
            await epp.close()

    run(main)


def narrated(
    script: Script,
    upstream: ScriptedUpstream | None = None,
    *,
    of: Context = CONTEXT,
    deadline: float = 0.2,
    request: HttpRequest = REQUEST,
    config: ProxyConfig = ProxyConfig(),  # noqa: B008 - it is frozen
    recorder: Recorder | None = None,
    lag: LagMeter | None = None,
) -> tuple[str, Narrator]:
    """What the proxy prints of an exchange with an EPP."""
    printed: list[str] = []
    recorder = recorder or Recorder()
    narrator = Narrator(printed.append, context=of, lag=lag)
    recorder.listen(narrator)

    async def main() -> None:
        epp = await open_epp(default=script)
        channel = await dial(epp.address)
        pace = Pace(deadline=deadline)
        _, usual = SHAPES["chat"]
        await run_exchange(channel, request, config, Stimulus(), upstream or usual, recorder, "x", pace=pace)
        narrator.finished("x")
        await channel.close()
        await epp.close()

    run(main)
    return "\n".join(printed), narrator


@pytest.mark.parametrize(("patience", "accused"), [(300.0, False), (0.2, True)])
def test_an_answer_may_take_as_long_as_the_data_plane_waits(patience: float, accused: bool) -> None:
    """A client that leaves after 11 s without an answer accuses nothing where a proxy would wait for 300 s."""
    passed = [0.0]
    recorder = Recorder(clock=lambda: time.monotonic_ns() + int(passed[0] * 1e9))

    def later(entry: Entry) -> None:
        passed[0] += 11 * isinstance(entry.event, Message)

    recorder.listen(later)
    request = REQUEST if accused else replace(REQUEST, abort=Abort(at="request"))
    said, _ = narrated(stays_silent(), deadline=patience, request=request, recorder=recorder)
    assert ("✗" in said) is accused
    unpaid = re.search(r"^x  \? request_headers had no answer after [1-9][0-9][.0-9]* s", said, re.MULTILINE)
    assert (unpaid is None) is accused


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED])
def test_a_wait_during_a_standstill_of_the_proxy_is_not_held_against_the_epp(mode: BodyMode) -> None:
    lag = LagMeter()
    lag.woke(time.monotonic(), time.monotonic() + 60)
    config = replace(ProxyConfig(), message_timeout=0.2).with_modes(mode)
    deadline = 0.2 if mode is BodyMode.FULL_DUPLEX_STREAMED else 60
    of = context("1.0.0", deadline=0.2)
    said, narrator = narrated(stays_silent(), of=of, deadline=deadline, config=config, lag=lag)
    assert "the suite's own event loop stood still" in said
    assert "✗" not in said
    assert narrator.tally.violating == 0
    assert [name for name, _ in narrator.tally.of(Verdict.ERROR)] == ["ENV-16"]


@pytest.mark.parametrize(
    ("last", "shown_as"),
    [("end_of_stream", "end of stream"), ("end_of_stream_without_message", "end_of_stream_without_message")],
)
def test_a_piece_of_body_is_shown_with_the_field_that_was_sent(last: str, shown_as: str) -> None:
    """Envoy reads one of them, and waits on where only the other is set."""
    piece = BodyMutation(streamed_response=StreamedBodyResponse(body=CHAT, **{last: True}))
    answer = ProcessingResponse(request_body=BodyResponse(response=CommonResponse(body_mutation=piece)))
    said, _ = narrated(
        does(pick=Pick(endpoints=(A,)), request_body=(), request_end=(Raw(message=answer.SerializeToString()),))
    )
    shown = re.findall(r"epp +request_body: streamed body, (.*)", said)
    assert set(shown) == {f"{len(CHAT)} bytes, {shown_as}"}
    assert ("✗ fail" in said) is (last != "end_of_stream")


def test_the_parts_of_a_streamed_reply_are_shown() -> None:
    head = HttpHeaders(headers=header_map(((b":status", b"429"), (b"x-why", b"busy"))))
    parts = (
        StreamedImmediateResponse(headers_response=head),
        StreamedImmediateResponse(body_response=StreamedBodyResponse(body=b"later", end_of_stream=True)),
    )
    raws = [ProcessingResponse(streamed_immediate_response=part).SerializeToString() for part in parts]
    said, _ = narrated(does(quiet=True, request_headers=tuple(Raw(message=raw) for raw in raws)))
    assert re.findall(r"epp +streamed_immediate_response: (.*)", said) == [
        "headers_response, HTTP status 429",
        "body_response, 5 bytes, end of stream",
    ]


@pytest.mark.parametrize("metadata", [True, False])
def test_an_exchange_of_too_many_events_is_judged_by_its_beginning(monkeypatch, metadata: bool) -> None:
    """Judging all of them would take memory for each. One that is right is accused of nothing for what is left out."""
    monkeypatch.setattr(narration, "EVENTS", 50)
    said, _ = narrated(picks(A, metadata=metadata), ScriptedUpstream(sse_reply(*[b"{}"] * 100)))
    assert ("✗" in said) is not metadata, said
    assert said.splitlines()[-1] == "x  ? judged by its first 50 events"


@pytest.mark.program
def test_the_commands_tap_and_proxy_together(tmp_path: Path) -> None:
    record, endpoints = tmp_path / "traffic.ndjson", tmp_path / "endpoints"
    commands: list[Command] = []

    async def main() -> None:
        epp = await open_epp()
        tap = Command("tap", "--listen", "127.0.0.1:0", "--upstream", epp.address, "--record", str(record))
        commands.append(tap)
        relay = await asyncio.to_thread(tap.until, r"relaying (\S+)")
        proxy = Command(
            "proxy", "--listen", "127.0.0.1:0", "--epp", relay, "--pods", "1", "--endpoints-file", str(endpoints)
        )
        commands.append(proxy)
        url = await asyncio.to_thread(proxy.until, r"^(http://\S+) ")
        epp.default = picks(endpoints.read_text().strip(), metadata=False)

        def ask() -> bytes:
            request = urllib.request.Request(f"{url}/v1/chat/completions", CHAT, {"content-type": "application/json"})
            return urllib.request.urlopen(request, timeout=20).read()

        assert json.loads(await asyncio.to_thread(ask))["object"] == "chat.completion"
        await asyncio.to_thread(proxy.until, r"(EPP-DEST-02)")
        await asyncio.to_thread(tap.until, r"(EPP-DEST-02)")
        code, rest = await asyncio.to_thread(proxy.end)
        assert code == 1
        code, rest = await asyncio.to_thread(tap.end)
        assert code == 1
        assert "1 stream relayed, 1 judged, 1 with a broken rule" in rest
        await epp.close()

    try:
        run(main)
    finally:
        for command in commands:
            command.process.kill()
            command.process.wait()
            command.process.stdout.close()
    text = "".join(commands[1].lines)
    assert "request-1" in text
    assert "data-plane    request_headers: POST /v1/chat/completions" in text
    assert "upstream request: attempt 1" in text
    (found,) = read(record)
    assert found.episode.id == "tap-1"
