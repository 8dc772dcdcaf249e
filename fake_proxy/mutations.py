"""Header and body mutations, applied as Envoy 1.40 applies them.

Rules: requirements ENV-10 to ENV-13; Envoy's `HeaderMutationRules` at their defaults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ext_proc.headers import is_final_status
from ext_proc.messages import BodyMutation, HeaderMutation, HeaderValueOption
from fake_proxy.actions import HeaderList
from fake_proxy.answer_errors import RejectedError
from fake_proxy.header_map import add, put, remove

_NAME = re.compile(rb"(:?[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ROUTING = frozenset({b"host", b":authority", b":method", b":scheme"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRules:
    """What a mutation is bound by: sizes, and whether the message still owns its content-length."""

    max_count: int
    max_bytes: int
    known: frozenset[bytes]
    """The well-known headers, to which is added without a new entry."""
    keep_content_length: bool = True
    any_status: bool = False
    """Whether a `:status` may be set that is none of a final response; else it is left out."""


def apply_headers(
    mutation: HeaderMutation, headers: HeaderList, rules: HeaderRules, *, replacing: bool = False
) -> None:
    """Apply `mutation` to `headers` in place. `replacing` is CONTINUE_AND_REPLACE, which may set `:method`.

    Single changes that the rules forbid are left out, as Envoy does (it counts them in `rejected_header_mutations`).
    Raises `RejectedError` if Envoy fails the request: invalid characters, too many headers.
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
    """Only the deprecated `append` is read: whatever `append_action` says, the header is set. So is `raw_value` alone:
    `value` leaves the header empty."""
    if not option.HasField("header"):
        return
    name, value = option.header.key.encode(), option.header.raw_value
    if name.lower() == b"content-length" and not rules.keep_content_length:
        return  # whatever its value
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise RejectedError("header_mutation_set_contains_invalid_character")
    name = name.lower()
    if not _allowed(name) and not (replacing and name == b":method"):
        return
    if name == b":status" and not (rules.any_status or is_final_status(value)):
        return
    if not option.append.value or all(key != name for key, _ in headers):
        put(headers, name, value)
    elif not name.startswith(b":"):
        add(headers, name, value, rules.known)


def _allowed(name: bytes) -> bool:
    return name not in _ROUTING and not name.startswith(b"x-envoy-")
