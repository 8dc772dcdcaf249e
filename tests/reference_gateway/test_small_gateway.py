"""The small gateway, right and as a command: against scripted EPPs and model servers that are really there."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from programs import needs_envoy

from conformance.requirements.catalogue import Catalogue
from fake_epp import FakeEpp, Immediate, Script, SetHeader, closes, does, open_epp, picks, resets, stays_silent
from fake_modelserver import Fleet, Pod, PodSpec
from fake_proxy.client import Chunk, HttpRequest
from real_envoy import HttpResponse, find_envoy, send_request
from real_envoy.kept import KeptConnection
from reference_gateway import epp_client
from reference_gateway.envoy import BROKEN, EnvoySettings, ProxyConfig, bootstrap
from reference_gateway.faults import FAULTS, VARIANTS
from reference_gateway.http import ClientSide, listen
from reference_gateway.relay import BackendPool, Gateway, Settings

BODY = b'{"model": "fake-model", "prompt": "hello", "max_tokens": 4}'
REQUEST = HttpRequest(path="/v1/completions", body=(Chunk(data=BODY[:20]), Chunk(data=BODY[20:])))
MODES = ["FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED", "NONE"]


@dataclasses.dataclass
class Stage:
    """A gateway with its EPPs and pods. `served` names the pods in the order in which requests came."""

    address: str
    epps: list[FakeEpp]
    pods: list[Pod]
    served: list[str]

    async def ask(self, **changes: object) -> HttpResponse:
        return await send_request(self.address, dataclasses.replace(REQUEST, **changes))


@contextlib.asynccontextmanager
async def staged(*, pools: int = 1, **settings: object) -> AsyncIterator[Stage]:
    served: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(Fleet(on_request=lambda one: served.append(one.pod)))
        pods = [await fleet.add(PodSpec(name=f"{name}{number}")) for number in range(pools) for name in "abc"]
        epps = [await open_epp() for _ in range(pools)]
        for epp in epps:
            stack.push_async_callback(epp.close)
        made = tuple(
            BackendPool(epp=epp.address, endpoints=tuple(pod.endpoint for pod in pods[3 * number : 3 * number + 3]))
            for number, epp in enumerate(epps)
        )
        gateway = Gateway(Settings(pools=made, **settings))
        server = await listen("127.0.0.1", 0, ClientSide(handler=gateway.handle))
        stack.push_async_callback(gateway.close)
        stack.callback(server.close)
        host, port = server.sockets[0].getsockname()
        yield Stage(f"{host}:{port}", epps, pods, served)


def run(main) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


class TestRight:
    @pytest.mark.parametrize("http", [1, 2])
    @pytest.mark.parametrize("mode", MODES)
    def test_the_pick_is_followed_in_every_body_mode(self, http, mode) -> None:
        async def main() -> None:
            async with staged(mode=mode) as stage:
                stage.epps[0].default = picks(stage.pods[1].endpoint)
                for changes in (
                    {},
                    {"method": "GET", "path": "/v1/models", "body": b""},
                    {"trailers": ((b"x", b"1"),)},
                ):
                    got = await stage.ask(http=http, **changes)
                    assert (got.status, got.complete) == (200, True)
                assert stage.served == ["b0"] * 3

        run(main)

    def test_a_used_connection_and_head(self) -> None:
        async def main() -> None:
            async with staged() as stage:
                stage.epps[0].default = picks(stage.pods[0].endpoint)
                async with KeptConnection(stage.address) as kept:
                    for method in ("GET", "HEAD", "GET"):
                        got = await kept.send(HttpRequest(method=method, path="/v1/models"))
                        assert got.status == 200
                        assert bool(got.body) == (method == "GET")

        run(main)

    def test_the_list_is_walked(self) -> None:
        async def main() -> None:
            async with staged() as stage:
                await stage.pods[0].refuse()
                ends = [pod.endpoint for pod in stage.pods]
                stage.epps[0].default = picks("bogus", ends[0], f" {ends[2]}", ends[1])
                assert (await stage.ask()).status == 200
                assert stage.served == ["c0"]
                stage.epps[0].default = picks(ends[0])
                assert (await stage.ask()).status == 503

        run(main)

    def test_a_refusal_reaches_the_client(self) -> None:
        async def main() -> None:
            async with staged() as stage:
                refusal = Immediate(code=429, body=b"busy", headers=(SetHeader(name="retry-after", value=b"1"),))
                stage.epps[0].default = does(quiet=True, request_headers=(refusal,))
                for http in (1, 2):
                    got = await stage.ask(http=http)
                    assert (got.status, got.body) == (429, b"busy")
                    assert (b"retry-after", b"1") in got.headers
                assert stage.served == []

        run(main)

    @pytest.mark.parametrize(("opens", "status"), [(False, 500), (True, 200)])
    def test_without_an_epp(self, opens, status, monkeypatch) -> None:
        monkeypatch.setattr(epp_client.Talk, "patience", 0.2)

        async def main() -> None:
            async with staged(fails_open=opens) as stage:
                for script in (resets(), closes(14), stays_silent(), Script(quiet=True)):
                    stage.epps[0].default = script
                    assert (await stage.ask()).status == status
                await stage.epps[0].close()
                assert (await stage.ask()).status == status

        run(main)

    def test_the_second_pool(self) -> None:
        async def main() -> None:
            async with staged(pools=2) as stage:
                first, second = stage.pods[:3], stage.pods[3:]
                stage.epps[0].default = picks(first[0].endpoint, first[1].endpoint)
                stage.epps[1].default = picks(second[2].endpoint)
                await first[0].refuse()
                assert (await stage.ask()).status == 200
                await first[1].refuse()
                assert (await stage.ask()).status == 200
                assert stage.served == ["b0", "c1"]
                assert [len(epp.asked) for epp in stage.epps] == [2, 1]

        run(main)

    def test_what_is_not_http_ends_the_connection(self) -> None:
        async def main() -> None:
            async with staged() as stage:
                host, _, port = stage.address.rpartition(":")
                for sent in (b"\x00\x01\x02\r\n\r\n", b"PRI * HTTP/9\r\n\r\nxx", b"GET / HTTP/1.1\r\nhost"):
                    reader, writer = await asyncio.open_connection(host, int(port))
                    writer.write(sent)
                    writer.write_eof()
                    async with asyncio.timeout(5):
                        await reader.read()
                    writer.close()
                stage.epps[0].default = picks(stage.pods[0].endpoint)
                assert (await stage.ask()).status == 200

        run(main)


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "reference_gateway", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)


class TestCommand:
    @pytest.mark.program
    def test_every_fault_names_what_it_breaks(self) -> None:
        catalogue = Catalogue.load()
        listed = json.loads(command("--list-faults").stdout)
        assert [one["name"] for one in listed] == [one.name for one in FAULTS]
        for one in listed:
            for name in (one["breaks"], *one["also_breaks"]):
                assert catalogue.get(name).role == "data-plane"
                assert catalogue.get(name).applies(one["version"])
            assert one["effect"] in ("warn", catalogue.effect(one["breaks"], one["version"]))  # or is only warned of
            assert one["why"]
        assert {one["breaks"] for one in listed} == {
            one.id for one in catalogue if one.role == "data-plane" and one.testable
        }
        assert [one["breaks"] for one in json.loads(command("--list-variants").stdout)] == [None] * len(VARIANTS)

    def test_names_are_there_once(self) -> None:
        names = [one.name for one in (*FAULTS, *VARIANTS)]
        assert len(set(names)) == len(names)

    @pytest.mark.program
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--epp", "127.0.0.1:1", "--endpoints", "127.0.0.1:2", "--fault", "x"), "there is no 'x'"),
            (("--epp", "127.0.0.1:1"), "give --epp and --endpoints"),
            ((), "give --epp and --endpoints"),
            (("--epp", "nowhere", "--endpoints", "127.0.0.1:2"), "nowhere: not an address"),
            (("--epp", "127.0.0.1:1", "--endpoints", "127.0.0.1:2", "--listen", "8080"), "8080: not an address"),
        ],
    )
    def test_wrong_use(self, arguments, said) -> None:
        ran = command(*arguments)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr

    @pytest.mark.program
    def test_a_port_that_is_taken(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            where = "{}:{}".format(*taken.getsockname())
            ran = command("--listen", where, "--epp", "127.0.0.1:1", "--endpoints", "127.0.0.1:2")
        assert ran.returncode == 1
        assert f"{where} can't be listened on" in ran.stderr
        assert "Traceback" not in ran.stderr


class TestEnvoys:
    def test_each_fault_of_an_envoy_has_its_configuration(self) -> None:
        used = {one.envoy for one in (*FAULTS, *VARIANTS) if one.envoy is not None}
        assert used == set(BROKEN)

    @pytest.mark.program
    @needs_envoy
    @pytest.mark.parametrize("name", BROKEN)
    def test_envoy_takes_the_configuration(self, name, tmp_path) -> None:
        broken = BROKEN[name]
        config = dataclasses.replace(ProxyConfig(), pool=("127.0.0.1:8000",), **broken.config)
        settings = EnvoySettings(epp="127.0.0.1:9002", config=config, routing=broken.routing)
        file = tmp_path / "bootstrap.json"
        file.write_text(json.dumps(bootstrap("127.0.0.1:10000", [settings], broken)))
        options = ("--mode", "validate", "-c", str(file), "-l", "error", "--disable-hot-restart")
        ran = subprocess.run([find_envoy().path, *options], capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
