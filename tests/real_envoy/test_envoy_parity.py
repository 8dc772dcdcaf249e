"""The fake proxy and real Envoy do the same: every case of the matrix, but for the listed differences."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import parity_report
import parity_strategies
import pytest
from hypothesis import HealthCheck, given, settings
from parity_allowed import ALLOWED, Allowed, allowed_fields, stale
from parity_cases import cases
from parity_compare import differences, messages_of, response_of
from parity_gateways import GATEWAYS
from parity_stack import Case, Stack
from programs import needs_envoy

from ext_proc.messages import HeaderMap, HeaderValue, HttpBody, HttpHeaders, ProcessingRequest
from ext_proc.record import Author, Message, Recorder

CASES = cases()
EXAMPLES = "PARITY_EXAMPLES"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "envoy-parity.md"

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a coroutine on the module's loop."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def stack(run: Run) -> Iterator[Stack]:
    made = Stack(GATEWAYS)
    run(made.start())
    yield made
    run(made.stop())


@pytest.mark.program
@needs_envoy
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_fake_does_as_envoy_does(case: Case, stack: Stack, run: Run) -> None:
    found = differences(*run(stack.run(case)))
    unlisted = [text for field, text in found.items() if field not in allowed_fields(case.id)]
    assert not unlisted, "\n".join(unlisted)
    assert stale(case.id, set(found)) == [], "the two agree here by now: take this out of parity_allowed.py"


@pytest.mark.program
@needs_envoy
@settings(
    max_examples=int(os.environ.get(EXAMPLES, "80")),
    derandomize=EXAMPLES not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=parity_strategies.cases)
def test_the_fake_does_as_envoy_does_whatever_comes(case: Case, stack: Stack, run: Run) -> None:
    """Generated cases: always the same ones, or as many others as PARITY_EXAMPLES says."""
    found = differences(*run(stack.run(case)))
    if parity_strategies.doubles_the_body(case):
        found.pop("upstream", None)
    assert not found, "\n".join(found.values())


@pytest.mark.parametrize("entry", ALLOWED, ids=lambda entry: entry.name)
def test_every_pattern_of_an_entry_names_cases(entry: Allowed) -> None:
    alone = [Allowed(entry.name, entry.side, (pattern,), entry.fields, entry.reason) for pattern in entry.cases]
    assert [one.cases for one in alone if not any(one.covers(case) for case in CASES)] == []


@pytest.mark.program
@needs_envoy
def test_the_reasons_of_local_replies_agree(stack: Stack, run: Run) -> None:
    """RESPONSE_CODE_DETAILS: of Envoy from its access log, of the fake from its record."""
    chosen = [
        case
        for case in CASES.values()
        if case.id.startswith("behaviour/") and case.id.endswith(("fds/http1", "buffered/http1"))
    ]
    differing = run(parity_report.differing_details(stack, chosen))
    assert {case: pair for case, pair in differing.items() if not parity_report.details_excused(case, *pair)} == {}


def test_the_page_of_the_docs_is_up_to_date() -> None:
    assert parity_report.updated(DOCUMENT.read_text()) == DOCUMENT.read_text(), (
        "run python -m parity_report, see its help"
    )


# -- the normalisation itself ------------------------------------------------------------------------------------------


def _entries(*messages: ProcessingRequest) -> list[Any]:
    recorder, entries = Recorder(), []
    recorder.listen(entries.append)
    for message in messages:
        recorder.emit(Message(stream="s", author=Author.DATA_PLANE, raw=message.SerializeToString()))
    return entries


def _headers(**values: bytes) -> ProcessingRequest:
    found = [HeaderValue(key=name.replace("_", "-"), raw_value=value) for name, value in values.items()]
    return ProcessingRequest(request_headers=HttpHeaders(headers=HeaderMap(headers=found)))


def _body(data: bytes, *, end: bool = False) -> ProcessingRequest:
    return ProcessingRequest(request_body=HttpBody(body=data, end_of_stream=end))


def test_generated_ids_and_times_do_not_count_and_chosen_ids_do() -> None:
    one = _headers(x_request_id=b"b70c9d7d-ab80-4256-862e-97855372f1bc", x_envoy_upstream_service_time=b"3")
    other = _headers(x_request_id=b"00000000-ab80-4256-862e-97855372f1bc", x_envoy_upstream_service_time=b"12")
    assert messages_of(_entries(one)) == messages_of(_entries(other))
    assert messages_of(_entries(_headers(x_request_id=b"mine"))) != messages_of(_entries(_headers(x_request_id=b"x")))


def test_values_order_and_field_of_headers_count() -> None:
    assert messages_of(_entries(_headers(a=b"1", b=b"2"))) != messages_of(_entries(_headers(b=b"2", a=b"1")))
    wrong = ProcessingRequest(request_headers=HttpHeaders(headers=HeaderMap(headers=[HeaderValue(key="a", value="1")])))
    assert messages_of(_entries(_headers(a=b"1"))) != messages_of(_entries(wrong))


def test_borders_of_bodies_count_unless_merged() -> None:
    whole, parts = _entries(_body(b"ab", end=True)), _entries(_body(b"a"), _body(b"b"), _body(b"", end=True))
    assert messages_of(whole) != messages_of(parts)
    assert messages_of(whole, merged=True) == messages_of(parts, merged=True)
    assert messages_of(_entries(_body(b"ac", end=True)), merged=True) != messages_of(whole, merged=True)
    assert messages_of(_entries(_body(b"ab")), merged=True) != messages_of(whole, merged=True)


def test_metadata_counts_as_a_map_and_its_absence_counts_too() -> None:
    bare, empty = _body(b""), ProcessingRequest(request_body=HttpBody())
    empty.metadata_context.SetInParent()
    assert messages_of(_entries(bare)) != messages_of(_entries(empty))


def test_the_wire_of_the_client_does_not_count() -> None:
    wire = [(b"date", b"now"), (b"server", b"envoy"), (b"content-length", b"0"), (b"Transfer-Encoding", b"chunked")]
    assert response_of(200, wire, b"", (), True) == response_of(200, (), b"", (), True)
    assert response_of(200, [(b"content-length", b"1")], b"", (), True) != response_of(200, (), b"", (), True)
