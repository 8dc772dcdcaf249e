"""An endpoint picker that behaves for so many streams, and then does what its mode says. A program for the tests.

Usage: epps.py PORT ENDPOINTS_FILE MODE GOOD_STREAMS
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wire import WIRES

from ext_proc import grpc
from ext_proc.headers import to_struct
from ext_proc.http2 import frames
from ext_proc.http2.connection import SERVER_SETTINGS
from ext_proc.http2.frames import Setting
from ext_proc.messages import (
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    ProcessingRequest,
    ProcessingResponse,
    TrailersResponse,
)
from ext_proc.protocol import SUBSET, SUBSET_NAMESPACE
from ext_proc.server import ServedStream, serve

KEY = "x-gateway-destination-endpoint"


def _with(change: Callable[[ProcessingResponse], None]) -> Callable[[ProcessingResponse], bytes]:
    """A framed message: the right answer, changed."""

    def framed(answer: ProcessingResponse) -> bytes:
        change(answer)
        return grpc.frame(answer.SerializeToString())

    return framed


def _immediate(answer: ProcessingResponse) -> None:
    answer.immediate_response.status.code = 200
    answer.immediate_response.body = b"<script>alert(1)</script>\x1b[2J]]>" * 1000
    answer.immediate_response.details = "<img src=x onerror=alert(1)>\x1b[31m|`\r\n" * 50


def _headers(count: int, name: str, value: bytes) -> Callable[[ProcessingResponse], None]:
    def change(answer: ProcessingResponse) -> None:
        for number in range(count):
            option = answer.request_headers.response.header_mutation.set_headers.add()
            option.header.key, option.header.raw_value = name.format(number), value

    return change


def _deep(answer: ProcessingResponse) -> bytes:
    """A struct in a struct, deeper than any parser goes, written by hand."""
    raw = b""
    for _ in range(3000):
        field = b"\x0a\x01a" + _part(2, _part(5, raw))  # key, value: a struct
        raw = _part(1, field)
    return grpc.frame(answer.SerializeToString() + _part(8, raw))


def _part(number: int, raw: bytes) -> bytes:
    size, length = len(raw), b""
    while size > 127:
        length, size = length + bytes((size & 127 | 128,)), size >> 7
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + raw


def _metadata(**fields: Any) -> Callable[[ProcessingResponse], None]:
    return lambda answer: answer.dynamic_metadata.CopyFrom(to_struct({"envoy.lb": fields}))


BYTES: dict[str, Callable[[ProcessingResponse], bytes]] = {
    "compressed": lambda answer: grpc.frame(answer.SerializeToString(), compressed=1),
    "cut-short": lambda answer: grpc.frame(answer.SerializeToString(), length=100_000),
    "huge-claim": lambda answer: grpc.frame(answer.SerializeToString(), length=2**32 - 1),
    "no-message": lambda _: grpc.frame(b"\xff" * 100),
    "empty": lambda _: grpc.frame(b"") * 1000,
    "twice": lambda answer: grpc.frame(answer.SerializeToString()) * 2,
    "unknown-fields": lambda answer: grpc.frame(answer.SerializeToString() + b"\xf8\x7f\x01" * 300_000),
    "invalid-utf8": lambda answer: grpc.frame(answer.SerializeToString().replace(b"gateway", b"gat\xff\xfe\xfd\xfc")),
    "deep-struct": _deep,
    "huge-metadata": _with(_metadata(**{KEY: "127.0.0.1:1," * 200_000})),
    "nan": _with(_metadata(**{KEY: float("nan"), "inf": float("inf")})),
    "immediate-html": _with(_immediate),
    "many-headers": _with(_headers(20_000, "x-{}", b"1")),
    "giant-header": _with(_headers(1, "x-giant", b"y" * 2_000_000)),
    "crlf-header": _with(_headers(1, "x-a\r\nx-b: 1", b"1\r\nset-cookie: a")),
    "nul-header": _with(_headers(1, "x-nul", b"a\x00b\x1b[2J")),
    "pseudo-header": _with(_headers(1, ":path", b"/admin<script>")),
}
"""What is said in place of an answer to headers: a function of the right one gives bytes with their gRPC prefix."""


def computing(seconds: float) -> None:
    """Take so many seconds of processor time, all of it of the first core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


class Epp:
    """Picks the first endpoint of the file, or the first of the subset."""

    def __init__(self, endpoints: Path, mode: str, good: int) -> None:
        self.endpoints = endpoints
        self.mode = mode
        self.good = good
        self.latest = b""
        self.bodies: dict[int, bytes] = {}
        self.end: asyncio.TimerHandle | None = None

    async def handle(self, stream: ServedStream) -> None:
        self.good -= 1
        if self.good >= 0:
            await self.behave(stream)
        else:
            mode, _, what = self.mode.partition(":")
            await getattr(self, mode)(stream, *([what] if what else []))

    async def behave(self, stream: ServedStream) -> None:
        while (raw := await stream.recv()) is not None:
            answer = self.answer(ProcessingRequest.FromString(raw))
            stream.send(answer.SerializeToString())
            if answer.WhichOneof("response") == "immediate_response":
                return

    def answer(self, request: ProcessingRequest) -> ProcessingResponse:
        kind = request.WhichOneof("request")
        answer = ProcessingResponse()
        if kind == "request_headers":
            listed = [one for one in self.endpoints.read_text().split() if one in self.hint(request, one)]
            if not listed:
                answer.immediate_response.status.code = 503
                return answer
            common = CommonResponse(clear_route_cache=True)
            option = common.header_mutation.set_headers.add()
            option.header.key, option.header.raw_value = KEY, listed[0].encode()
            answer.request_headers.CopyFrom(HeadersResponse(response=common))
            answer.dynamic_metadata.CopyFrom(to_struct({"envoy.lb": {KEY: listed[0]}}))
        elif kind == "response_headers":
            answer.response_headers.CopyFrom(HeadersResponse())
        elif kind.endswith("_body"):
            body, common = getattr(request, kind), CommonResponse()
            common.body_mutation.streamed_response.body = body.body
            common.body_mutation.streamed_response.end_of_stream = body.end_of_stream
            getattr(answer, kind).CopyFrom(BodyResponse(response=common))
        else:
            getattr(answer, kind).CopyFrom(TrailersResponse())
        return answer

    def hint(self, request: ProcessingRequest, any_of: str) -> list[str]:
        """The subset that the request is for; `any_of` alone where it names none."""
        metadata = request.metadata_context.filter_metadata
        if SUBSET_NAMESPACE not in metadata or SUBSET not in metadata[SUBSET_NAMESPACE].fields:
            return [any_of]
        hinted = metadata[SUBSET_NAMESPACE].fields[SUBSET].list_value.values
        return [one.string_value for one in hinted]

    # -- what it may do instead ----------------------------------------------------------------------------------------

    async def elsewhere(self, stream: ServedStream) -> None:
        """Picks an address that it was told by its environment, and that is in no pool."""
        self.endpoints = Path(os.environ["ELSEWHERE"])
        await self.behave(stream)

    async def removes_folder(self, stream: ServedStream) -> None:
        shutil.rmtree(self.endpoints.parent, ignore_errors=True)
        stream.end(0)

    async def makes_folder(self, stream: ServedStream) -> None:
        if self.endpoints.is_file():
            self.endpoints.unlink()
            self.endpoints.mkdir()
        stream.end(0)

    async def links_files(self, stream: ServedStream) -> None:
        """Puts links where the suite writes, to a file outside its folder, and a FIFO."""
        outside = Path(os.environ["OUTSIDE"])
        report = outside.parent / "r"
        names = [self.endpoints.parent / name for name in (".endpoints.new", self.endpoints.name)]
        names += [report / name for name in ("report.json", "report.html", "evidence.ndjson.gz")]
        for name in names:
            name.unlink(missing_ok=True)
            name.symlink_to(outside / "file")
        (report / "junit.xml").unlink(missing_ok=True)
        os.mkfifo(report / "junit.xml")
        stream.end(0)

    async def makes_fifos(self, stream: ServedStream) -> None:
        """Puts FIFOs where the suite writes."""
        for name in (".endpoints.new", self.endpoints.name):
            self.endpoints.with_name(name).unlink(missing_ok=True)
            os.mkfifo(self.endpoints.with_name(name))
        stream.end(0)

    async def links_folder(self, stream: ServedStream) -> None:
        """Puts a link to a folder of the user in place of the folder of its endpoints file."""
        folder = self.endpoints.parent
        folder.rename(f"{folder}.was")
        folder.symlink_to(os.environ["OUTSIDE"])
        os._exit(0)

    async def silent(self, stream: ServedStream) -> None:
        async for _ in stream:
            pass
        await asyncio.get_running_loop().create_future()

    async def headers_only(self, stream: ServedStream) -> None:
        while (raw := await stream.recv()) is not None:
            request = ProcessingRequest.FromString(raw)
            if request.WhichOneof("request").endswith("_headers"):
                stream.send(self.answer(request).SerializeToString())

    async def closes(self, stream: ServedStream) -> None:
        stream.end(0)

    async def garbage(self, stream: ServedStream) -> None:
        stream.send_data(b"\xff" * 64)

    async def floods(self, stream: ServedStream) -> None:
        await stream.recv()
        while True:  # until the stream is reset
            for _ in range(100):
                stream.send(ProcessingResponse(request_headers=HeadersResponse()).SerializeToString())
            await asyncio.sleep(0)  # else nothing leaves while the window has room, and what is seen is silence
            await stream.drain()

    async def resets(self, stream: ServedStream) -> None:
        stream.reset(2)

    async def goaway(self, stream: ServedStream) -> None:
        stream.transport.goaway()
        await self.behave(stream)

    async def spins(self, _: ServedStream) -> None:
        while True:
            pass

    async def computes(self, stream: ServedStream, seconds: str) -> None:
        """Answer after so many seconds of processor time, all of it of the first core."""
        computing(float(seconds))
        await self.behave(stream)

    async def hangs(self, stream: ServedStream) -> None:
        await stream.recv()
        time.sleep(3600)  # noqa: ASYNC251 - the whole program hangs

    async def stops_itself(self, stream: ServedStream) -> None:
        await stream.recv()
        os.kill(os.getpid(), signal.SIGSTOP)

    async def drips(self, stream: ServedStream) -> None:
        for byte in grpc.frame(bytes(1000)):
            stream.send_data(bytes((byte,)))
            await asyncio.sleep(0.05)

    async def endless_body(self, stream: ServedStream) -> None:
        raw = await stream.recv()
        stream.send(self.answer(ProcessingRequest.FromString(raw)).SerializeToString())
        answer = ProcessingResponse(request_body=BodyResponse())
        answer.request_body.response.body_mutation.streamed_response.body = bytes(60_000)
        while True:
            stream.send(answer.SerializeToString())
            await stream.drain()

    async def repeats(self, stream: ServedStream, times: str) -> None:
        """Says each answer so many times at once."""
        while (raw := await stream.recv()) is not None:
            stream.send_data(
                grpc.frame(self.answer(ProcessingRequest.FromString(raw)).SerializeToString()) * int(times)
            )

    async def mixes_up(self, stream: ServedStream) -> None:
        """Says the request id of the stream before in its answers."""
        while (raw := await stream.recv()) is not None:
            request = ProcessingRequest.FromString(raw)
            answer = self.answer(request)
            for header in request.request_headers.headers.headers:
                if header.key == "x-request-id":
                    option = answer.request_headers.response.header_mutation.set_headers.add()
                    option.header.key, option.header.raw_value = "x-asked-by", self.latest or header.raw_value
                    self.latest = header.raw_value
            stream.send(answer.SerializeToString())

    async def mixes_up_responses(self, stream: ServedStream) -> None:
        """Gives each response the body of the one before of the same length."""
        while (raw := await stream.recv()) is not None:
            request = ProcessingRequest.FromString(raw)
            body = request.response_body.body
            if body:
                request.response_body.body = self.bodies.get(len(body), body)
                self.bodies[len(body)] = body
            stream.send(self.answer(request).SerializeToString())

    async def reads_slowly(self, stream: ServedStream) -> None:
        """Is right, and takes 64 KiB of a request every tenth of a second."""
        stream.transport.hold(stream.stream_id, True)
        answering = asyncio.ensure_future(self.behave(stream))
        while not (await asyncio.wait([answering], timeout=0.1))[0]:
            stream.transport.hold(stream.stream_id, False)
            stream.transport.hold(stream.stream_id, True)
        await answering

    async def wire(self, stream: ServedStream, what: str) -> None:
        """Writes what no server should on the connection, and is right otherwise."""
        await stream.recv()
        stream.transport.write_raw(WIRES[what](stream.stream_id))
        await asyncio.get_running_loop().create_future()

    async def breaks(self, stream: ServedStream) -> None:
        await stream.recv()
        stream.transport.abort()

    async def bytes_of(self, stream: ServedStream, what: str) -> None:
        """Says a message that is wrong in its framing or its contents."""
        raw = await stream.recv()
        stream.send_data(BYTES[what](self.answer(ProcessingRequest.FromString(raw))))
        async for _ in stream:
            pass

    async def html(self, stream: ServedStream) -> None:
        stream.respond_http(502, ((b"content-type", b"text/html"),), b"<html><script>alert(1)</script></html>")

    async def too_large(self, stream: ServedStream) -> None:
        stream.respond_http(431)

    async def content_type(self, stream: ServedStream) -> None:
        stream.respond_http(200, ((b"content-type", b"application/json"),), b"{}")

    async def trailers_only(self, stream: ServedStream) -> None:
        stream.end(13, "<script>alert(1)</script>\x1b[31m\n| `" * 200)

    async def no_trailers(self, stream: ServedStream) -> None:
        await self.answer_one(stream)
        stream.end_without_trailers()

    async def answers_after_its_end(self, stream: ServedStream) -> None:
        raw = await stream.recv()
        stream.end(0)
        late = grpc.frame(self.answer(ProcessingRequest.FromString(raw)).SerializeToString())
        stream.transport.write_raw(frames.frame(frames.DATA, 0, stream.stream_id, late) * 100)

    async def giant_trailers(self, stream: ServedStream) -> None:
        await self.answer_one(stream)
        stream.end(0, "x", [(b"x-%d" % number, b"y" * 1000) for number in range(2000)])

    async def answer_one(self, stream: ServedStream) -> None:
        raw = await stream.recv()
        stream.send(self.answer(ProcessingRequest.FromString(raw)).SerializeToString())

    async def dies(self, stream: ServedStream) -> None:
        await stream.recv()
        print("fatal: this is the end", flush=True)
        os._exit(3)

    async def dies_when_idle(self, stream: ServedStream) -> None:
        """Is right, and ends half a second after the last stream began."""
        if self.end is not None:
            self.end.cancel()
        self.end = asyncio.get_running_loop().call_later(0.5, os._exit, 3)
        await self.behave(stream)


async def main(port: int, endpoints: Path, mode: str, good: int) -> None:
    settings = SERVER_SETTINGS
    if mode == "one_at_a_time":
        mode, settings = "behave", ((Setting.MAX_CONCURRENT_STREAMS, 1),)
    elif mode == "reads_slowly":
        settings = ((Setting.INITIAL_WINDOW_SIZE, 65_535),)
    server = await serve("127.0.0.1", port, Epp(endpoints, mode, good).handle, settings=settings)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()
    await server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
