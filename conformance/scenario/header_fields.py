"""Header names and values as files may give them (RFC 9110, 5.1 and 5.5)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from conformance.strict_yaml import FileModel
from ext_proc.record import Headers

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUES = re.compile(r"[\r\n\0]")


def is_header_name(text: str) -> bool:
    """Whether a header can be called so."""
    return _NAME.fullmatch(text) is not None


def _name(text: str) -> str:
    if text.startswith(":"):
        raise ValueError(f"{text!r} is no header, but a part of the request or response that has its own key")
    if not is_header_name(text):
        raise ValueError(f"{text!r} is no header's name: it has letters, digits and !#$%&'*+-.^_`|~")
    return text


def _value(text: str) -> str:
    if _NOT_IN_VALUES.search(text):
        raise ValueError("a header's value has no line breaks and no NUL")
    return text


def _bytes(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise ValueError(f"this is no base64: {str(problem).lower()}") from None
    return text


def _one_line(text: str) -> str:
    _value(base64.b64decode(text).decode("latin-1"))
    return text


Base64 = Annotated[str, AfterValidator(_bytes)]


class HeaderBytes(FileModel):
    """The value of a header that is not UTF-8: HTTP has bytes there, of any encoding."""

    base64: Annotated[Base64, AfterValidator(_one_line)] = Field(description="its bytes")


HeaderName = Annotated[str, AfterValidator(_name)]
HeaderValue = Annotated[str, AfterValidator(_value)]
HeaderPairs = tuple[tuple[HeaderName, HeaderValue | HeaderBytes], ...]
"""Headers in order, repeated names as they are."""

HeaderMap = dict[HeaderName, HeaderValue]
"""Headers of which none is repeated."""


def value_bytes(value: str | HeaderBytes) -> bytes:
    """The bytes of a header's value."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value.base64)


def on_the_wire(pairs: HeaderPairs) -> Headers:
    """`pairs` as they are sent: names as they were given."""
    return tuple((name.encode(), value_bytes(value)) for name, value in pairs)
