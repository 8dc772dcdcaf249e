"""ImmediateResponse (DP-ERR-01): what the EPP answers itself reaches the client, and no model server."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.registry import judge_of_relay
from conformance.judges.relay import Asked, Relay
from conformance.judges.ruling import Ruling, held, moot
from conformance.steering import protected
from ext_proc.headers import value_of
from ext_proc.messages import ImmediateResponse
from ext_proc.record import ClientResponse, header, values

ERR = "DP-ERR-01"
CODES = range(200, 600)

_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})
"""Headers of the local reply that belong to the data plane."""


@judge_of_relay(ERR)
def relayed(relay: Relay) -> Iterator[Ruling]:
    """The last EPP that was asked answered itself."""
    last = relay.asked[-1] if relay.asked else None
    said = last.immediate if last is not None else None
    if last is None or said is None or said.response is None:
        return
    if relay.opened is None:
        yield moot(ERR, "the HTTP sides were not observed")
        return
    answer = said.response.immediate_response
    code = int(answer.status.code)
    if code not in CODES or relay.aborted or (relay.response is not None and relay.response[0] < said.seq):
        return
    yield _wrong(relay, last, answer, code) or held(ERR)


def _wrong(relay: Relay, last: Asked, answer: ImmediateResponse, code: int) -> Ruling | None:
    called = [attempt for attempt in relay.attempts if attempt.at > last.at]
    if called:
        expected = f"no model server is called: the EPP answered {code}"
        return relay.fail(ERR, expected, f"{called[0].endpoint} was", at=called[0])
    if relay.response is None:
        return relay.fail(ERR, f"the client gets {code}", "the client got no response")
    at, got = relay.response
    assert relay.opened is not None
    if (header(relay.opened.headers, b"content-type") or b"").startswith(b"application/grpc"):
        return None  # a gRPC client gets its error in another form
    if got.status != code:
        return relay.fail(ERR, f"the client gets {code}", f"it got {got.status}", at=at)
    bodyless = relay.opened.method == "HEAD" or code in (204, 304)
    if answer.body and got.body != answer.body and not bodyless:
        expected = f"the body of the ImmediateResponse ({len(answer.body)} bytes)"
        return relay.fail(ERR, expected, f"{len(got.body)} other bytes: {got.body[:60]!r}", at=at)
    lost = _lost(answer, got)
    if lost:
        expected = "the headers of the ImmediateResponse"
        return relay.fail(ERR, expected, f"{lost} is not among those that the client got", at=at)
    return None


def _lost(answer: ImmediateResponse, got: ClientResponse) -> str:
    """A header of the answer that the client did not get; those that belong to the data plane don't count."""
    for option in answer.headers.set_headers:
        name, value = option.header.key.lower(), value_of(option.header).strip()
        if name.startswith(":") or name in _FRAMING or protected(name) or not value:
            continue
        found = [one.strip() for one in values(got.headers, name.encode())]
        if value not in found and value not in b",".join(found).split(b","):
            return f"{name}: {value.decode('latin-1')}"
    return ""
