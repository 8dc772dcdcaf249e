"""Destination Endpoint, Constraints: what is answered when no endpoint is given (EPP-ERR-*).

With no ready endpoint 503 is due (EPP-ERR-02); 503 although there is one breaks the same sentence. Dropping a request
under load is 429 and nothing else (EPP-ERR-03). 429 while the pool is idle can't be told from a wrong reading of the
load, so it is inconclusive. Version 0.2.0 takes any error (EPP-ERR-01). A gRPC status in the place of the error is
found in `ext_proc.answering` (EPP-ERR-04).
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.epp import expectation
from conformance.judges.epp.expectation import TOO_LARGE, TOO_MANY
from conformance.judges.exchange_view import AnswerKind, ExchangeView, Shape
from conformance.judges.ext_proc.immediate import VALID
from conformance.judges.findings import passed, recorded
from conformance.judges.registry import judge_of_exchange
from conformance.printable import plural
from conformance.reading.decoded_message import STREAMED_REPLY
from conformance.verdict import Finding, Verdict

UNAVAILABLE = 503
LARGE_BODY, LARGE_STREAMED_BODY = 1024 * 1024, 4 * 1024 * 1024
"""Above so many bytes 413 is an answer: what Envoy buffers by default, and, where streaming is no option (from `next`
on), what one gRPC message holds by default. No document names a size, and who reads a body has to hold it."""

NO_ENDPOINT = "an ImmediateResponse with 503: no endpoint is eligible"


def due_error(view: ExchangeView) -> Finding | None:
    """What is wrong with an ImmediateResponse where an error is due because the pool has nothing."""
    if not view.facts.applies("EPP-ERR-02"):
        return None if view.family >= 4 else view.fail("EPP-ERR-01", "an error: 400 or more, or a gRPC status")
    if acceptable_error(view):
        return None
    if view.code == TOO_MANY and view.sheddable:
        hint = "429 means that there is capacity, and contention for it; without endpoints there is none."
        return view.warn("EPP-ERR-02", NO_ENDPOINT, hint=hint)
    return view.fail("EPP-ERR-02", NO_ENDPOINT)


def acceptable_error(view: ExchangeView) -> bool:
    """Whether the code is right where no endpoint is eligible: 503, or what a bad request may always get."""
    if view.code == UNAVAILABLE:
        return True
    bad_request = view.incomprehensible or view.unknown_model
    return bad_request and view.family == 4 and view.code != TOO_MANY


def never_due(view: ExchangeView) -> bool:
    """Whether the code is wrong whatever the pool had: it is no error, or an error of the server that is not named.

    This is for a pool that was not observed or was changing. Version 0.2.0 takes any error. What a hint of the wrong
    type is to get is not defined, but an answer below 400 says that the request was served.
    """
    unnamed = view.code >= 500 and view.code != UNAVAILABLE and view.facts.applies("EPP-ERR-02")
    return view.family < 4 or (unnamed and view.hint.kind != "wrong-type")


def undue_error(view: ExchangeView) -> Finding | None:
    """What is wrong with an ImmediateResponse although an endpoint is due; None also where the code is acceptable."""
    load, code = view.due.load, view.code
    dropped = code == UNAVAILABLE or view.shape is Shape.ORDINARY  # other codes may be about an odd request
    dropped = dropped or (view.family < 4 and view.facts.applies("EPP-ERR-01"))  # 0.2.0: any error is right
    if load.saturated and code != TOO_MANY and dropped:
        if view.facts.applies("EPP-ERR-03"):
            expected = ("an endpoint", "an ImmediateResponse with 429, if the request is dropped")
            return view.fail("EPP-ERR-03", expected)
        return view.fail("EPP-ERR-01", ("an endpoint", "an error, if the request is dropped: 400 or more"))
    if code == UNAVAILABLE and view.facts.applies("EPP-ERR-02"):
        hint = "503 says that no endpoint is ready; the pool has " + ", ".join(sorted(view.due.pool)[:4])
        return view.fail("EPP-ERR-02", "an endpoint", hint=hint)
    return None


def undecided(view: ExchangeView) -> Finding | None:
    """A 429 while the pool is idle."""
    if view.code != TOO_MANY or not view.due.load.idle:
        return None
    hint = "The pool's gauges are idle, so nothing should be dropped; does the target read the metrics?"
    return view.fail("EPP-DEST-01", "an endpoint", hint=hint, verdict=Verdict.INCONCLUSIVE)


def tolerated(view: ExchangeView) -> bool:
    """Whether an error is right although an endpoint is due.

    The scenario says so; no server has the model; the EPP is blind; it sheds; its own filters may leave nothing of a
    busy subset (AMB-11); no EPP needs to understand the request; or it is very large.
    """
    code, load, error = view.code, view.due.load, view.family >= 4
    if view.expectation is not None and expectation.accepts(view.expectation.answer, view):
        return True
    if view.unknown_model and error and (view.family == 4 or view.facts.counts("EPP-ERR-01")):
        return True  # 0.2.0 names no code
    if code == UNAVAILABLE and (load.blind or (load.saturated and view.hint.set)):
        return True
    if code == TOO_MANY:
        return load.blind or not load.idle
    if error and (load.saturated or load.blind or view.misread) and view.facts.counts("EPP-ERR-01"):
        return True  # 0.2.0 names no code
    if view.family == 4 and (view.misread if code == TOO_LARGE else view.incomprehensible):
        return True
    request = view.stream.request
    limit = LARGE_STREAMED_BODY if request.duplex and view.facts.counts("EPP-STRM-01") else LARGE_BODY
    sent = sum(message.size if message.partial else len(message.body) for message in request.bodies)
    return code == TOO_LARGE and max(sent, view.announced or 0) > limit


def missing_error(view: ExchangeView) -> Finding:
    """A request that was let go although no endpoint is ready."""
    requirement = "EPP-ERR-02" if view.facts.applies("EPP-ERR-02") else "EPP-ERR-01"
    expected = NO_ENDPOINT if requirement == "EPP-ERR-02" else "an error: 400 or more, or a gRPC status"
    return view.fail(requirement, expected, hint="Envoy sends such a request to an endpoint that it chooses itself.")


def unshed(view: ExchangeView) -> Finding | None:
    """An endpoint for a request that a target which claims to shed should have dropped."""
    claimed = view.context.claims.sheds is True and view.sheddable and view.due.load.overrun
    if view.refused == TOO_MANY:
        return None  # the endpoint was taken back
    if view.hint.set:
        return None  # the text does not tell whether a saturated subset counts while the rest of the pool is idle
    if not claimed or not view.facts.applies("EPP-ERR-03"):
        return None
    hint = (
        "The profile claims that such requests are shed, and every pod is saturated. Did the target read the "
        "objective, or the model, that makes this request sheddable?"
    )
    return view.fail("EPP-ERR-03", "an ImmediateResponse with 429", hint=hint)


@judge_of_exchange("EPP-ERR-01", "EPP-ERR-02", "EPP-ERR-03", "EPP-ERR-04", "EPP-ERR-05", "EPP-ERR-06", "EPP-ERR-07")
def errors(view: ExchangeView) -> Iterator[Finding]:
    """What was seen to hold; and that an error carries no destination."""
    due = view.due
    if view.answer is AnswerKind.ENDPOINT and not view.refused and view.sheddable and due.load.saturated:
        yield recorded("EPP-ERR-03", "an endpoint was given: this target did not shed")
    if view.answer is not AnswerKind.IMMEDIATE or view.code not in VALID:
        return
    streamed = view.stream.immediate is not None and view.stream.immediate.what == STREAMED_REPLY
    if streamed and (due.error_due or (view.code == TOO_MANY and not due.load.idle)):
        hint = "The text names ImmediateResponse; data planes that do not know the streamed form fail the request."
        yield view.fail("EPP-ERR-04", f"an ImmediateResponse with {view.code}", hint=hint)
    elif due.error_due:
        yield passed("EPP-ERR-04")
    if due.error_due:
        if view.family >= 4:
            yield passed("EPP-ERR-01")
        if view.code == UNAVAILABLE and due.pool_empty:
            yield passed("EPP-ERR-02")
    if expectation.dropped(view):
        yield passed("EPP-ERR-03")
    yield from _contents(view)


def _contents(view: ExchangeView) -> Iterator[Finding]:
    message = view.stream.immediate
    if message is None or message.response is None:
        return
    if message.names_destination:
        expected = "no destination header and no destination metadata in an error"
        yield view.fail("EPP-ERR-05", expected, f"ImmediateResponse {view.code} with a destination", at=message)
    else:
        yield passed("EPP-ERR-05")
    if message.what == STREAMED_REPLY:
        yield recorded("EPP-ERR-06", "a StreamedImmediateResponse")
        return
    immediate = message.response.immediate_response
    yield recorded("EPP-ERR-06", f"body of {plural(len(immediate.body), 'byte')}, details {immediate.details[:60]!r}")
    if view.code not in (UNAVAILABLE, TOO_MANY):
        yield recorded("EPP-ERR-07", f"code {view.code}", exchange=view.exchange, seq=message.seq)
