"""An endpoint picker that behaves for so many streams, and then does what its mode says. A program for the tests.

Usage: hostile_epp.py PORT ENDPOINTS_FILE MODE GOOD_STREAMS
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path

from ext_proc.headers import to_struct
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
from ext_proc.server import ServedStream, serve

KEY = "x-gateway-destination-endpoint"


class Epp:
    """Picks the first endpoint of the file, or the first of the subset."""

    def __init__(self, endpoints: Path, mode: str, good: int) -> None:
        self.endpoints = endpoints
        self.mode = mode
        self.good = good

    async def handle(self, stream: ServedStream) -> None:
        self.good -= 1
        if self.good >= 0:
            await self.behave(stream)
        else:
            await getattr(self, self.mode)(stream)

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
            listed = self.endpoints.read_text().split()
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
            await stream.drain()

    async def resets(self, stream: ServedStream) -> None:
        stream.reset(2)

    async def goaway(self, stream: ServedStream) -> None:
        stream.transport.goaway()
        await self.behave(stream)

    async def dies(self, stream: ServedStream) -> None:
        await stream.recv()
        print("fatal: this is the end", flush=True)
        os._exit(3)


async def main(port: int, endpoints: Path, mode: str, good: int) -> None:
    settings = SERVER_SETTINGS
    if mode == "one_at_a_time":
        mode, settings = "behave", ((Setting.MAX_CONCURRENT_STREAMS, 1),)
    server = await serve("127.0.0.1", port, Epp(endpoints, mode, good).handle, settings=settings)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()
    await server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
