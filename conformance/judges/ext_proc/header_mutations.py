"""How headers are set: encoding (ENV-11), overwriting (ENV-12), in the right answer (ENV-13), and within Envoy's limits
(ENV-26); clear_route_cache is recorded (ENV-25).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import not_applicable, passed, recorded
from conformance.judges.registry import judge_of_exchange
from conformance.reading.conversation import BUFFERED_MODES
from conformance.reading.decoded_message import REQUEST, DecodedMessage, HeaderList
from conformance.reading.destination import apply, counting, protected, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding
from ext_proc.headers import value_of
from ext_proc.messages import HeaderValueOption
from ext_proc.protocol import DESTINATION

MAX_HEADERS, MAX_BYTES = 100, 60 * 1024
"""Envoy's default limits: for the headers of a message, and for those that an answer sets or removes; for the bytes of
a message's names and values."""

_NAME = re.compile(r":?[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


@judge_of_exchange("ENV-11", hygiene=True)
def encoding(view: ExchangeView) -> Iterator[Finding]:
    """Values are in `raw_value` alone; names and values are legal HTTP."""
    seen = False
    for message in view.stream.answers:
        mutation = message.header_mutation
        if mutation is None:
            continue
        for option in mutation.set_headers:
            seen = True
            if (problem := _illegal(message, option)) is not None:
                expected, actual, hint = problem
                yield view.fail("ENV-11", expected, actual, at=message, hint=hint)
            elif option.header.value and not option.header.raw_value:
                yield _in_value(view, message, option)
        for name in mutation.remove_headers:
            if not _NAME.fullmatch(name):
                actual = f"{name!r} is to be removed"
                yield view.fail("ENV-11", "names of headers are tokens", actual, at=message, hint=_rejected(message))
    if seen:
        yield passed("ENV-11")


_FAILS = "Envoy takes nothing of such an answer and fails the request."
_LEFT_OUT = "Envoy sends the error to the client, without this header and those after it."
_NAMELESS = "Envoy 1.40 sends it on, and who gets the message refuses all of it."
_MALFORMED = "An HTTP/2 message with such trailers is malformed (RFC 9113, section 8.1), and its receiver resets it."


def _rejected(message: DecodedMessage) -> str:
    """What becomes of an answer with an illegal header."""
    effect = _LEFT_OUT if message.what == "immediate_response" else _FAILS
    return f"{effect} A newline at the end may come from a file."


def _illegal(message: DecodedMessage, option: HeaderValueOption) -> tuple[str, str, str] | None:
    """What is right, what was found, and a hint; None if the header is legal."""
    header = option.header
    if header.value and header.raw_value:
        return "a value in raw_value alone", f"{header.key!r} has both value and raw_value", ""
    if not _NAME.fullmatch(header.key):
        hint = _rejected(message) if header.key else _NAMELESS
        return "names of headers are tokens", f"a header named {header.key!r} is set", hint
    if not _VALUE.fullmatch(value_of(header)):
        actual = f"{header.key!r} is set to {value_of(header)[:80]!r}"
        return "no control characters in values", actual, _rejected(message)
    if message.part == "trailers" and header.key.startswith(":"):
        return "no pseudo-headers in trailers", f"{header.key!r} is set in them", _MALFORMED
    return None


def _in_value(view: ExchangeView, message: DecodedMessage, option: HeaderValueOption) -> Finding:
    expected = f"{option.header.key} has its value in raw_value"
    actual = f"it is in value ({option.header.value[:60]!r}), raw_value is empty"
    hint = "Envoy drops `value`; the header arrives empty."
    if option.header.key.lower() == DESTINATION and message.side == REQUEST:
        return view.fail("ENV-11", expected, actual, at=message, hint=hint)
    return view.warn("ENV-11", expected, actual, at=message, hint=hint)


@judge_of_exchange("ENV-12", "ENV-13")
def destination_header(view: ExchangeView) -> Iterator[Finding]:
    """The destination header overwrites, and is set where it counts."""
    if view.answer is AnswerKind.IMMEDIATE:
        yield not_applicable("ENV-12", "the answer was an ImmediateResponse")
    destination, direction = view.destination, view.stream.request
    for setting in destination.settings:
        if setting.conditional:
            yield view.fail(
                "ENV-12",
                "the destination header replaces the client's, and is always set",
                f"{setting.value} with {_flags(setting.option)}",
                at=setting.message,
                hint="Set no append action, or OVERWRITE_IF_EXISTS_OR_ADD.",
            )
        else:
            yield passed("ENV-12")
    if not view.destination.observed:
        return
    buffered = direction.mode in BUFFERED_MODES
    if destination.settings:
        if not buffered:
            yield passed("ENV-13")
    elif destination.late_settings:
        late = destination.late_settings[0]
        effect = (
            f"In mode {direction.mode} header mutations of a body answer have no effect; hold the headers answer back."
        )
        yield view.fail(
            "ENV-13",
            f"the destination header on the answer to the request headers{' or the body' if buffered else ''}",
            f"{late.value} on {late.message.what}",
            at=late.message,
            hint="Header mutations of a trailers answer change the trailers." if buffered else effect,
        )


def _flags(option: HeaderValueOption) -> str:
    if option.HasField("append"):
        return f"append: {str(option.append.value).lower()}"
    number = option.append_action
    known = HeaderValueOption.HeaderAppendAction
    return f"append_action {known.Name(number) if number in known.values() else number}"


@judge_of_exchange("ENV-26")
def protected_headers(view: ExchangeView) -> Iterator[Finding]:
    """Headers that data planes protect are not set to new values, and not too many are set."""
    direction = view.stream.request
    sent = sent_headers(direction)
    if sent is None or not counting(direction):
        return
    fine = True
    for message in counting(direction):
        mutation = message.header_mutation
        for option in mutation.set_headers if mutation is not None else ():
            name, value = option.header.key.lower(), value_of(option.header)
            if protected(name) and value not in values_of(sent, _alias(name)):
                fine = False
                actual = f"{name} is set to {value.decode('latin-1')[:80]!r}"
                yield view.warn("ENV-26", f"{name} is left alone", actual, at=message, hint=_IGNORED)
        for name in _protected_removals(message, sent):
            fine = False
            yield view.warn("ENV-26", f"{name} is left alone", "it is to be removed", at=message, hint=_IGNORED)
    over = [*_over_a_limit(view, direction), *_over_a_limit(view, view.stream.response)]
    yield from over
    if fine and not over and view.destination.observed:
        yield passed("ENV-26")


_IGNORED = "Envoy ignores it, or fails the request where disallow_is_error is set."


def _protected_removals(message: DecodedMessage, sent: HeaderList) -> list[str]:
    """The headers that an answer removes for good, of those that were sent and that data planes keep."""
    mutation = message.header_mutation
    if mutation is None:
        return []
    own = {option.header.key.lower() for option in mutation.set_headers}
    names = {name.lower() for name in mutation.remove_headers} - own
    return sorted(one for one in names if (protected(one) or one.startswith(":")) and values_of(sent, _alias(one)))


def _over_a_limit(view: ExchangeView, direction: StreamDirection) -> Iterator[Finding]:
    """The first answer with more changes than Envoy takes, or after which there are more headers, or bytes of them,
    than it passes on. Of what was over the limit before, the EPP is not accused."""
    headers = sent_headers(direction)
    for message in counting(direction):
        mutation = message.header_mutation
        if headers is None or mutation is None:
            continue
        left = apply(mutation, headers)
        most = max(len(mutation.set_headers), len(mutation.remove_headers))
        for count, before, limit, expected, actual in (
            (most, 0, MAX_HEADERS, "changes in an answer", f"{most} headers are set, or removed"),
            (len(left), len(headers), MAX_HEADERS, "headers", f"{len(headers)} headers became {len(left)}"),
            (_bytes(left), _bytes(headers), MAX_BYTES, "bytes of headers", f"they have {_bytes(left)} bytes"),
        ):
            if count > limit >= before:
                hint = "Envoy answers 500 to this."
                yield view.warn("ENV-26", f"at most {limit} {expected}", actual, at=message, hint=hint)
                return
        headers = left


def _bytes(headers: HeaderList) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _alias(name: str) -> str:
    return ":authority" if name == "host" else name


@judge_of_exchange("ENV-17", "ENV-18", "ENV-25", hygiene=True)
def informational(view: ExchangeView) -> Iterator[Finding]:
    """mode_override, override_message_timeout and clear_route_cache."""
    exchange = view.exchange
    for message in view.conversation.messages:
        if message.response is None:
            continue
        if message.response.HasField("mode_override"):
            yield recorded("ENV-17", f"mode_override on {message.what}", exchange=exchange, seq=message.seq)
        if message.only_timeout:
            wait = message.response.override_message_timeout
            what = f"override_message_timeout of {wait.seconds + wait.nanos / 1e9:g} s"
            yield recorded("ENV-18", what, exchange=exchange, seq=message.seq)
    setting = view.destination.settings[:1]
    common = setting[0].message.common if setting else None
    if common is not None:
        flag = "set" if common.clear_route_cache else "not set"
        yield recorded("ENV-25", f"clear_route_cache is {flag} with the destination header")
