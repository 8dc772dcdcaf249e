"""InferencePool's failureMode (DP-FAIL-01): what becomes of a request when its EPP can't be asked.

An EPP that ends the call with status OK takes no part in the request; that is no failure. One
that never answers may be waited for as long as the gateway likes: only a request that is sent on meanwhile tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.findings import passed
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.registry import judge_of_gateway_exchange
from conformance.printable import plural
from conformance.verdict import Finding
from ext_proc.record import ClientResponse, ExchangeOpened, UpstreamRequest, UpstreamResponse, whole_body

FAIL = "DP-FAIL-01"

_Passage = tuple[ExchangeOpened | UpstreamResponse, UpstreamRequest | ClientResponse, str]


@judge_of_gateway_exchange(FAIL)
def failure_mode(exchange: GatewayExchange) -> Iterator[Finding]:
    """The request fails (closed), or is sent on all the same (open)."""
    if exchange.opened is None or exchange.aborted or (exchange.backends and not exchange.gateway.split_header):
        return
    if exchange.splits or any(one.release is not None for one in exchange.asked[:-1]):
        return  # which EPP could not be asked is not known, or one that was asked before let the request go
    why, silent = _why(exchange)
    if not why:
        yield from _not_let_go(exchange)
        return
    went_on = exchange.attempts or (exchange.status is not None and exchange.status < 400)
    if exchange.gateway.failure_mode == "closed":
        if went_on:
            hint = "The default of InferencePool is FailClose. If this pool has FailOpen, say so: claims.failureMode."
            yield exchange.fail(FAIL, f"the request fails: {why}, and the gateway fails closed", hint=hint)
        elif exchange.response is not None:
            yield passed(FAIL)
    elif went_on:
        yield _cut(exchange, why) or passed(FAIL)
    elif exchange.response is not None and not silent and not exchange.expired:
        hint = "Envoy's failure_mode_allow does not hold for a body in full duplex."
        yield exchange.fail(FAIL, f"the request is sent on: {why}, and the gateway fails open", hint=hint)


def _not_let_go(exchange: GatewayExchange) -> Iterator[Finding]:
    """A whole request that went on, closed, though its EPP failed after its pick and gave nothing back of the body."""
    last = exchange.asked[-1] if exchange.asked else None
    if exchange.fails_open or last is None or last.release is None or last.passed or not last.broke:
        return
    body = whole_body(exchange.opened) if exchange.opened is not None else None
    told = last.stream.request.bodies and not last.stream.request.body_answers
    if not body or not told or len(exchange.asked) > 1:
        return
    stop = last.stream.stop
    went = next((one for one in exchange.attempts if whole_body(one.request) == body), None)
    if went is not None and stop is not None:
        expected = f"the request fails: {stop.what} before the body was let go, and the gateway fails closed"
        yield exchange.fail(FAIL, expected, at=went)
    elif exchange.response is not None and (not exchange.attempts or (exchange.status or 0) >= 400):
        yield passed(FAIL)


def _cut(exchange: GatewayExchange, why: str) -> Finding | None:
    """A request that is sent on without the EPP, or the response to it, of which only the beginning arrives, or none of
    the response."""
    if any(one.stream.request.body_answers for one in exchange.asked):
        return None  # the EPP had a part in it
    assert exchange.opened is not None
    passages: list[_Passage] = [
        (exchange.opened, attempt.request, f"at {attempt.endpoint}") for attempt in exchange.attempts
    ]
    final, got = exchange.final, exchange.response
    if got is not None and got[1].status is None and exchange.attempts and exchange.attempts[-1].status is not None:
        expected = f"the response of {exchange.attempts[-1].endpoint}: {why}, and the gateway fails open"
        return exchange.fail(FAIL, expected, "the client got none")
    if final is not None and final.response is not None and got is not None and not exchange.bodyless:
        passages.append((final.response, got[1], "at the client"))
    for came, out, where in passages:
        whole, arrived = whole_body(came), whole_body(out)
        if whole and arrived is not None and whole != arrived and whole.startswith(arrived):
            expected = f"a body of {plural(len(whole), 'byte')} {where}: {why}, and the gateway fails open"
            return exchange.fail(FAIL, expected, f"its first {len(arrived)}")
    return None


def _why(exchange: GatewayExchange) -> tuple[str, bool]:
    """In what way the EPP failed, empty if it did not; and whether it only stayed silent."""
    if not exchange.asked:
        return ("the EPP did not listen" if exchange.epps_down else ""), False
    last = exchange.asked[-1]
    if last.unavailable:
        return last.unavailable, False
    stream = last.stream
    unanswered = stream.decision is None and stream.offence is None and not stream.answers and not last.left_early
    return ("the EPP did not answer" if unanswered and stream.request.headers is not None else ""), True
