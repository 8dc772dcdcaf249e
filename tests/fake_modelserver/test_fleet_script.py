"""Answers that the fleet's owner gives to each request, and response bodies at the owner's pace."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from fake_modelserver import Fleet, PodSpec, Served
from fake_modelserver.messages import Request, Response


def test_the_owner_answers_what_it_wants_to_and_leaves_the_rest_to_the_pod(run):
    async def test():
        served: list[Served] = []

        def script(request: Request) -> Response | None:
            return Response(status=418, body=b"no") if request.header(b"x-mine") else None

        async with Fleet(script=script, on_request=served.append) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            mine = await client.get(f"http://{pod.endpoint}/v1/models", headers={"x-mine": "1"})
            other = await client.get(f"http://{pod.endpoint}/v1/models")
        assert (mine.status_code, mine.content) == (418, b"no")
        assert other.status_code == 200
        assert [one.status for one in served] == [418, 200]

    run(test())


def test_each_chunk_but_the_first_waits_for_the_owner(run):
    async def test():
        waited: list[int] = []

        async def paced(through: int) -> None:
            waited.append(through)

        def script(_: Request) -> Response:
            return Response(chunks=(b"ab", b"c", b"def"), paced=paced)

        async with Fleet(script=script) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            answer = await client.get(f"http://{pod.endpoint}/")
        assert answer.content == b"abcdef"
        assert waited == [2, 3]

    run(test())


def test_an_answer_that_breaks_ends_the_connection_and_why_is_told(run):
    async def test():
        async def paced(_: int) -> None:
            raise RuntimeError("ours")

        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        script = Response(chunks=(b"ab", b"c"), paced=paced)
        async with Fleet(script=lambda _: script) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            with pytest.raises(httpx.HTTPError):
                await asyncio.wait_for(client.get(f"http://{pod.endpoint}/"), 30)
        assert [str(one) for one in told] == ["ours"]

    run(test())
