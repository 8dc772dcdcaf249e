"""Header names and values as files may give them (RFC 9110, 5.1 and 5.5)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUES = re.compile(r"[\r\n\0]")


def _name(text: str) -> str:
    if text.startswith(":"):
        raise ValueError(f"{text!r} is no header, but a part of the request or response that has its own key")
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no header's name: it has letters, digits and !#$%&'*+-.^_`|~")
    return text


def _value(text: str) -> str:
    if _NOT_IN_VALUES.search(text):
        raise ValueError("a header's value has no line breaks and no NUL")
    return text


HeaderName = Annotated[str, AfterValidator(_name)]
HeaderValue = Annotated[str, AfterValidator(_value)]
HeaderPairs = tuple[tuple[HeaderName, HeaderValue], ...]
"""Headers in order, repeated names as they are."""

HeaderMap = dict[HeaderName, HeaderValue]
"""Headers of which none is repeated."""
