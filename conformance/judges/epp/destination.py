"""Destination Endpoint (EPP-DEST-*, ENV-14): header and metadata are set, well formed, equal, and name the pool's pods.

What is wrong with a missing entry is put down to where the EPP put it instead: at the top level or in another namespace
(EPP-DEST-03), as another kind of value (EPP-DEST-02), in a namespace that is no struct (ENV-14 and EPP-DEST-02), on an
answer of the response (ENV-14), or first on a body answer in streamed modes (EPP-DEST-08; the header there is ENV-13).
A request that is released with nothing at all is EPP-DEST-01; EPP-DEST-07 if it has no body or an odd one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from conformance.judges.epp.expectation import TOO_LARGE
from conformance.judges.exchange_view import AnswerKind, ExchangeView, Shape
from conformance.judges.findings import passed, recorded
from conformance.judges.registry import judge_of_exchange
from conformance.reading.decoded_message import REQUEST
from conformance.reading.destination import header_list, values_of
from conformance.reading.endpoints import BLANKS, EndpointList, canonical, parse_list
from conformance.reading.inference_request import is_inference
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.messages import ProcessingResponse
from ext_proc.protocol import DESTINATION

NO_KIND = "The field is not the one that the library has: `structValue` in protobuf.js, also with `keepCase`."
"""What leaves a Value empty without an error."""

NO_FIELDS = (
    "An answer has dynamic_metadata, and nothing is in it: in a library that does not turn maps into a Struct, such as "
    "protobuf.js, the namespaces belong into its `fields`, each as a Value."
)
"""What leaves a Struct empty without an error."""

# -- an error, or nothing ----------------------------------------------------------------------------------------------


def undue_error(view: ExchangeView) -> Finding | None:
    """What is wrong with an ImmediateResponse although an endpoint is due, where no other rule explains it; also with
    one that is never due, where what is due is not known."""
    known = view.due.endpoint_due
    expected = ("an endpoint",) if known else ("an endpoint", "an ImmediateResponse with an error that was due")
    for_its_size = view.code == TOO_LARGE
    beginning = view.cut_short and not view.incomprehensible
    ordinary = view.shape is Shape.ORDINARY or _before_the_body(view) or beginning
    match view.shape:
        case Shape.BODYLESS if view.incomprehensible and view.family == 4:
            return None
        case Shape.BODYLESS:
            return view.fail("EPP-DEST-07", expected, hint="Model servers take requests without a body, too.")
        case _ if not ordinary:
            either = ("an endpoint", "an ImmediateResponse with 4xx")
            return view.warn("EPP-DEST-07", either) if view.family >= 5 else view.fail("EPP-DEST-07", either)
        case _ if for_its_size and view.stream.request.duplex and view.facts.counts("EPP-STRM-01"):
            hint = "Streaming mode has to take bodies of many chunks and megabytes."
            return view.fail("EPP-STRM-01", expected, hint=hint)
        case _:
            hint = "The pool has a ready, eligible endpoint." if known else ""
            return view.fail("EPP-DEST-01", expected, hint=hint)


def _before_the_body(view: ExchangeView) -> bool:
    """Whether an inference request was refused on its headers: no body of it was there to be odd."""
    request = view.stream.request
    unseen = request.headers is not None and not request.bodies and not request.whole
    return unseen and is_inference(view.request_header(":path") or b"")


def missing(view: ExchangeView) -> Finding:
    """A request that was released with nothing."""
    expected = ("an endpoint, in the header and in the metadata", "an ImmediateResponse")
    hint = "Envoy sends such a request to an endpoint that it chooses itself."
    odd = view.shape in (Shape.BODYLESS, Shape.ODD)
    return view.fail("EPP-DEST-07" if odd else "EPP-DEST-01", expected, hint=hint)


# -- the form ----------------------------------------------------------------------------------------------------------


def form(view: ExchangeView) -> Iterator[Finding]:
    """What is wrong with the form of header and metadata."""
    destination = view.destination
    different = _different(view)
    if (
        destination.header is None
        and different is None
        and not (destination.late_settings and not destination.settings)
    ):
        expected = f"the request header {DESTINATION}"
        yield view.fail("EPP-DEST-01", expected, f"no header; metadata {destination.metadata or 'neither'}")
    if destination.metadata is None:
        missing = _missing_metadata(view)
        yield missing
        if missing.requirement == "ENV-14" and not destination.late_metadata:  # the document's MUST is broken as well
            yield view.fail("EPP-DEST-02", f"{DESTINATION} in this namespace", "the namespace is no struct")
    if different is not None:
        yield different
    if different is None or different.verdict is not Verdict.FAIL:
        yield from _value(view)
    yield from _changed_later(view)


def _missing_metadata(view: ExchangeView) -> Finding:
    destination, namespace = view.destination, view.context.destination_namespace
    expected = f"dynamic_metadata with {namespace} / {DESTINATION} as a string"
    for entry in destination.metadata_entries:
        if entry.namespace == namespace and entry.value is None:
            return view.fail("EPP-DEST-02", expected, f"it is a {entry.kind}", at=entry.message)
    if destination.misplaced_metadata:
        entry = destination.misplaced_metadata[0]
        where = "at the top level" if entry.namespace is None else f"in namespace {entry.namespace!r}"
        hint = (
            "Set `metadata.destination` in the profile if another namespace is configured." if entry.namespace else ""
        )
        return view.fail("EPP-DEST-03", expected, f"it is {where}", at=entry.message, hint=hint)
    for message in view.stream.answers:
        fields = message.response.dynamic_metadata.fields if message.response is not None else {}
        if namespace in fields and fields[namespace].WhichOneof("kind") != "struct_value":
            kind = fields[namespace].WhichOneof("kind")
            actual = f"it is a {kind.removesuffix('_value')}" if kind else "it is a Value with no kind set"
            hint = "" if kind else NO_KIND
            return view.fail("ENV-14", f"{namespace} is a struct", actual, at=message, hint=hint)
    if destination.late_metadata:
        late = destination.late_metadata[0]
        actual = f"it comes with {late.message.what}"
        if late.message.side == REQUEST:
            hint = "Envoy 1.40 steers by it; others need not."
            expected = "the destination metadata on or before the answer that releases the request"
            return view.warn("EPP-DEST-08", expected, actual, at=late.message, hint=hint)
        return view.fail("ENV-14", expected, f"{actual}, when the request is long gone", at=late.message)
    empty = any(message.response is not None and _empty_metadata(message.response) for message in view.stream.answers)
    actual = f"no such entry; header {destination.header or 'neither'}"
    return view.fail("EPP-DEST-02", expected, actual, hint=NO_FIELDS if empty else "")


def _empty_metadata(answer: ProcessingResponse) -> bool:
    return answer.HasField("dynamic_metadata") and not answer.dynamic_metadata.fields


def _different(view: ExchangeView) -> Finding | None:
    destination = view.destination
    twice = destination.set_twice
    if twice is not None:
        actual = f"the header is set to {twice[0].value} and to {twice[1].value} in one answer"
        return view.fail("EPP-DEST-05", "one value", actual, at=twice[1].message, hint=_client(view, twice[1].value))
    header = destination.header
    given = [(destination.metadata, view.decided)] if destination.metadata else []
    given += [(f"a {one.kind}" if one.value is None else one.value, one.message) for one in destination.later_metadata]
    others = [(value, message) for value, message in given if value != header]
    if not header or not others:
        return None
    value, message = next((one for one in others if _items(one[0]) != _items(header)), others[0])
    actual = f"header {header}, metadata {value or 'empty'}"
    expected = "the same value in the header and in the metadata"
    if _items(header) == _items(value):
        return view.warn("EPP-DEST-05", expected, f"{actual}: only blanks differ", at=message)
    if message is not None and message is not view.decided:
        actual += f" on {message.what}, by which Envoy 1.40 steers"
    apart = bool(value) and not set(_items(header)) & set(_items(value))
    return view.fail(
        "EPP-DEST-05", expected, actual, at=message, hint=_client(view, header) or (_APART if apart else "")
    )


_APART = "Each of the two is picked by itself, or streams share the object in which answers are built."


def _items(value: str) -> list[str]:
    return [item.text.strip(BLANKS) for item in parse_list(value).items]


def _client(view: ExchangeView, value: str) -> str:
    if value in view.destination.client_values:
        return "This is the value that the client sent: it was echoed after the pick, and the client steers itself."
    return ""


def _value(view: ExchangeView) -> Iterator[Finding]:
    given = view.destination.given
    if given is None:
        return
    found = parse_list(given)
    expected = _grammar(view)
    respelled = [one for one in found.respelled if one not in view.hint.items]  # else as the data plane spells it
    if found.problems:
        yield view.fail("EPP-DEST-04", expected, "; ".join(found.problems[:3]))
    elif len(found.items) > 1 and not lists_allowed(view):
        yield view.fail("EPP-DEST-04", expected, f"a list: {given}", hint="Lists came with 0.4.0.")
    elif (lines := _lines(view)) > 1:
        yield view.warn("EPP-DEST-04", expected, f"the request has {lines} such headers: {given!r} in each")
    elif found.padded or found.repeated:
        what = "blanks around an endpoint" if found.padded else f"{', '.join(found.repeated)} more than once"
        yield view.warn("EPP-DEST-04", expected, f"{what}: {given!r}")
    elif respelled:
        actual = f"{', '.join(respelled)}, of which the usual spelling is {canonical(respelled[0])}"
        hint = "Envoy looks a host up by its text: it finds none, and sends the request to one that it chooses itself."
        yield view.warn("EPP-DEST-04", expected, actual, hint=hint)


def _lines(view: ExchangeView) -> int:
    """How many destination headers the request has after all, where that is not ENV-12 (HTTP reads them as a list)."""
    if any(one.conditional for one in view.destination.settings):
        return 1
    return len(values_of(header_list(view.stream.request), DESTINATION)) if view.destination.settings else 0


def _grammar(view: ExchangeView) -> str:
    if lists_allowed(view):
        return "ip:port, or several separated by commas; IPv6 as [address]:port"
    return "one ip:port; IPv6 as [address]:port"


def lists_allowed(view: ExchangeView) -> bool:
    """Whether the version has lists of endpoints (EPP-DEST-09)."""
    return view.facts.applies("EPP-DEST-09")


def _changed_later(view: ExchangeView) -> Iterator[Finding]:
    destination = view.destination
    other = destination.later_metadata if destination.header else ()  # EPP-DEST-05
    late = [one for one in destination.late_metadata if one not in other]
    later = [(one.message, one.value or f"a {one.kind}", destination.metadata) for one in late]
    later += [(one.message, one.value, destination.header) for one in destination.late_settings]
    later += [(one, "none in the header", destination.header) for one in destination.late_removals]
    for message, value, first in later:
        if first is not None and value != first:
            expected = f"no other destination after {first}"
            yield view.fail("EPP-DEST-08", expected, f"{value} on {message.what}", at=message)
            return


# -- membership --------------------------------------------------------------------------------------------------------


def wrong_pick(view: ExchangeView) -> Finding | None:
    """The first pick that the pool does not allow."""
    due = view.due
    strangers = [pick for pick in view.picks if due.known and pick not in due.pool]
    if not strangers or not view.facts.applies("EPP-DEST-06"):
        return None
    expected = "an endpoint of a ready, selected pod: " + (", ".join(sorted(due.pool)[:6]) or "there is none, so 503")
    known = [pick for pick in strangers if pick in due.members]
    what = "not ready, terminating or not selected" if known else "not in the pool"
    actual = f"{', '.join(known or strangers)} is {what}"
    return view.fail("EPP-DEST-06", expected, actual, nature=Nature.MEMBERSHIP)


# -- what holds --------------------------------------------------------------------------------------------------------


@judge_of_exchange("ENV-14", *(f"EPP-DEST-{number:02}" for number in range(1, 12)))
def destination(view: ExchangeView) -> Iterator[Finding]:
    """What was seen to hold."""
    if view.answer is AnswerKind.IMMEDIATE and view.shape is Shape.ODD:
        yield passed("EPP-DEST-07")
    yield from _stray_namespaces(view)
    if view.answer is not AnswerKind.ENDPOINT:
        return
    destination = view.destination
    if destination.header is not None:
        yield passed("EPP-DEST-01")
    if destination.metadata is not None:
        yield passed("EPP-DEST-08")
    if destination.request_metadata is not None:
        yield from (passed("EPP-DEST-02"), passed("EPP-DEST-03"), passed("ENV-14"))
    header, metadata = destination.header, destination.request_metadata
    if header is not None and metadata is not None and _items(header) == _items(metadata):
        if header == metadata:  # else only blanks differ, which is a warning
            yield passed("EPP-DEST-05")
        if view.shape in (Shape.BODYLESS, Shape.ODD):
            yield passed("EPP-DEST-07")
    given = destination.given
    if given is not None:
        yield from _value_holds(view, parse_list(given))


def _value_holds(view: ExchangeView, found: EndpointList) -> Iterator[Finding]:
    if not found.problems and (len(found.items) == 1 or lists_allowed(view)):
        yield passed("EPP-DEST-04")
    if found.endpoints and view.due.known and all(pick in view.due.pool for pick in found.endpoints):
        yield passed("EPP-DEST-06")
        if all(view.due.allows(pick) for pick in found.endpoints) and view.due.allowed < view.due.pool:
            yield from _fresh(view)
    if len(found.items) > 1:
        yield dataclasses.replace(passed("EPP-DEST-09"), actual=f"{len(found.items)} endpoints in a value")
    else:
        yield recorded("EPP-DEST-09", "1 endpoint in a value")
    if not (found.text.isascii() and found.text.isprintable()):
        yield recorded("EPP-DEST-11", f"the value is {found.text!r}", exchange=view.exchange)


def _fresh(view: ExchangeView) -> Iterator[Finding]:
    """A pick that the request before it on the connection would not have allowed."""
    connection = view.conversation.connection
    earlier = next((one for one in view.before() if one.conversation.connection == connection), None)
    if earlier is not None and earlier.due.known and not any(earlier.due.allows(pick) for pick in view.picks):
        yield passed("EPP-DEST-10")


def _stray_namespaces(view: ExchangeView) -> Iterator[Finding]:
    """Namespaces that are no struct, unless that explains why there is no destination."""
    own = {DESTINATION}
    if view.answer is not AnswerKind.IMMEDIATE and view.destination.metadata is None:
        own.add(view.context.destination_namespace)
    for message in view.stream.answers:
        fields = message.response.dynamic_metadata.fields if message.response is not None else {}
        for name, value in sorted(fields.items()):
            if value.WhichOneof("kind") != "struct_value" and name not in own:
                yield view.warn("ENV-14", f"{name} in dynamic_metadata is a struct", "it reads as empty", at=message)
