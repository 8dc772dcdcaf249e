"""The reference EPP with one bad habit: `python habits.py HABIT MARK ARGUMENT…`.

The stimulus that most habits wait for is a request with the method OPTIONS. MARK is a file that remembers what happened
in earlier lives.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ext_proc import grpc
from ext_proc.messages import ProcessingRequest, ProcessingResponse
from reference_epp.conversation import Conversation
from reference_epp.endpoints import Endpoint
from reference_epp.metrics_client import MetricsConnection
from reference_epp.picker import Picker, Request
from reference_epp.scraper import Scraper
from reference_epp.server import Parts, serve
from reference_epp.service import Service
from reference_epp.settings import Settings, parse

CROWD = 4
"""Open streams that are too many for the habit `crowded`."""

KEEPS = 0.3
"""Seconds for which the habit `keeps-by-hint` remembers its pool, for each subset hint apart."""

LONG = 1.0
"""Seconds that a page may take before the habit `stuck-at-a-page` is stuck."""

MANY = 12
"""Streams of a life that goes well, where the trouble comes by itself."""


class Late(Picker):
    """Learns of its pool late: `habit` says when."""

    habit = ""
    kept: ClassVar[dict[Any, tuple[float, Any]]] = {}
    endpoints: tuple[Endpoint, ...] | None = None

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        now = self.pool.endpoints
        if self.habit == "refreshes-afterwards":
            before, Late.endpoints = Late.endpoints, now
            now = now if before is None else before
        elif self.habit == "reads-once":
            Late.endpoints = Late.endpoints or now
            now = Late.endpoints
        elif self.habit == "keeps-by-hint":
            until, kept = self.kept.get(request.subset, (0.0, ()))
            now = kept if time.monotonic() < until else now
            if now is not kept:
                self.kept[request.subset] = (time.monotonic() + KEEPS, now)
        return now if request.subset is None else [one for one in now if one in request.subset]


class Reads(Scraper):
    """Reads metrics without a time limit: meanwhile it answers nothing, or never again."""

    habit = ""
    pages = 0

    async def fetch(self, endpoint: Endpoint, connection: MetricsConnection) -> bytes:
        Reads.pages += 1
        try:
            if self.habit == "stuck-at-a-page":
                stuck = asyncio.get_running_loop().call_later(LONG, time.sleep, 3600)
                page = await super().fetch(endpoint, connection)
                stuck.cancel()
                return page
            return await super().fetch(endpoint, connection)
        finally:
            Reads.pages -= 1


class Hostile(Service):
    """Does `habit` when the stimulus is seen."""

    habit = ""
    mark = Path()
    seen = 0
    streams = 0

    async def process(self, stream: Any) -> None:
        if self.habit == "raises":
            raise RuntimeError("no table of models")
        Hostile.streams += 1
        try:
            await super().process(stream)
        finally:
            Hostile.streams -= 1

    async def send_all(self, stream: Any, actions: list[Any]) -> bool:
        if self.habit == "headers-last":
            answers = [one for one in actions if isinstance(one, ProcessingResponse)]
            headers = [one for one in answers if one.HasField("request_headers")]
            actions = [*(one for one in actions if one not in headers), *headers]
        return await super().send_all(stream, actions)

    async def send(self, stream: Any, answer: Any) -> None:
        if self.habit == "unready" and self.seen > MANY:
            await asyncio.Event().wait()
        if self.habit == "slow":
            await asyncio.sleep(0.1)
        if self.habit == "compresses":
            stream.send_data(grpc.frame(gzip.compress(answer.SerializeToString()), compressed=1))
        else:
            await super().send(stream, answer)

    async def read(self, stream: Any, messages: Any, conversation: Conversation) -> Any:
        message = await super().read(stream, messages, conversation)
        if isinstance(message, ProcessingRequest) and message.HasField("request_headers"):
            Hostile.seen += 1
            if self.habit == "crowded":
                await self.crowded()
            while self.habit == "waits-for-pages" and Reads.pages:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            pool = self.epp.picker.pool
            while self.habit == "queues" and pool.endpoints and self.epp.picker.saturated(pool.endpoints):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            headers = message.request_headers.headers.headers
            if any(one.key == ":method" and (one.raw_value or one.value) in (b"OPTIONS", "OPTIONS") for one in headers):
                await self.stimulated()
            if self.habit == "dies-once" and self.seen > MANY and not self.mark.exists():
                self.mark.touch()
                say("a bad day")
                os.kill(os.getpid(), signal.SIGKILL)
        return message

    async def crowded(self) -> None:
        if Hostile.streams >= CROWD:
            say("fatal: too many streams")
            os._exit(43)
        await asyncio.sleep(0.05)

    async def stimulated(self) -> None:
        match self.habit:
            case "crash":
                say("panic: OPTIONS is not a method that I know")
                os._exit(42)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(3600)  # noqa: ASYNC251 - the whole program hangs
            case "silent":
                await asyncio.Event().wait()
            case "flood":
                for _ in range(100):
                    sys.stdout.write("flood " * 170_000 + "\n")
                say("the end of the flood")


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    habit, mark, *arguments = sys.argv[1:]
    Hostile.habit, Hostile.mark = habit, Path(mark)
    settings = parse(arguments)
    assert isinstance(settings, Settings)
    match habit:
        case "forks":
            children = [
                subprocess.Popen(["sleep", "3600"]),
                subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 3600"]),
                subprocess.Popen(["sleep", "3600"], start_new_session=True),
            ]
            with Hostile.mark.open("a") as file:
                file.writelines(f"{child.pid}\n" for child in children)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            asyncio.run(_forever(settings))
        case "late":  # not before somebody made the file
            Hostile.mark.with_suffix(".waiting").touch()
            while not Hostile.mark.exists():
                time.sleep(0.01)
        case "port-taken":
            with Hostile.mark.open("a") as file:
                file.write(f"{settings.listen[1]}\n")
            if len(Hostile.mark.read_text().splitlines()) < 3:
                sys.exit(f"listen tcp {settings.listen[1]}: bind: address already in use")
        case "late-once" | "late-again" if lives(Hostile.mark) in ((2,) if habit == "late-once" else range(2, 99)):
            time.sleep(3600)  # the second start of it takes too long
        case "never-binds":
            sys.exit(f"listen tcp {settings.listen[1]}: bind: address already in use")
    Late.habit = Reads.habit = habit
    if habit in ("waits-for-pages", "stuck-at-a-page"):
        Reads.limit = None
    asyncio.run(serve(settings, Parts().exchange(Hostile, Late, Reads)))


def lives(mark: Path) -> int:
    """How often it was started, this time included."""
    with mark.open("a") as file:
        file.write("started\n")
    return len(mark.read_text().splitlines())


async def _forever(settings: Settings) -> None:
    from reference_epp.server import running

    async with running(settings, Parts()):
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
