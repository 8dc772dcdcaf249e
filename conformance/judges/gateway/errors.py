"""ImmediateResponse (DP-ERR-01): what the EPP answers itself reaches the client, and no model server. If it answers so
when it is told of a response, the client gets this answer, and not the response."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.findings import not_applicable, passed
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.registry import judge_of_gateway_exchange
from conformance.printable import plural
from conformance.reading.destination import apply
from conformance.verdict import Finding
from ext_proc.messages import HeaderValueOption, ImmediateResponse
from ext_proc.record import ClientResponse, values

ERR = "DP-ERR-01"
CODES = range(200, 600)

_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})
"""Headers of the local reply that belong to the data plane."""


@judge_of_gateway_exchange(ERR)
def relayed(exchange: GatewayExchange) -> Iterator[Finding]:
    """The last EPP that was asked answered itself."""
    last = exchange.asked[-1] if exchange.asked else None
    message = (last.immediate or last.withdrawal or last.refusal) if last is not None else None
    if last is None or message is None or message.response is None:
        return
    if exchange.opened is None:
        yield not_applicable(ERR, "the HTTP sides were not observed")
        return
    answer = message.response.immediate_response
    code = int(answer.status.code)
    if code not in CODES or exchange.aborted or exchange.left_behind(last):
        return
    if message is last.withdrawal and any(attempt.at < message.seq for attempt in exchange.attempts):
        return  # by its length, what the EPP had let go was the whole request
    first = exchange.asked[0].at if not exchange.epps_down else 0  # of those before, an EPP that is down knew nothing
    refused = message is last.refusal
    called = [attempt for attempt in exchange.attempts if attempt.at > last.at or attempt.at < first]
    if called and not refused:
        expected = f"no model server is called: the EPP answered {code}"
        yield exchange.fail(ERR, expected, f"{called[0].endpoint} was", at=called[0])
    elif refused or exchange.response is None or exchange.response[0] > message.seq:
        yield _wrong(exchange, answer, code) or passed(ERR)


def _wrong(exchange: GatewayExchange, answer: ImmediateResponse, code: int) -> Finding | None:
    if exchange.response is None:
        return exchange.fail(ERR, f"the client gets {code}", "the client got no response")
    at, got = exchange.response
    assert exchange.opened is not None
    if exchange.grpc:
        return None
    if got.status != code:
        return exchange.fail(ERR, f"the client gets {code}", f"it got {got.status}", at=at)
    bodyless = exchange.opened.method == "HEAD" or code in (204, 304)
    if answer.body and got.body != answer.body and not bodyless:
        expected = f"the body of the ImmediateResponse ({plural(len(answer.body), 'byte')})"
        return exchange.fail(ERR, expected, f"{len(got.body)} other bytes: {got.body[:60]!r}", at=at)
    if exchange.cut:
        return exchange.fail(ERR, f"the whole response {code}", "it was cut off", at=at)
    if actual := _lost(answer, got):
        return exchange.fail(ERR, "the headers of the ImmediateResponse", actual, at=at)
    return None


def _lost(answer: ImmediateResponse, got: ClientResponse) -> str:
    """What is wrong with a header of the answer at the client: it is lost, or a type beside another. Those that belong
    to the data plane don't count, nor does what it says of the characters of a type."""
    for name, raw in apply(answer.headers, []):
        value = raw.strip()
        if name.startswith(":") or name in _FRAMING or not value:
            continue
        found = [one.strip() for one in values(got.headers, name.encode())]
        if name == "content-type":
            if len(found) > 1 and _overwrites(answer, name):  # it takes the place of the data plane's (text/plain)
                return f"several lines of {name}: {b', '.join(found).decode('latin-1')}"
            found += [one.partition(b";")[0].strip() for one in found]
        if value not in found and value not in [part.strip() for one in found for part in one.split(b",")]:
            return f"{name}: {value.decode('latin-1')} is not among those that the client got"
    return ""


def _overwrites(answer: ImmediateResponse, name: str) -> bool:
    """Whether the answer sets one value of the header, in the place of others. Without an action it adds one."""
    actions = [one.append_action for one in answer.headers.set_headers if one.header.key.lower() == name]
    return actions == [HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD]
