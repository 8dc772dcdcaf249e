"""Destination Endpoint (EPP-DEST-*, ENV-14): header and metadata are set, well formed, equal, and name the pool's pods.

What is wrong with a missing entry is put down to where the EPP put it instead: at the top level or in another namespace
(EPP-DEST-03), as another kind of value (EPP-DEST-02), in a namespace that is no struct or on an answer of the response
(ENV-14), first on a body answer in streamed modes (EPP-DEST-08; the header there is ENV-13). A request that is released
with nothing at all is EPP-DEST-01; EPP-DEST-07 if it has no body or an odd one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from conformance.endpoints import BLANKS, EndpointList, parse_list
from conformance.inference import is_inference
from conformance.judges.case import Answer, Case, Shape
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Nature, Ruling, held, noted
from conformance.said import DESTINATION, REQUEST
from conformance.steering import Setting
from conformance.verdict import Verdict

# -- an error, or nothing ----------------------------------------------------------------------------------------------


def undue_error(case: Case) -> Ruling | None:
    """What is wrong with an ImmediateResponse although an endpoint is due, where no other rule explains it."""
    expected = ("an endpoint",)
    match case.shape:
        case Shape.BODYLESS if case.code in range(400, 500):
            return None if case.incomprehensible else case.warn("EPP-DEST-07", expected)
        case Shape.BODYLESS:
            return case.fail("EPP-DEST-07", expected)
        case Shape.ODD:
            either = ("an endpoint", "an ImmediateResponse with 4xx")
            return case.warn("EPP-DEST-07", either) if case.code >= 500 else case.fail("EPP-DEST-07", either)
        case Shape.ORDINARY if case.flow.request.duplex and case.scene.counts("EPP-STRM-01") and case.code == 413:
            hint = "Streaming mode has to take bodies of many chunks and megabytes."
            return case.fail("EPP-STRM-01", expected, hint=hint)
        case shape if shape is Shape.ORDINARY or _before_the_body(case):
            return case.fail("EPP-DEST-01", expected, hint="The pool has a ready, eligible endpoint.")
        case _:
            return None


def _before_the_body(case: Case) -> bool:
    """Whether an inference request was refused on its headers: no body of it was there to be odd."""
    request = case.flow.request
    return request.headers is not None and not request.bodies and is_inference(case.request_header(":path") or b"")


def missing(case: Case) -> Ruling:
    """A request that was released with nothing."""
    expected = ("an endpoint, in the header and in the metadata", "an ImmediateResponse")
    hint = "Envoy sends such a request to an endpoint of its own choice."
    odd = case.shape in (Shape.BODYLESS, Shape.ODD)
    return case.fail("EPP-DEST-07" if odd else "EPP-DEST-01", expected, hint=hint)


# -- the form ----------------------------------------------------------------------------------------------------------


def form(case: Case) -> Iterator[Ruling]:
    """What is wrong with header and metadata, whatever they name."""
    steering = case.steering
    different = _different(case)
    if steering.header is None and different is None and not (steering.late_settings and not steering.settings):
        expected = f"the request header {DESTINATION}"
        yield case.fail("EPP-DEST-01", expected, f"no header; metadata {steering.metadata or 'neither'}")
    if steering.metadata is None:
        yield _missing_metadata(case)
    if different is not None:
        yield different
    if different is None or different.verdict is not Verdict.FAIL:
        yield from _value(case)
    yield from _changed_later(case)


def _missing_metadata(case: Case) -> Ruling:
    steering, namespace = case.steering, case.context.destination_namespace
    expected = f"dynamic_metadata with {namespace} / {DESTINATION} as a string"
    for entry in steering.metadata_entries:
        if entry.namespace == namespace and entry.value is None:
            return case.fail("EPP-DEST-02", expected, f"it is a {entry.kind}", at=entry.said)
    if steering.misplaced_metadata:
        entry = steering.misplaced_metadata[0]
        where = "at the top level" if entry.namespace is None else f"in namespace {entry.namespace!r}"
        hint = (
            "Set `metadata.destination` in the profile if another namespace is configured." if entry.namespace else ""
        )
        return case.fail("EPP-DEST-03", expected, f"it is {where}", at=entry.said, hint=hint)
    for said in case.flow.answers:
        fields = said.response.dynamic_metadata.fields if said.response is not None else {}
        if namespace in fields and fields[namespace].WhichOneof("kind") != "struct_value":
            kind = (fields[namespace].WhichOneof("kind") or "nothing").removesuffix("_value")
            return case.fail("ENV-14", f"{namespace} is a struct", f"it is a {kind}", at=said)
    if steering.late_metadata:
        late = steering.late_metadata[0]
        actual = f"it comes with {late.said.what}"
        if late.said.side == REQUEST:
            hint = "Envoy 1.40 steers by it; others need not."
            expected = "the destination metadata on or before the answer that releases the request"
            return case.warn("EPP-DEST-08", expected, actual, at=late.said, hint=hint)
        return case.fail("ENV-14", expected, f"{actual}, when the request is long gone", at=late.said)
    return case.fail("EPP-DEST-02", expected, f"no such entry; header {steering.header or 'neither'}")


def _different(case: Case) -> Ruling | None:
    steering = case.steering
    twice = _set_twice(steering.settings)
    if twice is not None:
        actual = f"the header is set to {twice[0].value} and to {twice[1].value} in one answer"
        return case.fail("EPP-DEST-05", "one value", actual, at=twice[1].said, hint=_client(case, twice[1].value))
    header, metadata = steering.header, steering.request_metadata
    if header is None or metadata is None or header == metadata:
        return None
    actual = f"header {header}, metadata {metadata}"
    expected = "the same value in the header and in the metadata"
    if _items(header) == _items(metadata):
        return case.warn("EPP-DEST-05", expected, f"{actual}: only blanks differ")
    return case.fail("EPP-DEST-05", expected, actual, hint=_client(case, header))


def _items(value: str) -> list[str]:
    return [item.text.strip(BLANKS) for item in parse_list(value).items]


def _set_twice(settings: tuple[Setting, ...]) -> tuple[Setting, Setting] | None:
    for first, second in itertools.pairwise(settings):
        if first.said.seq == second.said.seq and first.value != second.value:
            return first, second
    return None


def _client(case: Case, value: str) -> str:
    if value in case.steering.client_values:
        return "This is the value that the client sent: it was echoed after the pick, and the client steers itself."
    return ""


def _value(case: Case) -> Iterator[Ruling]:
    given = case.steering.given
    if given is None:
        return
    found = parse_list(given)
    expected = _grammar(case)
    if found.problems:
        yield case.fail("EPP-DEST-04", expected, "; ".join(found.problems[:3]))
    elif len(found.items) > 1 and not lists_allowed(case):
        yield case.fail("EPP-DEST-04", expected, f"a list: {given}", hint="Lists came with 0.4.0.")
    elif found.padded or found.repeated:
        what = "blanks around an endpoint" if found.padded else f"{', '.join(found.repeated)} more than once"
        yield case.warn("EPP-DEST-04", expected, f"{what}: {given!r}")


def _grammar(case: Case) -> str:
    if lists_allowed(case):
        return "ip:port, or several separated by commas; IPv6 as [address]:port"
    return "one ip:port; IPv6 as [address]:port"


def lists_allowed(case: Case) -> bool:
    """Whether the version has lists of endpoints (EPP-DEST-09)."""
    return case.scene.applies("EPP-DEST-09")


def _changed_later(case: Case) -> Iterator[Ruling]:
    steering = case.steering
    later = [(one.said, one.value or f"a {one.kind}", steering.metadata) for one in steering.late_metadata]
    later += [(one.said, one.value, steering.header) for one in steering.late_settings]
    for said, value, first in later:
        if first is not None and value != first:
            expected = f"no other destination after {first}"
            yield case.fail("EPP-DEST-08", expected, f"{value} on {said.what}", at=said)
            return


# -- membership --------------------------------------------------------------------------------------------------------


def wrong_pick(case: Case) -> Ruling | None:
    """The first pick that the pool does not allow."""
    demand = case.demand
    strangers = [pick for pick in case.picks if demand.known and pick not in demand.pool]
    if not strangers or not case.scene.applies("EPP-DEST-06"):
        return None
    expected = "an endpoint of a ready, selected pod: " + (
        ", ".join(sorted(demand.pool)[:6]) or "there is none, so 503"
    )
    known = [pick for pick in strangers if pick in demand.members]
    what = "not ready, terminating or not selected" if known else "not in the pool"
    actual = f"{', '.join(known or strangers)} is {what}"
    return case.fail("EPP-DEST-06", expected, actual, nature=Nature.MEMBERSHIP)


# -- what holds --------------------------------------------------------------------------------------------------------


@judge_of_case("ENV-14", *(f"EPP-DEST-{number:02}" for number in range(1, 12)))
def destination(case: Case) -> Iterator[Ruling]:
    """What was seen to hold."""
    if case.answer is Answer.IMMEDIATE and case.shape is Shape.ODD:
        yield held("EPP-DEST-07")
    if case.answer is not Answer.ENDPOINT:
        return
    steering = case.steering
    if steering.header is not None:
        yield held("EPP-DEST-01")
    if steering.metadata is not None:
        yield held("EPP-DEST-08")
    if steering.request_metadata is not None:
        yield from (held("EPP-DEST-02"), held("EPP-DEST-03"), held("ENV-14"))
    if steering.header is not None and steering.header == steering.request_metadata:
        yield held("EPP-DEST-05")
        if case.shape in (Shape.BODYLESS, Shape.ODD):
            yield held("EPP-DEST-07")
    yield from _stray_namespaces(case)
    given = steering.given
    if given is not None:
        yield from _value_holds(case, parse_list(given))


def _value_holds(case: Case, found: EndpointList) -> Iterator[Ruling]:
    if not found.problems and (len(found.items) == 1 or lists_allowed(case)):
        yield held("EPP-DEST-04")
    if found.endpoints and case.demand.known and all(pick in case.demand.pool for pick in found.endpoints):
        yield held("EPP-DEST-06")
        if all(case.demand.allows(pick) for pick in found.endpoints) and case.demand.allowed < case.demand.pool:
            yield from _fresh(case)
    if len(found.items) > 1:
        yield dataclasses.replace(held("EPP-DEST-09"), actual=f"{len(found.items)} endpoints in a value")
    else:
        yield noted("EPP-DEST-09", "1 endpoint in a value")
    if not (found.text.isascii() and found.text.isprintable()):
        yield noted("EPP-DEST-11", f"the value is {found.text!r}", exchange=case.exchange)


def _fresh(case: Case) -> Iterator[Ruling]:
    """A pick that the request before it on the connection would not have allowed."""
    connection = case.conversation.connection
    earlier = next((one for one in case.scene.before(case) if one.conversation.connection == connection), None)
    if earlier is not None and earlier.demand.known and not any(earlier.demand.allows(pick) for pick in case.picks):
        yield held("EPP-DEST-10")


def _stray_namespaces(case: Case) -> Iterator[Ruling]:
    for said in case.flow.answers:
        fields = said.response.dynamic_metadata.fields if said.response is not None else {}
        for name, value in sorted(fields.items()):
            own = name in (DESTINATION, case.context.destination_namespace)
            if value.WhichOneof("kind") != "struct_value" and not own:
                yield case.warn("ENV-14", f"{name} in dynamic_metadata is a struct", "it reads as empty", at=said)
