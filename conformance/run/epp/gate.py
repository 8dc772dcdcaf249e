"""The gate: before any scenario, a plain request must get an endpoint. What is asked here, and what it says if not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conformance.errors import GateFailedError
from conformance.printable import quoted
from conformance.reading.decoded_message import decode
from conformance.targets.profile import Kubernetes, Profile
from ext_proc.grpc import head_problem
from ext_proc.record import Author, Entry, Malformed, Message, StreamEnded, header
from fake_kubernetes.log import RequestRecord
from fake_proxy.exchange import ExchangeOutcome

FIRST_WAIT = 2.0
"""Seconds for the first request: one that takes streams before it is ready may never answer that. Later ones are given
as long as any answer."""

ASKED = 15
"""Requests to the Kubernetes API that an explanation quotes."""

UNKNOWN, INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 2, 3, 12, 13
"""gRPC status: of a handler that failed (2, 13), of one that refuses what it reads (3), and of a server without the
service that was called (12)."""

TOO_LARGE = b"431"
"""The HTTP status for header fields that are larger than a server takes."""

NOT_FOUND = 404
"""The HTTP status for a model that is unknown."""


def passes(last: ExchangeOutcome, heard: Sequence[str], *, eligible: bool) -> bool:
    """Whether a request passed; `heard` are the kinds of the EPP's messages, `eligible`: there was an endpoint for it.

    An endpoint passes, and so does any attempt to give one: what is wrong with it is for the judges to say. Where there
    is none to give, so does any answer, a gRPC status included, and also a stream that is taken and not answered: the
    target was ready before, and whether it may be silent then is what scenarios find out.
    """
    answered = [what for what in heard if what]
    if eligible:
        return bool(last.attempts) or any(what != "immediate_response" for what in answered)
    ended = last.stream
    silent = last.expired.startswith("answer")
    return bool(answered) or silent or (ended is not None and ended.how == "status" and ended.status != UNIMPLEMENTED)


def headers_only(last: ExchangeOutcome, heard: Sequence[str]) -> bool:
    """Whether the headers were answered and the body was not: the commonest way to begin an EPP."""
    return last.expired.endswith("request_body") and "request_headers" in heard and "request_body" not in heard


HEADERS_ONLY = (
    "in body mode full-duplex each chunk of the body must be answered with a body_mutation.streamed_response, and "
    "without that no request reaches a model server; `epp-conformance explain ENV-04` says more. An EPP that a gateway "
    "sends no bodies is tested with --body-mode none (bodyModes: [none] in its profile)"
)
"""What to do about an EPP that answers headers only."""


def said(entry: Entry) -> str:
    """The kind of an EPP's message, also of bytes that are none, as of compressed ones; empty for everything else."""
    event = entry.event
    if isinstance(event, Malformed) and event.author is Author.EPP:
        return "something else"
    if not isinstance(event, Message) or event.author is not Author.EPP:
        return ""
    return decode(entry, event).what or "something else"


_POOLS = re.compile(r"/namespaces/([^/]+)/inferencepools(?:/([^/]+))?$")


def asked(requests: Sequence[RequestRecord], given: Kubernetes | None) -> str:
    """What the target asked of the Kubernetes API, and whether that is about another pool than the one it is given."""
    lines = ["its last requests to the Kubernetes API:", *([f"  {one}" for one in requests[-ASKED:]] or ["  (none)"])]
    other = next(filter(None, (_other_pool(one, given) for one in reversed(requests))), "") if given else ""
    return "\n".join([other, *lines] if other else lines)


def _other_pool(request: RequestRecord, given: Kubernetes) -> str:
    if not (found := _POOLS.search(request.path)):
        return ""
    field = re.search(r"metadata\.name==?([^,]+)", request.query.get("fieldSelector", ""))
    name = found[2] or (field[1] if field else given.pool)
    if (found[1], name) == (given.namespace, given.pool):
        return ""
    return (
        f"it asks for pool {name!r} in namespace {found[1]!r}, and the suite has {given.pool!r} in {given.namespace!r}"
    )


def error(profile: Profile, last: ExchangeOutcome | None, seconds: float, output: str, asked: str) -> GateFailedError:
    """That no request passed in so many `seconds`: what came of the last, and what is known of the target besides."""
    text = f"the first plain request got no endpoint, tried for {seconds:.1f} s: {describe(last)}"
    if output:
        text += f"\nthe target's last output:\n{quoted(output)}"
    return GateFailedError(text + asked, hint=hint(profile, last))


def describe(outcome: ExchangeOutcome | None) -> str:
    """What an exchange came to, in words."""
    if outcome is None:
        return "nothing was sent"
    if outcome.expired:
        return f"no {outcome.expired} came"
    if outcome.attempts:
        return f"it picked {outcome.attempts[0]}"
    ended = outcome.stream
    if ended is not None and ended.how == "status":
        return f"the stream ended with gRPC status {ended.status} {ended.message!r}"
    if ended is not None and ended.how == "malformed":
        return f"the answer was not gRPC: {ended.message}"
    if ended is not None and ended.how in ("lost", "refused"):
        return f"the stream was {ended.how}: {ended.message}"
    return f"the client got HTTP {outcome.status} ({outcome.details})"


def _no_grpc(ended: StreamEnded) -> str:
    """What to do about an answer that is HTTP and not gRPC."""
    if not head_problem(ended.headers):
        return "a gRPC answer ends with trailers, and grpc-status is one of them: what does its server send at the end?"
    if header(ended.headers, b":status") == TOO_LARGE:
        return "431 says that the call has more bytes of header fields than the server takes: which limit is set there?"
    return (
        "an HTTP server answers there, and not as gRPC: is this the right port, and does a proxy stand before the EPP?"
    )


def hint(profile: Profile, last: ExchangeOutcome | None) -> str:
    """What to do about a gate that was not passed."""
    ended = last.stream if last is not None else None
    status = ended.status if ended is not None and ended.how == "status" else None
    if status == UNIMPLEMENTED:
        return "the server has no ext_proc service there: is this the right port?"
    if ended is not None and status is not None and "serializ" in ended.message.lower():
        return (
            "its library could not write the answer: a field has a value of another type than the API says "
            "(protobuf.js takes text in a field of bytes, such as raw_value, for base64)"
        )
    if status == INVALID_ARGUMENT:
        return "it refuses the messages as such: under which names does its library give their fields, in which case?"
    if status in (UNKNOWN, INTERNAL):
        return "its handler failed, and the status is all that a client gets of that: what does it print?"
    if last is not None and last.expired:
        return (
            "it accepts streams and does not answer: does it wait for another body mode (--body-mode), for the end of "
            "a body (end_of_stream, also of an empty chunk), or until it is ready?"
        )
    if ended is not None and ended.how == "malformed":
        return _no_grpc(ended)
    if last is not None and last.status == NOT_FOUND:
        model = profile.requests.model
        return f"404 may say that it serves no model {model!r}: requests.model of the profile names it"
    if ended is not None and ended.how == "lost":
        return "the connection broke before an answer came: what does it print, or what stands between, such as a tap?"
    if profile.discovery.fixed is not None:
        return "does it know the endpoints given with --endpoints, in this form?"
    if profile.discovery.file is not None:
        return "does it read the endpoints file, and in this format?"
    return "does it watch the pool's namespace and name, and does it serve the model in requests.model?"
