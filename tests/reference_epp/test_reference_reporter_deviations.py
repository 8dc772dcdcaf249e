"""Faults and variants of the reporter: each one does otherwise than the correct EPP with some configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ext_proc.messages import ProcessingResponse
from reference_epp import faults, variants  # noqa: F401  # declares them
from reference_epp.deviations import FAULTS, VARIANTS
from reference_epp.reporter.config import ConfigError
from reference_epp.server import Parts

NAMES = [one.name for one in (*FAULTS.values(), *VARIANTS.values()) if one.claims.get("reporter")]
USAGE = {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42}
KEY = {"key": {"name": "x"}}


def config(*attributes: Any) -> str:
    plugin = {"type": "request-attribute-reporter", "parameters": {"attributes": list(attributes)}}
    version = "config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1"
    return json.dumps({"apiVersion": version, "kind": "EndpointPickerConfig", "plugins": [plugin]})


def configs() -> Iterator[str]:
    total = "usage.total_tokens"
    yield config(KEY | {"expression": total})
    yield config(KEY | {"expression": total}, {"key": {"name": "y"}, "expression": total})
    yield config({"key": {"name": "X"}, "expression": total})
    yield config({"key": {}, "expression": total})
    yield config(KEY)
    yield config(KEY | {"expression": total + " +"})
    yield config(KEY | {"expression": "usage.prompt_tokens"})
    yield config(KEY | {"expression": total, "condition": "false"})
    yield config(KEY | {"expression": total, "condition": "usage.nothing > 1.0"})
    yield config(KEY | {"expression": total, "condition": "tokens.total > 1.0"})
    for expression in (total + " / 5.0", total + " / -5.0", "'text'", "usage.nothing", "usage.total_tokens - 42.0"):
        yield config(KEY | {"expression": expression})


def responses(data_plane: Any) -> Iterator[list[Any]]:
    body = json.dumps({"usage": USAGE}).encode()
    events = f"data: {json.dumps({'usage': USAGE})}\n\n".encode()
    piece, last, headers = data_plane.response_body, data_plane.response_body(b""), data_plane.response_headers
    yield [headers(), piece(body)]
    yield [headers(), piece(json.dumps({"usage": USAGE}, indent=2).encode())]
    yield [headers(), piece(body[:9], end=False), piece(body[9:])]
    yield [headers(), piece(json.dumps({"usage": USAGE, "x": "y" * 100_000}).encode())]
    yield [headers(status=b"500"), piece(body)]
    yield [headers(content_type=b"text/plain"), piece(b"words")]
    yield [headers(), piece(b"{}")]
    stream = headers(content_type=b"text/event-stream")
    yield [stream, piece(events, end=False), piece(b"data: [DONE]\n\n", end=False), last]
    yield [stream, piece(events, end=False), data_plane.response_trailers()]
    yield [stream, piece((events + b"data: [DONE]\n\n").replace(b"\n", b"\r\n"), end=False), last]
    yield [stream, piece(events.replace(b"42", b"41") + events, end=False), last]
    yield [stream, piece(b'data: {"usage": null}\n\n' + events, end=False), last]


def observe(world: Any, data_plane: Any, parts: Parts) -> list[Any]:
    """What each response gets with each configuration."""
    seen: list[Any] = []
    for text in configs():
        try:
            reporter = parts.reporter(parts.config("c").read(text))
        except ConfigError as problem:
            seen.append(str(problem))
            continue
        made = world(reporter=reporter, report=parts.report)
        made.endpoints("10.0.0.1:8000")
        for messages in responses(data_plane):
            try:
                said = made.talk(data_plane.request_headers(end=True), *messages)
            except Exception as problem:  # noqa: BLE001  # a fault may do anything
                seen.append(repr(problem))
            else:
                assert all(isinstance(item, ProcessingResponse) for item in said)
                seen.append([item.SerializeToString(deterministic=True) for item in said])
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_it_shows(name: str, world: Any, data_plane: Any) -> None:
    deviation = FAULTS.get(name) or VARIANTS[name]
    correct = observe(world, data_plane, Parts())
    assert observe(world, data_plane, Parts().exchange(*deviation.classes)) != correct
    assert observe(world, data_plane, Parts()) == correct
