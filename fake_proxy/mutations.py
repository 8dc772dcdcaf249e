"""Header and body mutations, applied as Envoy 1.40 applies them.

Rules: requirements ENV-10 to ENV-13; Envoy's `HeaderMutationRules` at their defaults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ext_proc.messages import BodyMutation, HeaderMutation, HeaderValueOption
from fake_proxy.actions import HeaderList
from fake_proxy.answer_errors import RejectedError

_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ROUTING = frozenset({b"host", b":authority", b":method", b":scheme"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRules:
    """What limits a mutation: sizes, and whether the message still owns its content-length."""

    max_count: int
    max_bytes: int
    keep_content_length: bool = True


def get(headers: HeaderList, name: bytes) -> bytes | None:
    """The first value of `name`."""
    return next((value for key, value in headers if key == name), None)


def remove(headers: HeaderList, name: bytes) -> None:
    """Drop every entry of `name`."""
    if any(key == name for key, _ in headers):
        headers[:] = [entry for entry in headers if entry[0] != name]


def put(headers: HeaderList, name: bytes, value: bytes) -> None:
    """Set `name` to `value` alone: in the place of its first entry, or at the end (pseudo-headers: before others)."""
    for index, (key, _) in enumerate(headers):
        if key == name:
            headers[index] = (name, value)
            headers[index + 1 :] = [entry for entry in headers[index + 1 :] if entry[0] != name]
            return
    _add(headers, name, value)


def apply_headers(
    mutation: HeaderMutation, headers: HeaderList, rules: HeaderRules, *, replacing: bool = False
) -> None:
    """Apply `mutation` to `headers` in place. `replacing` is CONTINUE_AND_REPLACE, which may set `:method`.

    Single changes that the rules forbid are left out, as Envoy does (it counts them in `rejected_header_mutations`).
    Raises `RejectedError` if Envoy fails the request: invalid characters, `value` beside `raw_value`, too many headers.
    """
    removals, additions = mutation.remove_headers, mutation.set_headers
    if len(removals) > rules.max_count or len(additions) > rules.max_count:
        raise RejectedError("header_mutation_operation_count_exceeds_limit")
    for text in removals:
        name = text.encode()
        if not _NAME.fullmatch(name):
            raise RejectedError("header_mutation_remove_contains_invalid_character")
        name = name.lower()
        if not name.startswith(b":") and _allowed(name):
            remove(headers, name)
    for option in additions:
        _apply_one(option, headers, rules, replacing)
    if len(headers) > rules.max_count or sum(len(key) + len(value) for key, value in headers) > rules.max_bytes:
        raise RejectedError("header_mutation_result_exceeds_limit")


def apply_body(mutation: BodyMutation, body: bytes) -> bytes:
    """`body` after `mutation`; a `streamed_response` or an empty oneof changes nothing here."""
    match mutation.WhichOneof("mutation"):
        case "body":
            return mutation.body
        case "clear_body" if mutation.clear_body:
            return b""
        case _:
            return body


def _apply_one(option: HeaderValueOption, headers: HeaderList, rules: HeaderRules, replacing: bool) -> None:
    if not option.HasField("header"):
        return
    header = option.header
    value = header.raw_value  # `value` is not read: it leaves the header empty
    if header.value and value:
        raise RejectedError("Only one of value or raw_value in the HeaderValue message should be set.")
    name = header.key.encode()
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise RejectedError("header_mutation_set_contains_invalid_character")
    name = name.lower()
    if name == b"content-length" and not rules.keep_content_length:
        return
    present = any(key == name for key, _ in headers)
    append = _appends(option)
    if append is None:
        if (option.append_action == HeaderValueOption.ADD_IF_ABSENT) == present:
            return
        append = False
    if not _allowed(name) and not (replacing and name == b":method"):
        return
    if append and present:
        if name.startswith(b":"):
            return
        _add(headers, name, value)
    else:
        put(headers, name, value)


def _appends(option: HeaderValueOption) -> bool | None:
    """Whether `option` appends; None if that depends on the header being there.

    The deprecated `append` decides if it is set. Action 0 can't be told from an absent one and means overwrite,
    against the field's documented default.
    """
    if option.HasField("append"):
        return option.append.value
    if option.append_action in (HeaderValueOption.ADD_IF_ABSENT, HeaderValueOption.OVERWRITE_IF_EXISTS):
        return None
    return False


def _allowed(name: bytes) -> bool:
    return name not in _ROUTING and not name.startswith(b"x-envoy-")


def _add(headers: HeaderList, name: bytes, value: bytes) -> None:
    if name.startswith(b":"):
        headers.insert(sum(key.startswith(b":") for key, _ in headers), (name, value))
    else:
        headers.append((name, value))
