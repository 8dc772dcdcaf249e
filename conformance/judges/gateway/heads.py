"""What the EPP is told of headers (DP-EXTP-01): of what goes through the gateway unchanged, it is told nothing else.

A gateway may rewrite headers before the EPP is asked or after, forward some only, and add its own. A value that left
it as it came has not been rewritten; that the EPP was told another can't be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from conformance.judges.gateway.contents import EXTP
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.picker_stream import PickerStream
from conformance.reading.destination import sent_headers, values_of
from conformance.reading.recorded import PLACEHOLDER
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Verdict
from ext_proc.record import Headers, values

OWN = frozenset(
    (
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    )
)
"""Headers of one connection, those that a gateway makes itself, and credentials, which it may hide from an EPP."""

_PORT = re.compile(r":\d*$")


def heads(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """What the headers messages of a stream say of the request and of the response, and is not so."""
    opened = exchange.opened
    if opened is None or exchange.aborted or exchange.expired:
        return
    own = exchange.sent_on(one) if len(exchange.asked) > 1 else exchange.attempts  # each pool may have other headers
    if own:
        came = ((b":path", opened.path.encode("latin-1", "replace")), *opened.headers)
        went = own[-1].request.headers
        yield from _compared(exchange, one.stream.request, came, went, "client", "model server")
        yield from _authority(exchange, one.stream.request, str(opened.note.get("authority", "")), went)
    final, got = exchange.final, exchange.response
    if one is exchange.asked[-1] and final is not None and final.response is not None and got is not None:
        came = _with_status(final.response.status, final.response.headers)
        went = _with_status(got[1].status, got[1].headers)
        yield from _compared(exchange, one.stream.response, came, went, "model server", "client")


def _compared(
    exchange: GatewayExchange, direction: StreamDirection, came: Headers, went: Headers, by: str, to: str
) -> Iterator[Finding]:
    told = sent_headers(direction)
    for name in dict.fromkeys(name.lower() for name, _ in came):
        if name.decode("latin-1") in OWN:
            continue
        lines = values_of(told, name.decode("latin-1"))
        kept, said = _one(values(came, name)), _one(lines)
        if not kept or not lines or kept == said or kept != _one(values(went, name)) or not plain(kept, said):
            continue
        expected = f"{_text(name, kept)}, as it came from the {by} and went to the {to}"
        yield exchange.fail(EXTP, expected, f"the EPP is told {_text(name, said)}", at=direction.headers)


def _authority(exchange: GatewayExchange, direction: StreamDirection, came: str, went: Headers) -> Iterator[Finding]:
    """The authority, which HTTP/1.1 calls host, where it went on as the client gave it, and the EPP is told another
    host. Gateways have hosts in a normal form, and other names for them, which nothing forbids."""
    told = sent_headers(direction)
    said = next((value for name in (":authority", "host") for value in values_of(told, name)), b"").decode("latin-1")
    kept = {value.decode("latin-1") for name in (b":authority", b"host") for value in values(went, name)} == {came}
    if came and said and kept and _host(said) != _host(came):
        expected = f":authority: {came}, as it came from the client and went to the model server"
        actual = f"the EPP is told :authority: {said[:80]}"
        yield exchange.fail(EXTP, expected, actual, at=direction.headers, verdict=Verdict.WARN)


def _host(authority: str) -> str:
    """The host of an authority, in one spelling, without its port."""
    return _PORT.sub("", authority.lower()).rstrip(".")


def _one(found: Iterable[bytes]) -> bytes:
    """The values of a header as one: a list may be in several lines."""
    return b",".join(part.strip() for value in found for part in value.split(b","))


def plain(*texts: bytes) -> bool:
    """Whether values are ASCII, which all encodings of a message have alike, and in the record."""
    return all(text.isascii() and not PLACEHOLDER.search(text.decode()) for text in texts)


def _with_status(status: int | None, headers: Headers) -> Headers:
    return ((b":status", b"%d" % (status or 0)), *headers)


def _text(name: bytes, value: bytes) -> str:
    return f"{name.decode('latin-1')}: {value[:80].decode('latin-1')}"
