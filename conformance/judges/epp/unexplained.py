"""What became of an exchange at the client, where no rule says why: the net under all judges.

A data plane that follows the protocol takes a request to the endpoint that the EPP gave and passes the response on, or
passes on the EPP's error, unless the EPP keeps it from doing so; how it does that is for a rule to say. Where none
does, a rule may be missing: that is no finding about the target, and nothing that may pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.ext_proc.immediate import VALID
from conformance.verdict import Finding, Verdict
from ext_proc.headers import is_grpc
from ext_proc.record import RESPONSE_TOO_LARGE, UNROUTED

_OK = 200
_OF_THE_DATA_PLANE = (UNROUTED, RESPONSE_TOO_LARGE)


def unexplained(view: ExchangeView) -> Iterator[Finding]:
    """Whether the client got what was due. Asked only where no fault was found with `view`."""
    conversation, response = view.conversation, view.conversation.client_response
    if response is None or view.stream.offence is not None or conversation.aborted or conversation.expired:
        return
    entry, got = response
    given_up = got.details in _OF_THE_DATA_PLANE and view.stream.immediate is None  # else they are the EPP's words
    expected = "" if given_up else _missed(view, got.status, complete=got.complete)
    if expected and not view.ended_by_exit:
        cut = "" if got.complete else ", cut short"
        details = f" ({got.details})" if got.details else ""
        actual = f"the client got {got.status}{cut}{details}, and no rule says why"
        hint = "A rule may be missing in the suite: please report this exchange."
        yield view.fail("ENV-24", expected, actual, at=entry.seq, hint=hint, verdict=Verdict.INCONCLUSIVE)


def _missed(view: ExchangeView, status: int | None, *, complete: bool) -> str:
    """What was due, if it is not what the client got: `status`, and whether all of it; empty if it is, or may be."""
    immediate, attempts = view.stream.immediate, view.conversation.upstream_responses
    if immediate is not None:
        grpc = is_grpc(view.request_header("content-type"))
        same = immediate is not view.decided or view.code not in VALID or status == (_OK if grpc else view.code)
        return "" if same else f"the client gets the ImmediateResponse: {view.code}"
    if attempts:
        last = attempts[-1]
        same = last.outcome != "response" or last.status is None or (status == last.status and complete)
        return "" if same else f"the client gets the response of the model server: {last.status}"
    return "a model server is asked" if view.answer is AnswerKind.ENDPOINT else ""
