"""The process: command line, gRPC, TLS, health, the endpoints file, metrics, logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ext_proc.http2.tls import self_signed
from ext_proc.messages import HealthCheckRequest, HealthCheckResponse, ProcessingRequest, ProcessingResponse
from reference_epp import settings
from reference_epp.server import Parts, running
from reference_epp.settings import Settings
from reference_epp.tls import Tls

pytestmark = pytest.mark.program

A, B = "127.0.0.1:18001", "127.0.0.1:18002"
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
HEALTH = "/grpc.health.v1.Health/"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
DEADLINE = 20


def stream(channel: Any) -> Any:
    method = channel.stream_stream(PROCESS, ProcessingRequest.SerializeToString, ProcessingResponse.FromString)
    return method(timeout=DEADLINE)


async def exchange(channel: Any, *messages: ProcessingRequest) -> list[ProcessingResponse]:
    """All answers to `messages`, sent at once and half-closed."""
    call = stream(channel)
    try:
        for message in messages:
            await call.write(message)
        await call.done_writing()
    except asyncio.InvalidStateError:
        pass  # the EPP has ended the stream
    return [answer async for answer in call]


async def health(channel: Any, service: str) -> int:
    check = channel.unary_unary(HEALTH + "Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
    return int((await check(HealthCheckRequest(service=service), timeout=DEADLINE)).status)


def options(tmp_path: Path, content: str | None = f"{A}\n{B}\n", **more: Any) -> Settings:
    file = tmp_path / "endpoints"
    if content is not None:
        file.write_text(content)
    return Settings(listen=("127.0.0.1", 0), endpoints_file=file, **more)


@contextlib.asynccontextmanager
async def epp(wanted: Settings, parts: Parts | None = None) -> AsyncIterator[Any]:
    async with (
        running(wanted, parts or Parts()) as addresses,
        grpc.aio.insecure_channel(addresses["address"]) as channel,
    ):
        yield channel


# -- as a command


def test_the_command_serves_says_where_and_stops(
    run_epp: Callable[..., Any], data_plane: Any, destination: Any
) -> None:
    async def talk(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            (answer,) = await exchange(channel, data_plane.request_headers(end=True))
            assert destination(answer)[0] == A
            call = stream(channel)  # what Envoy does: reset as soon as the answer is there
            await call.write(data_plane.request_headers(end=True))
            assert destination(await call.read())[0] == A
            call.cancel()
            call = stream(channel)
            await call.write(data_plane.request_headers())
            call.cancel()
            (answer,) = await exchange(channel, data_plane.request_headers(end=True))

    with run_epp(f"{A}\n", "--metrics-port", "0", "--health-port", "0") as process:
        asyncio.run(talk(process.address))
        with urllib.request.urlopen(f"http://{process.metrics_address}/metrics", timeout=DEADLINE) as page:
            text = page.read().decode()
        log = process.stop()
    assert f'reference_epp_picked_total{{endpoint="{A}"}} 3.0' in text
    assert 'reference_epp_requests_total{answer="endpoint"} 3.0' in text
    assert "reference_epp_pool_size 1.0" in text
    assert [line for line in log if line["level"] == "error" or "traceback" in line] == []
    assert {line["message"] for line in log} >= {"pool changed", "stopped"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--endpoints-file is required"),
        (["--endpoints-file", "x", "--fault", "no-heade"], "did you mean 'no-header'?"),
        (["--endpoints-file", "x", "--variant", "slo"], "did you mean 'slow'?"),
        (["--endpoints-file", "x", "--fault", "a", "--variant", "b"], "not allowed with"),
        (["--endpoints-file", "x", "--listen", "here"], "'here' is neither HOST:PORT nor unix:/PATH"),
        (["--endpoints-file", "x", "--listen", "a:70000"], "is neither HOST:PORT nor unix:/PATH"),
        (["--endpoints-file", "x", "--objective", "a"], "'a' is not NAME=PRIORITY"),
        (["--endpoints-file", "x", "--scrape-interval", "0s"], "not a duration"),
        (["--endpoints-file", "x", "--kv-threshold", "80"], "'80' is not a share"),
        (["--endpoints-file", "x", "--max-endpoints", "0"], "not a whole number above zero"),
        (["--endpoints-file", "x", "--protocol-version", "2"], "invalid choice"),
        (["--endpoints-file", "x", "--tls-cert", "a"], "belong together"),
        (["--endpoints-file", "x", "--tls", "self-signed", "--tls-cert", "a", "--tls-key", "b"], "exclude each other"),
        (["--endpoints-file", "x", "--tls-client-ca", "a"], "needs --tls"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reference_epp.__main__ import main

    monkeypatch.setattr(sys, "argv", ["reference-epp", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error(run_epp: Callable[..., Any], tmp_path: Path) -> None:
    with run_epp("") as process:
        command = [sys.executable, "-m", "reference_epp", "--endpoints-file", "x", "--listen", process.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert "reference-epp: can't serve" in done.stderr


def test_lists_are_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from reference_epp.__main__ import main

    for option in ("--list-faults", "--list-variants"):
        monkeypatch.setattr(sys, "argv", ["reference-epp", option])
        main()
        listed = json.loads(capsys.readouterr().out)
        assert len({item["name"] for item in listed}) == len(listed) > 20


def test_a_reader_who_has_seen_enough_of_a_list_is_no_error() -> None:
    command = [sys.executable, "-m", "reference_epp", "--list-faults"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 0


def test_settings_are_read() -> None:
    text = (
        "--listen [::1]:0 --endpoints-file e --protocol-version next --model a --model b --objective x=-2 "
        "--scrape-interval 20ms --staleness 1 --queue-threshold 9 --kv-threshold 0.5 --max-endpoints 3"
    )
    wanted = settings.parse(text.split())
    assert isinstance(wanted, Settings)
    assert wanted.listen == ("::1", 0)
    assert (wanted.version.name, wanted.models, wanted.objectives) == ("next", {"a", "b"}, {"x": -2})
    assert (wanted.scrape_interval, wanted.staleness) == (0.02, 1.0)
    assert (wanted.queue_threshold, wanted.kv_threshold, wanted.max_endpoints) == (9, 0.5, 3)


# -- on the wire


def test_the_pool_follows_the_file(tmp_path: Path, data_plane: Any, destination: Any) -> None:
    wanted = options(tmp_path, f"{A}\n")

    async def act() -> None:
        async with epp(wanted) as channel:
            seen: str | None = None
            wanted.endpoints_file.write_text(f"{B}\n")
            while seen != B:
                (answer,) = await exchange(channel, data_plane.request_headers(end=True))
                seen = destination(answer)[0]
                assert seen in (A, B)
            wanted.endpoints_file.write_text("")
            while not answer.HasField("immediate_response"):
                (answer,) = await exchange(channel, data_plane.request_headers(end=True))
            assert answer.immediate_response.status.code == 503

    asyncio.run(act())


def test_a_refusal_ends_the_stream_with_ok(tmp_path: Path, data_plane: Any) -> None:
    async def act() -> None:
        async with epp(options(tmp_path, "")) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True))
            assert (await call.read()).immediate_response.status.code == 503
            assert await call.read() is grpc.aio.EOF
            assert await call.code() == grpc.StatusCode.OK

    asyncio.run(act())


def test_an_unknown_mode_ends_the_stream_with_a_status(tmp_path: Path, data_plane: Any) -> None:
    async def act() -> None:
        async with epp(options(tmp_path)) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True, mode=42))
            assert await call.code() == grpc.StatusCode.FAILED_PRECONDITION

    asyncio.run(act())


def test_patience_ends_when_no_body_comes(tmp_path: Path, data_plane: Any, destination: Any) -> None:
    async def act() -> None:
        async with epp(options(tmp_path)) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(mode=None))
            assert destination(await call.read())[0] is not None
            await call.write(data_plane.request_body())
            assert (await call.read()).WhichOneof("response") == "request_body"
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    asyncio.run(act())


def test_large_bodies_pass(tmp_path: Path, data_plane: Any) -> None:
    body = b"x" * 6_000_000
    headers = data_plane.request_headers(("content-type", b"text/plain"))

    async def act() -> None:
        async with epp(options(tmp_path)) as channel:
            answers = await exchange(channel, headers, data_plane.request_body(body))
            pieces = [item.request_body.response.body_mutation.streamed_response for item in answers[1:]]
            assert b"".join(piece.body for piece in pieces) == body

    asyncio.run(act())


def test_many_streams_at_once_do_not_mix(tmp_path: Path, data_plane: Any, destination: Any) -> None:
    async def act() -> None:
        async with epp(options(tmp_path)) as channel:
            wanted = [A if index % 2 else B for index in range(200)]
            calls = [stream(channel) for _ in wanted]
            for call, text in zip(calls, wanted, strict=True):
                await call.write(data_plane.request_headers(subset=[text]))
            for index, call in enumerate(calls):
                await call.write(data_plane.request_body(b'{"n": %d}' % index))
            for index, (call, text) in enumerate(zip(calls, wanted, strict=True)):
                assert destination(await call.read()) == (text, text)
                assert (
                    await call.read()
                ).request_body.response.body_mutation.streamed_response.body == b'{"n": %d}' % index
                call.cancel()

    asyncio.run(act())


# -- health


def test_health_tells_alive_from_ready(tmp_path: Path) -> None:
    wanted = options(tmp_path, None)

    async def act() -> None:
        async with epp(wanted) as channel:
            watch = channel.unary_stream(
                HEALTH + "Watch", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
            )(HealthCheckRequest(service="readiness"), timeout=DEADLINE)
            assert (await watch.read()).status == NOT_SERVING
            assert await health(channel, "liveness") == SERVING
            for service in ("", "readiness", SERVICE):
                assert await health(channel, service) == NOT_SERVING
            wanted.endpoints_file.write_text("# empty\n")
            assert (await watch.read()).status == SERVING
            for service in ("", "liveness", "readiness", SERVICE):
                assert await health(channel, service) == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await health(channel, "inference-extension")
            assert error.value.code() == grpc.StatusCode.NOT_FOUND
            watch.cancel()

    asyncio.run(act())


def test_health_has_a_port_of_its_own_too(tmp_path: Path) -> None:
    async def act() -> None:
        wanted = options(tmp_path, tls=Tls(), health_port=0)
        async with (
            running(wanted, Parts()) as addresses,
            grpc.aio.insecure_channel(addresses["health_address"]) as channel,
        ):
            assert await health(channel, "readiness") == SERVING

    asyncio.run(act())


# -- TLS


def test_a_self_signed_certificate_is_served(tmp_path: Path, data_plane: Any, destination: Any) -> None:
    async def act() -> None:
        async with running(options(tmp_path, tls=Tls()), Parts()) as addresses:
            host, port = addresses["address"].split(":")
            pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
            credentials = grpc.ssl_channel_credentials(pem.encode())
            async with grpc.aio.secure_channel(addresses["address"], credentials) as channel:
                (answer,) = await exchange(channel, data_plane.request_headers(end=True))
                assert destination(answer)[0] is not None

    asyncio.run(act())


def test_client_certificates_can_be_demanded(tmp_path: Path, data_plane: Any) -> None:
    server = self_signed(tmp_path, names=("127.0.0.1",))
    client = self_signed(tmp_path, names=("client",), stem="client")
    tls = Tls(certificate=server.certificate, key=server.key, client_ca=client.certificate)
    certificate = server.certificate.read_bytes()
    client_key, client_certificate = client.key.read_bytes(), client.certificate.read_bytes()

    async def act() -> None:
        async with running(options(tmp_path, tls=tls), Parts()) as addresses:
            known = grpc.ssl_channel_credentials(certificate, client_key, client_certificate)
            async with grpc.aio.secure_channel(addresses["address"], known) as channel:
                assert len(await exchange(channel, data_plane.request_headers(end=True))) == 1
            async with grpc.aio.secure_channel(
                addresses["address"], grpc.ssl_channel_credentials(certificate)
            ) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await health(channel, "liveness")

    asyncio.run(act())


def test_a_certificate_that_is_replaced_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_epp.tls.RELOAD_SECONDS", 0.02)
    made = self_signed(tmp_path, names=("127.0.0.1",))
    files = {"key": made.key, "certificate": made.certificate}
    first = made.certificate.read_text()

    async def act() -> None:
        async with running(options(tmp_path, tls=Tls(**files)), Parts()) as addresses:
            host, port = addresses["address"].split(":")

            async def served() -> str:
                return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))

            assert await served() == first
            made.key.write_bytes(b"half")
            second = self_signed(tmp_path, names=("127.0.0.1",)).certificate.read_text()
            while (seen := await served()) != second:
                assert seen == first
                await asyncio.sleep(0.02)

    asyncio.run(act())


# -- the end


def test_open_streams_may_end_after_the_signal(run_epp: Callable[..., Any], data_plane: Any) -> None:
    async def act(process: Any) -> None:
        async with grpc.aio.insecure_channel(process.address) as channel:
            watch = channel.unary_stream(
                HEALTH + "Watch", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
            )(HealthCheckRequest(service="readiness"), timeout=DEADLINE)
            assert (await watch.read()).status == SERVING
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True))
            assert (await call.read()).HasField("request_headers")
            process.signal()
            assert (await watch.read()).status == NOT_SERVING
            await call.write(data_plane.response_headers())
            assert (await call.read()).HasField("response_headers")
            await call.write(data_plane.response_body(b"last"))
            assert (await call.read()).response_body.response.body_mutation.streamed_response.body == b"last"
            await call.done_writing()
            assert await call.code() == grpc.StatusCode.OK

    with run_epp(f"{A}\n", "--stop-deadline", "60s") as process:
        asyncio.run(act(process))
        log = process.stop()
    assert log[-1]["message"] == "stopped"
    assert "streams were still open at the deadline" not in {line["message"] for line in log}


def test_streams_that_do_not_end_are_ended_at_the_deadline(run_epp: Callable[..., Any], data_plane: Any) -> None:
    async def act(process: Any) -> None:
        async with grpc.aio.insecure_channel(process.address) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True))
            assert (await call.read()).HasField("request_headers")
            process.signal()
            assert await call.code() != grpc.StatusCode.DEADLINE_EXCEEDED

    with run_epp(f"{A}\n", "--stop-deadline", "50ms") as process:
        asyncio.run(act(process))
        log = process.stop()
    assert "streams were still open at the deadline" in {line["message"] for line in log}


# -- limits, logs and the reporter


def test_a_body_that_is_too_large_gets_413(tmp_path: Path, data_plane: Any) -> None:
    async def act() -> None:
        async with epp(options(tmp_path, max_body=100_000)) as channel:
            for sizes, code in (([60_000, 40_000], None), ([60_000, 40_001], 413), ([100_001], 413)):
                call = stream(channel)
                await call.write(data_plane.request_headers(("content-type", b"text/plain")))
                for index, size in enumerate(sizes):
                    await call.write(data_plane.request_body(b"x" * size, end=code is None and index == 1))
                answer = await call.read()
                assert (answer.immediate_response.status.code or None) == code
                call.cancel()

    asyncio.run(act())


def test_the_reporter_is_configured_on_the_command_line(run_epp: Callable[..., Any], data_plane: Any) -> None:
    text = (
        "{apiVersion: config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1, kind: EndpointPickerConfig, "
        "plugins: [{type: request-attribute-reporter, parameters: {attributes: "
        "[{key: {name: x-cost}, expression: usage.total_tokens}]}}]}"
    )

    async def act(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            *_, last = await exchange(
                channel,
                data_plane.request_headers(("x-request-id", b"id-1"), end=True),
                data_plane.response_headers(),
                data_plane.response_body(b'{"usage": {"total_tokens": 42}}'),
            )
            assert last.dynamic_metadata.fields["envoy.lb"].struct_value.fields["x-cost"].number_value == 42

    with run_epp(f"{A}\n", "--config-text", text, "--log-level", "debug") as process:
        asyncio.run(act(process.address))
        log = process.stop()
    assert [line["request_id"] for line in log if line["message"] == "picked"] == ["id-1"]
