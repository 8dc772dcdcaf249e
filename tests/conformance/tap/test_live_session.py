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
MODES = [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED, BodyMode.STREAMED, BodyMode.NONE]


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


class Staged(LiveTap):
    """A live tap that knows the scripted EPP behind it."""

    epp: FakeEpp


class Heard:
    def __init__(self) -> None:
        self.shown: list[str] = []
        self.warned: list[str] = []


@contextlib.asynccontextmanager
async def live(script: Script, **options) -> AsyncIterator[tuple[Staged, Heard]]:
    """A live tap before a scripted EPP. What was judged is complete once the context is left."""
    epp = await open_epp(default=script)
    heard = Heard()
    judging = options.pop("judging", JudgingSettings(context=CONTEXT))
    settings = LiveSettings(host="127.0.0.1", port=0, upstream=epp.address, judging=judging, **options)
    try:
        async with Staged(settings, show=heard.shown.append, warn=heard.warned.append) as tap:
            tap.epp = epp
            yield tap, heard
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


@pytest.mark.parametrize("body", [0, 1 << 20])
def test_a_right_epp_breaks_no_rule_whatever_is_redacted(body: int) -> None:
    everything = [
        (*shape, replace(ProxyConfig().with_modes(mode), ending=ending))
        for shape in SHAPES.values()
        for mode in MODES
        for ending in (Ending.ENVOY, Ending.HALF_CLOSE)
    ]

    async def main() -> None:
        async with live(picks(A), redaction=LiveRedaction(body=body)) as (tap, heard):
            await drive(tap.address, *everything)
            tap.epp.default = picks(A, decides="end")
            await drive(tap.address, *everything)
        assert heard.shown == []
        assert heard.warned == []
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


def test_wrong_epps_are_caught_without_any_body() -> None:
    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, print_each=10)
        async with live(Script(), judging=judging) as (tap, heard):
            for script, _ in WRONG:
                tap.epp.default = script
                await drive(tap.address, (*SHAPES["chat"], ProxyConfig()))
        failed = [text for text in heard.shown if text.startswith("✗ fail")]
        for number, (text, (_, requirement)) in enumerate(zip(failed, WRONG, strict=True), 1):
            assert requirement in text.splitlines()[0]
            assert f"(tap-{number})" in text
            assert "▶" in text
        assert "do not keep" not in "".join(heard.shown)

    run(main)


HINT_KEY = "x-gateway-destination-endpoint-subset"
WRONG_DATA_PLANES = [
    (Stimulus(withhold=frozenset({"request_headers"})), "DP-EXTP-01"),
    (Stimulus(duplicate_end=True), "DP-EXTP-01"),
    (Stimulus(metadata=subset_hint(ProxyConfig(), A)), "DP-SUB-01"),
    (Stimulus(metadata={"envoy.lb": {HINT_KEY: [A]}}), "DP-SUB-01"),
    (Stimulus(served="pod-a"), "DP-SRVD-01"),
]


def test_wrong_data_planes_are_caught_live_and_offline(tmp_path: Path) -> None:
    """An EPP that answers only what it is asked, so that the data plane alone is at fault."""
    record = tmp_path / "traffic.ndjson"

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, print_each=10, record=record)
        async with live(picks(A), judging=judging) as (tap, heard):
            channel = await dial(tap.address)
            request, upstream = SHAPES["chat"]
            for stimulus, _ in WRONG_DATA_PLANES:
                pace = Pace(deadline=1)
                await run_exchange(channel, request, ProxyConfig(), stimulus, upstream, Recorder(), "x", pace=pace)
            await channel.close()
        told = {line for text in heard.shown for line in text.splitlines() if "(data plane, tap-" in line}
        for number, (_, requirement) in enumerate(WRONG_DATA_PLANES, 1):
            assert any(requirement in line and f"(data plane, tap-{number})" in line for line in told), number

    run(main)
    transcripts = [one for one in read(record) if isinstance(one, Transcript)]
    again = [judged(one.episode, one.context, Catalogue.load(), roles=("data-plane",)) for one in transcripts]
    assert [one.findings[0].requirement for one in again] == [requirement for _, requirement in WRONG_DATA_PLANES]
    assert call(["judge", str(record)]) == 1


def test_a_subset_that_is_not_kept_to_is_caught() -> None:
    heards: list[Heard] = []

    async def main() -> None:
        async with live(picks(A)) as (tap, heard):
            channel = await dial(tap.address)
            hint = Stimulus(metadata=subset_hint(ProxyConfig(), ["127.0.0.1:9"]))
            request, upstream = SHAPES["chat"]
            await run_exchange(channel, request, ProxyConfig(), hint, upstream, Recorder(), "x")
            await channel.close()
            heards.append(heard)

    run(main)
    assert re.match(r"✗ fail  EPP-SUB-\d+", heards[0].shown[0])


def test_an_epp_that_hangs_is_caught_while_it_does() -> None:
    async def main() -> None:
        judging = JudgingSettings(context=context("1.0.0", deadline=0.2))
        async with live(stays_silent(), judging=judging) as (tap, heard):
            driving = asyncio.create_task(drive(tap.address, (*SHAPES["bodyless"], ProxyConfig()), deadline=30))
            while not heard.shown:  # noqa: ASYNC110 - what is shown comes from another process
                await asyncio.sleep(0.02)
            assert not driving.done()
            assert "no answer to request_headers" in heard.shown[0]
            driving.cancel()
            await asyncio.wait([driving])
        assert tap.tally.judged == 1

    run(main)


@pytest.mark.parametrize("answered", [False, True])
def test_an_epp_that_the_data_plane_does_not_wait_for_is_not_called_right(answered: bool) -> None:
    """A data plane's patience (Envoy: 200 ms) ends long before the EPP is late by the tap's deadline."""

    async def main() -> None:
        async with live(stays_silent()) as (tap, _):
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig())] * 3, deadline=0.05)
            if answered:
                tap.epp.default = picks(A)
                await drive(tap.address, (*SHAPES["chat"], ProxyConfig()))
        assert tap.tally.untold == 3
        assert "3 tell nothing of the EPP" in tap.summary()
        assert tap.exit_code == (0 if answered else 4)

    run(main)


def test_findings_of_a_kind_are_printed_some_times_and_counted_always() -> None:
    heards: list[Heard] = []
    taps: list[LiveTap] = []

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, print_each=2)
        async with live(picks(A, metadata=False), judging=judging) as (tap, heard):
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig())] * 6)
            heards.append(heard)
            taps.append(tap)

    run(main)
    assert len([text for text in heards[0].shown if "EPP-DEST-02" in text]) == 2
    assert "counted, not printed" in heards[0].shown[-1]
    assert taps[0].tally.of(Verdict.FAIL) == [("EPP-DEST-02", 6)]
    assert "6 streams relayed, 6 judged, 6 with a broken rule" in taps[0].summary()
    assert "6 × EPP-DEST-02" in taps[0].summary()


# -- transcripts and metrics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures_only", [False, True])
def test_transcripts_are_judged_again_with_the_same_findings(tmp_path: Path, failures_only: bool) -> None:
    path = tmp_path / "traffic.ndjson"

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, record=path, record_failures_only=failures_only)
        async with live(picks(A), judging=judging) as (tap, _):
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


def test_exchanges_that_are_known_in_part_are_told() -> None:
    async def main() -> None:
        limits = RecordingLimits(events=3)
        async with live(picks(A), limits=limits, metrics=("127.0.0.1", 0)) as (tap, _):
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig())] * 3)
            assert "epp_tap_partial_exchanges_total 3.0" in await metrics_page(tap, judged=3)
        assert "3 were judged by the beginning" in tap.summary()

    run(main)


def test_a_file_that_can_not_be_written_is_told_once(tmp_path: Path) -> None:
    heards: list[Heard] = []

    async def main() -> None:
        judging = JudgingSettings(context=CONTEXT, record=tmp_path / "no" / "such" / "folder")
        async with live(picks(A), judging=judging, metrics=("127.0.0.1", 0)) as (tap, heard):
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig())] * 3)
            heards.append(heard)
            assert "epp_tap_unwritten_exchanges_total 3.0" in await metrics_page(tap, judged=3)
        assert tap.tally.judged == tap.tally.unwritten == 3
        assert tap.exit_code == 3
        assert "3 are not among the transcripts" in tap.summary()

    run(main)
    (told,) = heards[0].warned
    assert "transcripts can't be written" in told


def test_what_breaks_for_every_exchange_is_told_once_and_all_of_it_is_counted() -> None:
    async def main() -> None:
        warned: list[str] = []
        judging = JudgingSettings(context=CONTEXT)
        settings = LiveSettings(host="127.0.0.1", port=0, upstream="127.0.0.1:9", judging=judging)
        tap = LiveTap(settings, show=print, warn=warned.append)
        for number in range(100):
            tap._judged(JudgedExchange(exchange=f"e{number}", problem="KeyError: 'x'"))
        assert warned == ["e0: KeyError: 'x'"]
        for number in range(100):
            tap._judged(JudgedExchange(exchange="f", problem=f"KeyError: {number}"))
        assert len(warned) <= 10
        assert tap.tally.problems == 200

    run(main)


async def metrics_page(tap: Staged, *, judged: int) -> str:
    """The page once so many exchanges were judged."""
    while tap.tally.judged < judged:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    url = f"http://127.0.0.1:{tap.metrics_port}/metrics"
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())


def test_metrics_count_what_happened() -> None:
    async def main() -> None:
        async with live(picks(A, metadata=False), metrics=("127.0.0.1", 0), every=2) as (tap, _):
            await drive(tap.address, *[(*SHAPES["chat"], ProxyConfig())] * 4)
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


@pytest.mark.parametrize(("kept", "equal"), [(0, True), (0, False), (1 << 20, True), (1 << 20, False)])
def test_metrics_tell_how_many_verdicts_were_remembered(kept: int, equal: bool) -> None:
    """Other bodies are other exchanges only where they are kept, and so judged."""
    request, upstream = SHAPES["chat"]
    bodies = [CHAT if equal else CHAT.replace(b"this", b"this %d" % number) for number in range(6)]
    assert equal or len({*bodies}) == 6

    async def main() -> None:
        redaction = LiveRedaction(body=kept)
        async with live(picks(A), metrics=("127.0.0.1", 0), redaction=redaction) as (tap, _):
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process is found in /proc")
def test_a_judging_process_that_dies_is_started_again() -> None:
    async def main() -> None:
        results: list[JudgedExchange] = []
        troubles: list[str] = []
        process = JudgingProcess(JudgingSettings(context=CONTEXT), results.append, troubles.append)
        await process.start()
        assert process.offer(gathered("a"))
        while not results:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
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
        while not troubles:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
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


def test_a_judging_process_that_can_not_be_kept_running_is_given_up(monkeypatch) -> None:
    async def main() -> None:
        troubles: list[str] = []
        monkeypatch.setattr(sys, "executable", "/bin/false")
        process = JudgingProcess(JudgingSettings(context=CONTEXT), lambda _: None, troubles.append)
        await process.start()
        while process.has_room():
            process.offer(gathered())
            await asyncio.sleep(0.01)
        assert "nothing is judged any more" in troubles[-1]
        assert not process.offer(gathered())
        await process.close()

    run(main)


def test_a_queue_that_is_full_takes_no_more() -> None:
    async def main() -> None:
        settings = JudgingSettings(context=CONTEXT)
        process = JudgingProcess(settings, lambda _: None, lambda _: None, max_waiting=2)
        assert [process.offer(gathered()) for _ in range(3)] == [True, True, False]
        process = JudgingProcess(settings, lambda _: None, lambda _: None, max_bytes=801)
        assert [process.offer(gathered()) for _ in range(3)] == [True, True, False]
        assert process.waiting == 2

    run(main)


def test_what_has_no_turn_before_the_end_is_not_lost_with_the_process(tmp_path: Path) -> None:
    """And what the process has in hand is judged, as it is written."""
    record = tmp_path / "traffic.ndjson"

    async def main() -> None:
        results: list[JudgedExchange] = []
        process = JudgingProcess(JudgingSettings(context=CONTEXT, record=record), results.append, lambda _: None)
        for number in range(200):
            assert process.offer(gathered(str(number)))
        await process.start()
        await process.close(timeout=0.01)
        assert process.late > 0
        assert (process.late + len(results), process.lost) == (200, 0)
        assert len(record.read_bytes().splitlines()) == len(results) > 0

    run(main)


def test_a_tap_that_is_cancelled_at_its_end_says_what_it_left_out(tmp_path: Path) -> None:
    """As by a second signal: what was not judged must not pass for what nothing was found in, and what the process has
    in hand is judged, as it is written."""
    record = tmp_path / "traffic.ndjson"

    async def main() -> None:
        driven = asyncio.Event()
        taps: list[LiveTap] = []

        async def serve() -> None:
            async with live(picks(A), judging=JudgingSettings(context=CONTEXT, record=record)) as (tap, _):
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


def test_an_epp_that_can_not_be_reached_is_told_once_and_counted_always() -> None:
    async def main() -> None:
        async with live(picks(A)) as (tap, heard):
            await tap.epp.close()
            for _ in range(5):
                host, port = tap.address.split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                await reader.read()  # until the tap cuts it
                writer.close()
            (told,) = heard.warned
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
        async with live(picks(A), listen_tls=listen_tls) as (tap, heard):
            for _ in range(3):
                await asyncio.to_thread(connects, tap.address, tls=tls)
            while tap.tap.counts.unopened < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (told,) = heard.warned
        assert "a data plane's connection is cut: " in told
        assert said in told
        assert "3 connections of data planes were cut, as no TLS could be agreed on" in tap.summary()

    run(main)


def test_a_tap_that_looks_for_silent_streams_no_more_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("ours")

    async def main() -> None:
        monkeypatch.setattr("conformance.tap.session.LOOK", 0.01)
        monkeypatch.setattr("conformance.tap.gathering.Gathering.look", fails)
        async with live(picks(A)) as (tap, heard):
            while not heard.warned:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await drive(tap.address, (*SHAPES["chat"], ProxyConfig()))
        assert "RuntimeError('ours')" in heard.warned[0]
        assert tap.exit_code == 3

    run(main)


def test_relaying_goes_on_without_any_judging(monkeypatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        async with live(picks(A)) as (tap, heard):
            while not heard.warned or "any more" not in heard.warned[-1]:
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
        async with live(picks(A), judging=JudgingSettings(context=CONTEXT, record=path)) as (tap, _):
            await drive(tap.address, (*SHAPES["chat"], ProxyConfig()))
            tap.epp.default = picks(A, header=False)
            await drive(tap.address, (*SHAPES["chat"], ProxyConfig()))

    run(main)
    return path


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (reordered, "its entries are not in the order of their numbers (seq)"),
        (without_its_scenario, "not an episode: context.scenario: Field required"),
    ],
)
def test_what_was_edited_into_nonsense_is_not_held_against_the_target(
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
            await drive(address, (*SHAPES["chat"], ProxyConfig()))
            code, rest = await asyncio.to_thread(tap.end)
            assert (code, "1 stream relayed, 1 judged, 0 with a broken rule" in rest) == (0, True), rest
        finally:
            tap.process.kill()
            tap.process.wait()
            tap.process.stdout.close()
            await epp.close()

    run(main)


def test_proxy_and_tap_accuse_an_epp_that_answers_the_headers_only(tmp_path: Path) -> None:
    endpoints, hostile = tmp_path / "endpoints", Path(__file__).parents[2] / "support" / "hostile" / "epps.py"
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    epp = subprocess.Popen([sys.executable, hostile, str(port), str(endpoints), "headers_only", "0"])
    tap = Command("tap", "--listen", "127.0.0.1:0", "--upstream", f"127.0.0.1:{port}", "--deadline", "0.5")
    proxy = None
    try:
        relay = tap.until(r"relaying (\S+)")
        proxy = Command(
            *("proxy", "--listen", "127.0.0.1:0", "--epp", relay, "--pods", "1"),
            *("--endpoints-file", str(endpoints), "--timeout", "1"),
        )
        url = proxy.until(r"^(http://\S+) ")
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", CHAT), timeout=20).close()
        except urllib.error.HTTPError as refused:
            refused.close()
        assert "no answer to request_body" in proxy.until(r"(.*no answer to request_body.*)")
        assert "no answer to request_body" in tap.until(r"(.*no answer to request_body.*)")
        assert proxy.end()[0] == 1
        assert tap.end()[0] == 1
    finally:
        for process in (epp, tap.process, *([proxy.process] if proxy else [])):
            process.kill()
            process.wait()
        for command in (tap, proxy):
            if command is not None:
                command.process.stdout.close()


@pytest.mark.parametrize(("patience", "accused"), [(300.0, False), (0.2, True)])
def test_the_data_planes_patience_says_how_long_an_answer_may_take(patience: float, accused: bool) -> None:
    """A client that goes away after 11 s without an answer accuses nothing where a proxy would wait for 300 s."""
    passed = [0.0]
    printed: list[str] = []
    narrator = Narrator(printed.append, context=context("1.0.0"))
    recorder = Recorder(clock=lambda: time.monotonic_ns() + int(passed[0] * 1e9))

    def later(entry: Entry) -> None:
        if isinstance(entry.event, Message):
            passed[0] += 11

    async def main() -> None:
        epp = await open_epp(default=stays_silent())
        recorder.listen(narrator)
        recorder.listen(later)
        channel = await dial(epp.address)
        request, upstream = SHAPES["chat"]
        if not accused:
            request = replace(request, abort=Abort(at="request"))
        pace = Pace(deadline=patience)
        await run_exchange(channel, request, ProxyConfig(), Stimulus(), upstream, recorder, "x", pace=pace)
        narrator.finished("x")
        await channel.close()
        await epp.close()

    run(main)
    said = "\n".join(printed)
    assert ("✗" in said) is accused
    unpaid = re.search(r"^x  \? request_headers had no answer after [1-9][0-9][.0-9]* s", said, re.MULTILINE)
    assert (unpaid is None) is accused


def test_what_comes_after_an_exchange_is_over_is_not_taken_up_again() -> None:
    printed: list[str] = []
    narrator = Narrator(printed.append, context=context("1.0.0"))
    narrator(Entry(1, 1, Message(exchange="x", stream="x-1", author=Author.EPP, raw=b"late")))
    narrator.stop()
    assert printed == []


def narrated(script: Script, upstream: ScriptedUpstream | None = None) -> str:
    """What the proxy prints of an exchange with an EPP."""
    printed: list[str] = []
    recorder = Recorder()
    narrator = Narrator(printed.append, context=CONTEXT)
    recorder.listen(narrator)

    async def main() -> None:
        epp = await open_epp(default=script)
        channel = await dial(epp.address)
        request, usual = SHAPES["chat"]
        pace = Pace(deadline=0.2)
        await run_exchange(channel, request, ProxyConfig(), Stimulus(), upstream or usual, recorder, "x", pace=pace)
        narrator.finished("x")
        await channel.close()
        await epp.close()

    run(main)
    return "\n".join(printed)


@pytest.mark.parametrize(
    ("last", "shown_as"),
    [("end_of_stream", "end of stream"), ("end_of_stream_without_message", "end_of_stream_without_message")],
)
def test_a_piece_of_body_is_shown_with_the_field_that_was_sent(last: str, shown_as: str) -> None:
    """Envoy reads one of them, and waits on where only the other is set."""
    piece = BodyMutation(streamed_response=StreamedBodyResponse(body=CHAT, **{last: True}))
    answer = ProcessingResponse(request_body=BodyResponse(response=CommonResponse(body_mutation=piece)))
    said = narrated(
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
    said = narrated(does(quiet=True, request_headers=tuple(Raw(message=raw) for raw in raws)))
    assert re.findall(r"epp +streamed_immediate_response: (.*)", said) == [
        "headers_response, HTTP status 429",
        "body_response, 5 bytes, end of stream",
    ]


@pytest.mark.parametrize("metadata", [True, False])
def test_an_exchange_of_too_many_events_is_judged_by_its_beginning(monkeypatch, metadata: bool) -> None:
    """Judging all of them would take memory for each. One that is right is accused of nothing for what is left out."""
    monkeypatch.setattr(narration, "EVENTS", 50)
    said = narrated(picks(A, metadata=metadata), ScriptedUpstream(sse_reply(*[b"{}"] * 100)))
    assert ("✗" in said) is not metadata, said
    assert said.splitlines()[-1] == "x  ? judged by its first 50 events"


@pytest.mark.parametrize("mode", [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED])
def test_a_wait_in_which_the_proxy_stood_still_is_not_held_against_the_epp(mode: BodyMode) -> None:
    printed: list[str] = []
    lag = LagMeter()
    narrator = Narrator(printed.append, context=context("1.0.0", deadline=0.2), lag=lag)
    recorder = Recorder()
    recorder.listen(narrator)

    async def main() -> None:
        epp = await open_epp(default=stays_silent())
        channel = await dial(epp.address)
        request, upstream = SHAPES["chat"]
        config = replace(ProxyConfig(), message_timeout=0.2).with_modes(mode)
        pace = Pace(deadline=0.2 if mode is BodyMode.FULL_DUPLEX_STREAMED else 60)
        lag.woke(time.monotonic(), time.monotonic() + 60)
        await run_exchange(channel, request, config, Stimulus(), upstream, recorder, "x", pace=pace)
        narrator.finished("x")
        await channel.close()
        await epp.close()

    run(main)
    said = "\n".join(printed)
    assert "the suite's own event loop stood still" in said
    assert "✗" not in said
    assert narrator.tally.violating == 0
    assert [name for name, _ in narrator.tally.of(Verdict.ERROR)] == ["ENV-16"]


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
