"""Real Envoy in each variant of the field: it accepts the configuration, and follows the EPP as the variant says."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from envoy_help import SmallEpp, model_servers
from parity_epp import picked
from programs import needs_envoy

from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.messages import ProcessingMode
from ext_proc.record import Recorder, StreamOpened, header
from ext_proc.server import serve
from fake_proxy.client import HttpRequest
from fake_proxy.config import BodyMode, Ending, ProtocolConfigForm, ProxyConfig
from real_envoy import (
    VARIANTS,
    EnvoySettings,
    HttpResponse,
    Routing,
    render,
    send_request,
    start_envoy,
    subset_header_value,
    validate,
)
from real_envoy.settings import SUBSET_HEADER

pytestmark = pytest.mark.program

POST = HttpRequest(body=b'{"model": "m"}')


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def _through(settings: EnvoySettings, *requests: HttpRequest) -> list[HttpResponse]:
    """The answers to `requests`, through their own Envoy."""
    async with await start_envoy({"gw": settings}) as envoy:
        return [await send_request(envoy.addresses["gw"], request) for request in requests]


@needs_envoy
def test_envoy_accepts_every_variant_in_one_process() -> None:
    pool = ("127.0.0.1:8000", "[::1]:8000")
    gateways = {name: variant.settings(epp="127.0.0.1:9", pool=pool) for name, variant in VARIANTS.items()}
    tls = ClientTls(verify=False)
    gateways["tls"] = VARIANTS["override-host"].settings(epp="127.0.0.1:9", pool=pool, epp_tls=tls, authority="epp:9")
    _run(validate(gateways))


@needs_envoy
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("http", [1, 2])
def test_one_endpoint_is_followed_in_every_variant(name: str, http: Any) -> None:
    async def test() -> None:
        async with model_servers(200, 200, 200) as pool:
            epp = SmallEpp(pick=pool[1])
            server = await serve("127.0.0.1", 0, epp.handle)
            settings = VARIANTS[name].settings(epp=server.address, pool=pool)
            get = HttpRequest(method="GET", http=http)
            for answer in await _through(settings, dataclasses.replace(POST, http=http), get):
                assert (answer.status, answer.body) == (200, pool[1].encode())
            config = epp.messages[0].protocol_config
            assert config.request_body_mode == settings.config.request_body_mode
            if settings.config.report_served:
                assert epp.metadata("response_headers")["x-gateway-destination-endpoint-served"] == pool[1]
            await server.close()

    _run(test())


@needs_envoy
@pytest.mark.parametrize(
    ("name", "status", "walks"),
    [("override-host", 200, True), ("original-dst-header", 503, False), ("original-dst-metadata", 503, False)],
)
def test_lists_are_walked_only_by_override_host(name: str, status: int, walks: bool) -> None:
    async def test() -> None:
        async with model_servers(503, 200) as pool:
            epp = SmallEpp(pick=",".join(pool))
            server = await serve("127.0.0.1", 0, epp.handle)
            (answer,) = await _through(VARIANTS[name].settings(epp=server.address, pool=pool), POST)
            assert answer.status == status
            served = epp.metadata("response_headers").get("x-gateway-destination-endpoint-served")
            assert served == (pool[1] if walks else None)
            await server.close()

    _run(test())


@needs_envoy
@pytest.mark.parametrize("hint", [["127.0.0.1:1", "127.0.0.1:2"], [], "127.0.0.1:1", None, {"a": [1.0]}])
def test_the_subset_hint_of_a_request_reaches_the_epp_as_it_is(hint: Any) -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            server = await serve("127.0.0.1", 0, epp.handle)
            request = dataclasses.replace(POST, headers=((SUBSET_HEADER.encode(), subset_header_value(hint)),))
            await _through(VARIANTS["override-host"].settings(epp=server.address, pool=pool), request)
            key = "x-gateway-destination-endpoint-subset"
            if hint is None:  # a null value is no metadata to Envoy
                assert not epp.metadata("request_headers", "envoy.lb.subset_hint").get(key)
            else:
                assert epp.metadata("request_headers", "envoy.lb.subset_hint") == {key: hint}
            sent = [header.key for header in epp.messages[0].request_headers.headers.headers]
            assert SUBSET_HEADER not in sent
            await server.close()

    _run(test())


@needs_envoy
@pytest.mark.parametrize("verify", [False, True])
def test_the_epp_may_speak_tls(verify: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            identity = self_signed(tmp_path, names=("epp.example",) if verify else ())
            server = await serve("127.0.0.1", 0, epp.handle, tls=identity)
            tls = ClientTls(verify=False)
            if verify:
                tls = ClientTls(ca=identity.certificate, server_name="epp.example")
            settings = VARIANTS["override-host"].settings(epp=server.address, pool=pool, epp_tls=tls)
            (answer,) = await _through(settings, POST)
            assert (answer.status, answer.body) == (200, pool[0].encode())
            await server.close()

    _run(test())


@needs_envoy
def test_a_certificate_that_does_not_verify_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            server = await serve("127.0.0.1", 0, epp.handle, tls=self_signed(tmp_path, names=("other.example",)))
            tls = ClientTls(ca=tmp_path / "server.crt", server_name="epp.example")
            (answer,) = await _through(
                VARIANTS["override-host"].settings(epp=server.address, pool=pool, epp_tls=tls), POST
            )
            assert (answer.status, epp.messages) == (500, [])
            await server.close()

    _run(test())


@needs_envoy
def test_half_close_is_envoys_graceful_close() -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            server = await serve("127.0.0.1", 0, epp.handle)
            config = ProxyConfig(pool=pool, ending=Ending.HALF_CLOSE)
            (answer,) = await _through(EnvoySettings(epp=server.address, config=config), POST)
            assert answer.complete
            async with asyncio.timeout(5):
                await epp.ended.wait()
            assert epp.ends[0] == "half-closed"
            await server.close()

    _run(test())


@needs_envoy
def test_metadata_steers_in_full_duplex_until_the_body_is_answered() -> None:
    """The metadata-first exception: an answer to the headers without a pick, the pick beside the body's answer."""

    async def test() -> None:
        async with model_servers(200, 200) as pool:
            epp = SmallEpp(pick=pool[1], first=lambda talk, _: picked(talk, header=None))
            server = await serve("127.0.0.1", 0, epp.handle)
            (answer,) = await _through(VARIANTS["override-host"].settings(epp=server.address, pool=pool), POST)
            assert answer.body == pool[1].encode()
            await server.close()

    _run(test())


def test_settings_say_what_a_real_envoy_can_not_do() -> None:
    pool = ("127.0.0.1:8000",)
    with pytest.raises(ValueError, match="name them"):
        EnvoySettings(epp="127.0.0.1:9")
    with pytest.raises(ValueError, match="resolve 'epp' first"):
        EnvoySettings(epp="epp:9", config=ProxyConfig(pool=pool))
    with pytest.raises(ValueError, match="'pod:8000' is not an IP address with a port"):
        EnvoySettings(epp="127.0.0.1:9", config=ProxyConfig(pool=("pod:8000",)))
    with pytest.raises(ValueError, match="does not drain"):
        EnvoySettings(epp="127.0.0.1:9", config=ProxyConfig(pool=pool, ending=Ending.DRAIN))
    with pytest.raises(ValueError, match="imitate other Envoys"):
        EnvoySettings(epp="127.0.0.1:9", config=ProxyConfig(pool=pool, protocol_config=ProtocolConfigForm.ABSENT))


def test_gateways_of_one_envoy_agree_on_the_ending() -> None:
    ways = {
        ending.value: EnvoySettings(
            epp="127.0.0.1:9", routing=Routing.ORIGINAL_DST_HEADER, config=ProxyConfig(ending=ending)
        )
        for ending in (Ending.ENVOY, Ending.HALF_CLOSE)
    }
    with pytest.raises(ValueError, match="must agree"):
        render(ways)
    with pytest.raises(ValueError, match="at least one gateway"):
        render({})


def test_envoys_names_for_the_body_modes_are_ours() -> None:
    assert {mode.name: int(mode) for mode in BodyMode}.items() <= dict(ProcessingMode.BodySendMode.items()).items()


@needs_envoy
@pytest.mark.parametrize("name", ["override-host", "subset"])
def test_a_pool_may_change_while_envoy_runs(name: str) -> None:
    async def test() -> None:
        async with model_servers(200, 200) as pool:
            epp = SmallEpp(pick=pool[1])
            server = await serve("127.0.0.1", 0, epp.handle)
            settings = dataclasses.replace(VARIANTS[name].settings(epp=server.address, pool=pool), changing_pool=True)
            async with await start_envoy({"gw": settings}) as envoy:
                served = []
                for endpoints in ((), pool, pool[:1], pool[1:]):
                    await envoy.set_pool("gw", endpoints)
                    served.append((await send_request(envoy.addresses["gw"], POST)).body.decode())
            assert served == ["no healthy upstream", pool[1], pool[0], pool[1]]
            await server.close()

    _run(test())


@needs_envoy
def test_the_name_of_an_exchange_passes_the_epp_unseen_and_each_stream_may_have_its_own_connection() -> None:
    async def test() -> None:
        async with model_servers(200) as pool:
            epp = SmallEpp(pick=pool[0])
            heads: list[StreamOpened] = []
            recorder = Recorder()
            recorder.listen(lambda entry: heads.append(entry.event) if isinstance(entry.event, StreamOpened) else None)
            server = await serve("127.0.0.1", 0, epp.handle, observe=lambda _: ("x", recorder))
            settings = dataclasses.replace(
                VARIANTS["override-host"].settings(epp=server.address, pool=pool),
                exchange_header="x-test-exchange",
                epp_metadata=((b"x-share", b"50%"),),
                fresh_connections=True,
            )
            requests = [dataclasses.replace(POST, headers=((b"x-test-exchange", b"e-%d" % n),)) for n in range(3)]
            assert [answer.status for answer in await _through(settings, *requests)] == [200] * 3
            assert [header(head.headers, b"x-test-exchange") for head in heads] == [b"e-0", b"e-1", b"e-2"]
            assert {header(head.headers, b"x-share") for head in heads} == {b"50%"}
            assert len({head.connection for head in heads}) == 3
            sent = {one.key for one in epp.messages[0].request_headers.headers.headers}
            assert "x-test-exchange" not in sent
            await server.close()

    _run(test())
