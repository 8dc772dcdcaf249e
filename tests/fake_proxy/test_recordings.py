"""The recordings of real Envoy, replayed against the machine: same request, same answers, same bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from google.protobuf import text_format

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from fake_proxy.actions import (
    ClientData,
    ClientHeaders,
    ClientTrailers,
    CloseStream,
    Closing,
    OpenUpstream,
    SendMessage,
)
from fake_proxy.client import DataArrives, HeadersArrive, HttpRequest, TrailersArrive, arrivals
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.machine import Machine
from fake_proxy.stimulus import Stimulus, subset_hint

RECORDINGS = Path(__file__).parent / "recordings"
MODES = {"fds": BodyMode.FULL_DUPLEX_STREAMED, "buffered": BodyMode.BUFFERED, "streamed": BodyMode.STREAMED}
POOL = tuple(f"127.0.0.{host}:8000" for host in (11, 12, 13, 14))
SERVICE_TIME = "x-envoy-upstream-service-time"


@dataclass
class Recording:
    name: str
    sent: list[bytes]
    """Envoy's messages."""
    answers: list[tuple[int, bytes]]
    """The EPP's messages, each with the number of messages Envoy had sent before it."""


def parse(path: Path) -> Recording:
    sent: list[bytes] = []
    answers: list[tuple[int, bytes]] = []
    for block in re.split(r"(?m)^### ", path.read_text())[1:]:
        head, _, rest = block.partition("\n")
        if " recv " in head:
            wire, _, text = rest.partition("\n")
            raw = bytes.fromhex(wire.removeprefix("# wire: "))
            assert text_format.Parse(text, ProcessingRequest()) == ProcessingRequest.FromString(raw)
            sent.append(raw)
        elif " send " in head:
            answers.append((len(sent), text_format.Parse(rest, ProcessingResponse()).SerializeToString()))
    return Recording(path.stem, sent, answers)


def normal(raw: bytes) -> bytes:
    """`raw` with its maps in order, which protobuf leaves open; nothing else changes."""
    return ProcessingRequest.FromString(raw).SerializeToString(deterministic=True)


def request_of(recording: Recording) -> tuple[HttpRequest, Stimulus]:
    """The client's request and the dynamic metadata, from Envoy's own messages."""
    messages = [ProcessingRequest.FromString(raw) for raw in recording.sent]
    headers = {h.key: h.raw_value for h in messages[0].request_headers.headers.headers}
    own = tuple(
        (h.key.encode(), h.raw_value)
        for h in messages[0].request_headers.headers.headers
        if not h.key.startswith(":") and h.key not in ("x-forwarded-proto", "x-request-id", "content-length")
    )
    body = b"".join(m.request_body.body for m in messages if m.WhichOneof("request") == "request_body")
    trailers = tuple(
        (h.key.encode(), h.raw_value)
        for m in messages
        if m.WhichOneof("request") == "request_trailers"
        for h in m.request_trailers.trailers.headers
    )
    config = ProxyConfig()
    hinted = messages[0].metadata_context.filter_metadata
    metadata = {}
    if config.subset_namespace in hinted:
        values = hinted[config.subset_namespace].fields[config.subset_key].list_value.values
        metadata = subset_hint(config, [value.string_value for value in values])
    request = HttpRequest(
        method=headers[":method"].decode(),
        path=headers[":path"].decode(),
        authority=headers[":authority"].decode(),
        headers=own,
        body=body,
        trailers=trailers,
        request_id=headers["x-request-id"].decode(),
        source=messages[0].attributes["envoy.filters.http.ext_proc"].fields["source.address"].string_value,
    )
    return request, Stimulus(metadata=metadata)


def config_of(recording: Recording) -> ProxyConfig:
    mode = MODES.get(recording.name.split("-")[0], BodyMode.FULL_DUPLEX_STREAMED)
    config = replace(ProxyConfig(pool=POOL), request_body_mode=mode, response_body_mode=mode)
    if recording.name == "attrs":
        config = replace(
            config,
            request_attributes=("request.method", "request.path", "source.address", "xds.cluster_name"),
            response_attributes=(
                "response.code",
                "response.code_details",
                "upstream.address",
                "xds.upstream_host_metadata",
            ),
        )
    reported = any(b"x-gateway-destination-endpoint-served" in raw for raw in recording.sent)
    return replace(config, report_served=reported)


class Replay:
    """Feeds the machine: the EPP's answers as soon as Envoy had sent what preceded them, the upstream likewise."""

    def __init__(self, recording: Recording) -> None:
        request, stimulus = request_of(recording)
        self.recording = recording
        self.machine = Machine(config_of(recording), stimulus, source=request.source)
        self.sent: list[bytes] = []
        self.answers = list(recording.answers)
        self.closings: list[Closing] = []
        self.status: bytes | None = None
        self.body = b""
        self.attempts: list[str] = []
        self.upstream_body = b""
        self.response = [ProcessingRequest.FromString(raw) for raw in recording.sent]
        self.response = [m for m in self.response if m.WhichOneof("request").startswith("response")]
        self.pending: list[tuple[str, object]] = []
        for arrival in arrivals(request):
            match arrival:
                case HeadersArrive(headers, end):
                    self.do(self.machine.request_headers(headers, end))
                case DataArrives(data, end, _):
                    self.do(self.machine.request_data(data, end))
                case TrailersArrive(headers):
                    self.do(self.machine.request_trailers(headers))
        self.settle()

    def do(self, actions) -> None:
        for action in actions:
            match action:
                case SendMessage(_, raw):
                    self.sent.append(raw)
                case CloseStream(closing):
                    self.closings.append(closing)
                case OpenUpstream():
                    self.attempts.append(action.endpoint)
                    self.upstream_body = action.body
                    self.pending = self.upstream(action)
                case ClientHeaders(headers, _):
                    self.status = dict(headers)[b":status"]
                case ClientData(data, _):
                    self.body += data
                case ClientTrailers(_):
                    pass

    def upstream(self, attempt: OpenUpstream) -> list[tuple[str, object]]:
        """What the model servers of the recording do: some are dead, some answer 503, one answers as recorded."""
        host = attempt.endpoint.split(":")[0].rsplit(".", 1)[1]
        headers = dict(attempt.headers)
        if host == "14":
            return [("failed", attempt.attempt)]
        if headers.get(f"x-be-status-{host}".encode()) == b"503":
            return [("headers", (attempt.attempt, [(b":status", b"503")], False))]
        if not self.response:
            return []  # the client left before
        steps: list[tuple[str, object]] = []
        for message in self.response:
            match message.WhichOneof("request"):
                case "response_headers":
                    entries = message.response_headers.headers.headers
                    listed = [(h.key.encode(), h.raw_value) for h in entries if h.key != SERVICE_TIME]
                    service = next(int(h.raw_value) for h in entries if h.key == SERVICE_TIME)
                    steps.append(("headers", (attempt.attempt, listed, False, service)))
                case "response_body":
                    body = message.response_body
                    if body.body:
                        steps.append(("data", (attempt.attempt, body.body)))
                    if body.end_of_stream:
                        steps.append(("end", attempt.attempt))
                case "response_trailers":
                    entries = message.response_trailers.trailers.headers
                    trailers = [(h.key.encode(), h.raw_value) for h in entries]
                    steps.append(("trailers", (attempt.attempt, trailers)))
        return steps

    def settle(self) -> None:
        while self.answers or self.pending:
            merged = self.merged()
            if self.answers and self.answers[0][0] <= len(self.sent) and not merged:
                self.do(self.machine.epp_message(self.answers.pop(0)[1]))
            elif self.pending:
                kind, value = self.pending.pop(0)
                match kind:
                    case "failed":
                        self.do(self.machine.upstream_failed(value, "connect-failed"))
                    case "headers":
                        self.do(self.machine.upstream_headers(*value))
                    case "data":
                        self.do(self.machine.upstream_data(*value, False))
                    case "end":
                        self.do(self.machine.upstream_data(value, b"", True))
                    case "trailers":
                        self.do(self.machine.upstream_trailers(*value))
            else:
                pytest.fail(f"Envoy sent more before the EPP answered: {len(self.sent)} messages, {self.answers[0][0]}")
        if self.recording.name.endswith("abort"):
            self.do(self.machine.client_gone())

    def merged(self) -> bool:
        """STREAMED: whether body and end came in one message, so had both arrived before the headers' answer."""
        body = [m.response_body for m in self.response if m.WhichOneof("request") == "response_body"]
        return (
            bool(body and body[0].body and body[0].end_of_stream)
            and bool(self.pending)
            and self.pending[0][0] != ("headers")
        )


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.txtpb")), ids=lambda path: path.stem)
def test_the_machine_sends_and_ends_as_envoy_did(path: Path) -> None:
    recording = parse(path)
    replayed = Replay(recording)
    assert [normal(raw).hex() for raw in replayed.sent] == [normal(raw).hex() for raw in recording.sent]
    assert [len(raw) for raw in replayed.sent] == [len(raw) for raw in recording.sent]
    aborted = recording.name.endswith("abort")
    assert replayed.closings == [Closing.OWN if aborted else Closing.ANSWERED]
    assert replayed.machine.done
    if not aborted:
        assert replayed.status == b"200"
        bodies = [m.response_body.body for m in replayed.response if m.WhichOneof("request") == "response_body"]
        assert replayed.body == b"".join(bodies)


@pytest.mark.parametrize(
    ("name", "attempts"),
    [
        ("fds-retry", ["127.0.0.11:8000", "127.0.0.12:8000"]),
        ("buffered-retry", ["127.0.0.11:8000", "127.0.0.12:8000"]),
        ("fds-deadfirst", ["127.0.0.14:8000", "127.0.0.13:8000"]),
        ("buffered-deadfirst", ["127.0.0.14:8000", "127.0.0.13:8000"]),
        ("10001-503-first-two", ["127.0.0.11:8000", "127.0.0.12:8000", "127.0.0.13:8000"]),
    ],
)
def test_retries_walk_the_list_as_with_envoy(name: str, attempts: list[str]) -> None:
    assert Replay(parse(RECORDINGS / f"{name}.txtpb")).attempts == attempts
