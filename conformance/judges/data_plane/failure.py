"""InferencePool's failureMode (DP-FAIL-01): what becomes of a request when its EPP can't be asked.

An EPP that just ends the call with status OK has said that it wants no part in the request; that is no failure. One
that never answers may be waited for as long as the gateway likes: only a request that is sent on meanwhile tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.registry import judge_of_relay
from conformance.judges.relay import Relay
from conformance.judges.ruling import Ruling, held

FAIL = "DP-FAIL-01"


@judge_of_relay(FAIL)
def failure_mode(relay: Relay) -> Iterator[Ruling]:
    """The request fails (closed), or is sent on all the same (open)."""
    if relay.opened is None or relay.backends or relay.aborted:
        return
    why, silent = _why(relay)
    if not why:
        return
    passed = relay.attempts or (relay.status is not None and relay.status < 400)
    if relay.gateway.failure_mode == "closed":
        if passed:
            hint = "The default of InferencePool is FailClose."
            yield relay.fail(FAIL, f"the request fails: {why}, and the gateway fails closed", hint=hint)
        elif relay.response is not None:
            yield held(FAIL)
    elif passed:
        yield held(FAIL)
    elif relay.response is not None and not silent and not relay.expired:
        hint = "Envoy's failure_mode_allow does not hold for a body in full duplex."
        yield relay.fail(FAIL, f"the request is sent on: {why}, and the gateway fails open", hint=hint)


def _why(relay: Relay) -> tuple[str, bool]:
    """In what way the EPP failed, empty if it did not; and whether it just said nothing."""
    if not relay.asked:
        return ("the EPP did not listen" if relay.epps_down else ""), False
    last = relay.asked[-1]
    if last.unavailable:
        return last.unavailable, False
    flow = last.flow
    unanswered = flow.decision is None and flow.offence is None and not flow.answers and not last.left_early
    return ("the EPP did not answer" if unanswered and flow.request.headers is not None else ""), True
