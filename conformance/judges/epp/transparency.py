"""Transparency of the request (EPP-TRN-*): the EPP picks an endpoint, and leaves the rest alone.

The client's headers are compared with what they are after the header mutations, applied as Envoy does. Headers of this
protocol, those that Envoy protects (ENV-26) and content-length (ENV-10) are left out; added headers are the EPP's own.
The body is EPP-TRN-05, judged with ENV-09, but for an encoding that it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.ext_proc.bodies import unpacked_body
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.decoded_message import HeaderList
from conformance.reading.destination import apply, header_list, may_count, protected, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding
from ext_proc.messages import HeaderValueOption
from ext_proc.protocol import DESTINATION, PREFIX

_OWN = {"authorization": "EPP-TRN-01", "content-type": "EPP-TRN-02", ":path": "EPP-TRN-03"}
"""Headers that have their own requirement; repeated ones are EPP-TRN-04, all others EPP-TRN-06."""

_UNREAD = "Envoy 1.40 does not read append_action: ADD_IF_ABSENT overwrites."

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
"""W3C Trace Context: a version, the id of the trace, the parent, flags."""

_ENCODING = "content-encoding"
"""The one header that changes what a body means by being added: no model server can read it any more."""


@judge_of_exchange(*(f"EPP-TRN-{number:02}" for number in range(1, 8)))
def headers(view: ExchangeView) -> Iterator[Finding]:
    """The client's headers are there with their values."""
    direction = view.stream.request
    before, after = sent_headers(direction), header_list(direction, late=True)
    if before is None or after is None or direction.headers_answer is None:
        return
    left = _by_name(after)
    for name, old in _by_name(before).items():
        if name.startswith(PREFIX) or protected(name) or name in ("content-length", "host"):
            continue
        requirement = "EPP-TRN-04" if len(old) > 1 else _OWN.get(name, "EPP-TRN-06")
        new = left.get(name, [])
        plain = name == _ENCODING and not new and unpacked_body(direction) is not None  # the body is ENV-09, EPP-TRN-05
        joined = len(old) > 1 and _items(old) == _items(new)  # RFC 9110, section 5.3
        if old == new or plain or joined or _same_trace(name, old, new):
            yield passed(requirement)
        else:
            actual = f"{name} was {_show(old)}, is {_show(new) if new else 'gone'}"
            hint = _UNREAD if name in _asked_to_stay(direction) else ""
            yield view.warn(requirement, f"{name} is left alone", actual, at=may_count(direction)[-1], hint=hint)
    coded = [one for one in left.get(_ENCODING, []) if one.lower() not in (b"", b"identity")]
    if coded and not view.bodyless and all(name != _ENCODING for name, _ in before):
        expected, actual = "the body is as the headers say", f"{_ENCODING} is added: {_show(coded)}"
        yield view.warn("EPP-TRN-05", expected, actual, at=may_count(direction)[-1])
    yield from _same_under_append(view)


def _same_trace(name: str, old: Sequence[bytes], new: Sequence[bytes]) -> bool:
    """Whether a header of W3C Trace Context goes on as it does through a participant: the trace stays and the parent is
    its own, a `traceparent` that is none begins a new trace, and `tracestate` keeps the entries of others. So does
    W3C `baggage`, in any order."""
    match name:
        case "traceparent":
            before, after = _trace(old), _trace(new)
            return after is not None and before in (None, after)
        case "tracestate":
            entries, kept = _entries(old), _entries(new)
            return entries.keys() <= kept.keys() and sum(kept[key] != entries[key] for key in entries) <= 1  # its own
        case "baggage":
            return _entries(old).items() <= _entries(new).items()
        case _:
            return False


def _trace(values: Sequence[bytes]) -> bytes | None:
    """The id of the trace; None if there is no `traceparent` that is one."""
    found = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    return found[1] if found is not None else None


def _entries(values: Sequence[bytes]) -> dict[bytes, bytes]:
    return {key: value for key, _, value in (item.partition(b"=") for item in _items(values))}


def _items(values: Sequence[bytes]) -> list[bytes]:
    return [item.strip() for item in b",".join(values).split(b",")]


def _asked_to_stay(direction: StreamDirection) -> set[str]:
    """The headers that an answer says are to be set only where there are none."""
    mutations = (message.header_mutation for message in may_count(direction))
    options = (option for mutation in mutations if mutation is not None for option in mutation.set_headers)
    return {option.header.key.lower() for option in options if option.append_action == HeaderValueOption.ADD_IF_ABSENT}


@judge_of_exchange("EPP-TRN-06")
def trailers(view: ExchangeView) -> Iterator[Finding]:
    """The client's trailers are there with their values."""
    direction = view.stream.request
    answer, sent = direction.trailers_answer, direction.trailers.headers if direction.trailers is not None else None
    if answer is None or answer.partial or not sent:
        return
    left = _by_name(apply(answer.header_mutation, sent) if answer.header_mutation is not None else sent)
    for name, old in _by_name(sent).items():
        new = left.get(name, [])
        if old == new:
            yield passed("EPP-TRN-06")
        else:
            actual = f"the trailer {name} was {_show(old)}, is {_show(new) if new else 'gone'}"
            yield view.warn("EPP-TRN-06", f"the trailer {name} is left alone", actual, at=answer)


def _by_name(headers: HeaderList) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    return found


def _same_under_append(view: ExchangeView) -> Iterator[Finding]:
    if not view.destination.settings:
        return
    if any(setting.conditional for setting in view.destination.settings):
        return  # ENV-12
    first = values_of(header_list(view.stream.request), DESTINATION)
    second = values_of(header_list(view.stream.request, append=True), DESTINATION)
    if first == second or view.destination.set_twice is not None:  # EPP-DEST-05
        yield passed("EPP-TRN-07")
    else:
        yield view.warn(
            "EPP-TRN-07",
            "the same destination whether an entry without an action overwrites or appends",
            f"{_show(first)} if it overwrites, {_show(second)} if it appends",
            at=view.destination.settings[-1].message,
            hint="Set OVERWRITE_IF_EXISTS_OR_ADD, or remove the client's header.",
        )


def _show(values: Sequence[bytes]) -> str:
    return ", ".join(repr(value.decode("latin-1")[:60]) for value in values)
