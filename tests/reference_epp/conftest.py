"""What the tests of the reference EPP share: messages of a data plane, a world for one conversation, and a process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from reference_epp.accounting import Accounting
from reference_epp.conversation import Conversation
from reference_epp.endpoints import Pool, parse_endpoint
from reference_epp.epp import Epp
from reference_epp.gauges import Gauges
from reference_epp.picker import Limits
from reference_epp.scraper import Readings
from reference_epp.server import Parts
from reference_epp.versions import VERSIONS

COMPLETION = b'{"model":"m","prompt":"hi"}'
FULL_DUPLEX = 4


class Messages:
    """Builds what a data plane sends. `subset` is a list of strings, `hint` any other JSON value in its place."""

    def request_headers(
        self,
        *extra: tuple[str, bytes],
        end: bool = False,
        mode: int | None = FULL_DUPLEX,
        response_mode: int | None = None,
        without_waiting: bool = False,
        **context: Any,
    ) -> ProcessingRequest:
        message = self._with_context(context)
        message.request_headers.end_of_stream = end
        headers = message.request_headers.headers.headers
        standard = ((":method", b"GET" if end else b"POST"), (":path", b"/v1/completions"))
        for key, value in (*standard, ("content-type", b"application/json"), *extra):
            headers.add(key=key, raw_value=value)
        if mode is not None:
            message.protocol_config.request_body_mode = mode
            message.protocol_config.response_body_mode = mode if response_mode is None else response_mode
            message.protocol_config.send_body_without_waiting_for_header_response = without_waiting
        return message

    def request_body(self, body: bytes = COMPLETION, *, end: bool = True, **context: Any) -> ProcessingRequest:
        message = self._with_context(context)
        message.request_body.body = body
        message.request_body.end_of_stream = end
        return message

    def request_trailers(self) -> ProcessingRequest:
        message = ProcessingRequest()
        message.request_trailers.SetInParent()
        return message

    def response_headers(
        self,
        *extra: tuple[str, bytes],
        end: bool = False,
        status: bytes = b"200",
        content_type: bytes = b"application/json",
        **context: Any,
    ) -> ProcessingRequest:
        message = self._with_context(context)
        message.response_headers.end_of_stream = end
        for key, value in ((":status", status), ("content-type", content_type), *extra):
            message.response_headers.headers.headers.add(key=key, raw_value=value)
        return message

    def response_body(self, body: bytes = b"{}", *, end: bool = True) -> ProcessingRequest:
        message = ProcessingRequest()
        message.response_body.body = body
        message.response_body.end_of_stream = end
        return message

    def response_trailers(self) -> ProcessingRequest:
        message = ProcessingRequest()
        message.response_trailers.SetInParent()
        return message

    def _with_context(self, context: dict[str, Any]) -> ProcessingRequest:
        message = ProcessingRequest()
        if context.get("subset") is not None:
            context["hint"] = context["subset"]
        namespaces = message.metadata_context.filter_metadata
        if "hint" in context:
            self._set(
                namespaces["envoy.lb.subset_hint"].fields["x-gateway-destination-endpoint-subset"], context["hint"]
            )
        if context.get("empty_namespace"):
            namespaces["envoy.lb.subset_hint"].SetInParent()
        if "served" in context:
            self._set(namespaces["envoy.lb"].fields["x-gateway-destination-endpoint-served"], context["served"])
        return message

    def _set(self, value: Any, wanted: Any) -> None:
        match wanted:
            case str():
                value.string_value = wanted
            case bool():
                value.bool_value = wanted
            case int() | float():
                value.number_value = wanted
            case None:
                value.null_value = 0
            case list():
                value.list_value.SetInParent()
                for item in wanted:
                    self._set(value.list_value.values.add(), item)
            case dict():
                value.struct_value.SetInParent()
                for name, item in wanted.items():
                    self._set(value.struct_value.fields[name], item)


@pytest.fixture
def data_plane() -> Messages:
    return Messages()


class World:
    """A pool and all that one EPP shares, without a network."""

    def __init__(self, version: str = "1.0.0", *, parts: Parts | None = None, **options: Any) -> None:
        parts = parts or Parts()
        self.pool, self.accounting, self.readings = Pool(), Accounting(), Readings(60)
        limits = Limits(endpoints=options.pop("max_endpoints", 2))
        self.picker = parts.picker(self.pool, self.readings, self.accounting, limits)
        self.epp = Epp(picker=self.picker, accounting=self.accounting, version=VERSIONS[version], **options)
        self._conversation = parts.conversation
        self.streams = 0

    def endpoints(self, *texts: str) -> None:
        self.pool.update(tuple(parse_endpoint(text) for text in texts), synced=True)

    def load(self, text: str, queued: float = 0.0, kv_cache: float = 0.0, **more: Any) -> None:
        self.readings.put(parse_endpoint(text), Gauges(queued=queued, running=0, kv_cache=kv_cache, **more))

    def open(self, connection: int = 1) -> Conversation:
        self.streams += 1
        return self._conversation(self.epp, self.streams, connection)

    def talk(self, *messages: ProcessingRequest, connection: int = 1) -> list[Any]:
        """All that comes back when these messages come one after the other, until the stream is closed."""
        conversation = self.open(connection)
        said: list[Any] = []
        for message in messages:
            said += conversation.receive(message)
            if said and not isinstance(said[-1], ProcessingResponse):
                break
        conversation.finished()
        return said


@pytest.fixture
def world() -> Callable[..., World]:
    return World


def _destination(answer: ProcessingResponse) -> tuple[str | None, str | None]:
    kind = answer.WhichOneof("response")
    headers = getattr(answer, kind).response.header_mutation.set_headers if kind != "immediate_response" else []
    header = next(
        (o.header.raw_value.decode() for o in headers if o.header.key == "x-gateway-destination-endpoint"), None
    )
    namespace = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    metadata = namespace["x-gateway-destination-endpoint"].string_value or None
    return header, metadata


@pytest.fixture
def destination() -> Callable[[ProcessingResponse], tuple[str | None, str | None]]:
    """Header and metadata of an answer."""
    return _destination


class Process(SimpleNamespace):
    """A running `reference-epp`: `address`, further addresses by name, `pid`, `file`, `signal()`, which sends SIGTERM,
    and `stop()`, which sends it unless that was done, and gives the log."""

    address: str
    pid: int
    file: Path
    stop: Callable[[], list[dict[str, Any]]]


@contextlib.contextmanager
def _process(directory: Path, content: str | None, *arguments: str) -> Iterator[Process]:
    file = directory / "endpoints.txt"
    if content is not None:
        file.write_text(content)
    command = [
        sys.executable,
        "-m",
        "reference_epp",
        "--listen",
        "127.0.0.1:0",
        "--endpoints-file",
        str(file),
        *arguments,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log: list[str] = []
    assert process.stderr is not None
    assert process.stdout is not None
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    reader.start()

    signalled: list[bool] = []

    def signal() -> None:
        signalled.append(True)
        process.terminate()

    def stop() -> list[dict[str, Any]]:
        if process.poll() is None and not signalled:
            signal()
        assert process.wait(20) == 0
        reader.join(20)
        return [json.loads(line) for line in log]

    try:
        line = process.stdout.readline()
        assert line, "".join(log)
        yield Process(file=file, pid=process.pid, stop=stop, signal=signal, **json.loads(line))
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        reader.join(20)
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def run_epp(tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[Process]]:
    """Start `reference-epp` with this content of its endpoints file (None: no file) and these arguments."""
    return lambda content, *arguments: _process(tmp_path, content, *arguments)
