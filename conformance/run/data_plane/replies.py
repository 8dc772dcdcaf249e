"""From a scenario's `Reply` to the upstream that plays it: a fake model server, told what to answer, or a script."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import Literal

from conformance.scenario.header_fields import HeaderPairs, on_the_wire
from conformance.scenario.schema import Reply
from ext_proc.record import Headers
from fake_modelserver import Reply as ServerReply
from fake_modelserver.messages import Response
from fake_proxy.actions import OpenUpstream
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply
from fake_proxy.upstream import Attempt, HttpUpstream, Upstream, UpstreamEvents

INLINE = 8192
"""Bytes of body that a model server is told in the script header; a larger one comes from a scripted upstream."""

MayDial = Callable[[str], bool]
"""Whether an endpoint (`ip:port`) may be connected to."""

_TYPES = {
    "json": b"application/json",
    "sse": b"text/event-stream",
    "text": b"text/plain",
    "binary": b"application/octet-stream",
}


class ModelServers:
    """The pods, over HTTP; `script` adds a header that tells the pod what to answer to an attempt."""

    def __init__(self, script: Callable[[int], ServerReply | None], may_dial: MayDial) -> None:
        self._script = script
        self._http = HttpUpstream(may_dial=may_dial)

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Forward the attempt. The header is added behind the EPP's back, so that no EPP can lose it."""
        reply = self._script(opening.attempt)
        if reply is not None:
            opening = opening._replace(headers=[*opening.headers, reply.to_header()])
        return self._http.open(opening, events)


def upstream_for(reply: Reply, fail_first: int, may_dial: MayDial) -> Upstream:
    """The upstream of one exchange. The first `fail_first` attempts are answered with 503, the next as `reply` says.

    Of the endpoints that the target names, those are dialled that `may_dial` has: a request may carry secret headers.
    """
    if reply.source == "local-reply":
        return ScriptedUpstream(UpstreamReply(fail="connect-failed"))
    if reply.source == "never":
        return ScriptedUpstream(UpstreamReply(fail="never"))
    if reply == Reply():
        return ModelServers(lambda attempt: ServerReply(status=503) if attempt <= fail_first else None, may_dial)
    chunks = _chunks(reply)
    if reply.source == "scripted" or (sum(map(len, chunks)) > INLINE and reply.size is None):
        return ScriptedUpstream(_scripted(reply, chunks))
    scripted = _served(reply, chunks)
    return ModelServers(lambda attempt: ServerReply(status=503) if attempt <= fail_first else scripted, may_dial)


def scripted_reply(reply: Reply, mark: bytes = b"") -> UpstreamReply:
    """What a model server answers to `reply` where there is no network, whatever its source.

    `mark` is in a body that is made here, so that it can be told from those of other requests; not in one that a
    scenario gives, nor where it would not be seen, compressed or split in two.
    """
    failures: dict[str, Literal["connect-failed", "never"]] = {"local-reply": "connect-failed", "never": "never"}
    if reply.source in failures:
        return UpstreamReply(fail=failures[reply.source])
    marked = _chunks(reply, mark)
    seen = not reply.gzip and sum(one.count(mark) for one in marked) == b"".join(marked).count(mark)
    return _scripted(reply, marked if not mark or seen else _chunks(reply))


def model_server_reply(reply: Reply) -> ServerReply | None:
    """What a model server is told to answer; None if it answers by itself."""
    return None if reply == Reply() else _served(reply, _chunks(reply))


def response_for(reply: Reply) -> Response | None:
    """What a pod answers behind a data plane that is not ours; None: what it answers by itself."""
    if reply == Reply():
        return None
    chunks = _chunks(reply)
    return Response(
        status=reply.status,
        headers=_headers(reply),
        body=chunks[0] if len(chunks) == 1 else b"",
        chunks=chunks if len(chunks) > 1 else None,
        trailers=_pairs(reply.trailers or ()),
        gap=reply.gap_seconds,
    )


def _scripted(reply: Reply, chunks: tuple[bytes, ...]) -> UpstreamReply:
    return UpstreamReply(
        status=reply.status,
        headers=_headers(reply),
        body=chunks,
        trailers=_pairs(reply.trailers or ()),
        early=reply.early,
    )


def _served(reply: Reply, chunks: tuple[bytes, ...]) -> ServerReply:
    generated = reply.size is not None and reply.split is None
    return ServerReply(
        status=reply.status,
        headers=_headers(reply),
        trailers=_pairs(reply.trailers or ()),
        body=chunks[0] if len(chunks) == 1 and not generated else b"" if not chunks else None,
        chunks=chunks if len(chunks) > 1 and not generated else None,
        size=reply.size if generated else None,
        gap=reply.gap_seconds,
    )


def _headers(reply: Reply) -> Headers:
    given = _pairs(reply.headers)
    names = {name for name, _ in given}
    added: list[tuple[bytes, bytes]] = []
    if reply.kind in _TYPES and b"content-type" not in names:
        added.append((b"content-type", _TYPES[reply.kind]))
    if reply.gzip:
        added.append((b"content-encoding", b"gzip"))
    return (*added, *given)


def _pairs(pairs: HeaderPairs) -> Headers:
    return tuple((name.lower(), value) for name, value in on_the_wire(pairs))


def _chunks(reply: Reply, mark: bytes = b"") -> tuple[bytes, ...]:
    """The body in the pieces in which it is flushed."""
    if reply.kind == "none":
        return ()
    pieces = _events(reply, mark) if reply.kind == "sse" and reply.text is None else (_content(reply, mark),)
    body = b"".join(pieces)
    if reply.gzip:
        body = gzip.compress(body, mtime=0)
        pieces = (body,)
    if reply.split is not None:
        pieces = tuple(body[at : at + reply.split] for at in range(0, len(body), reply.split))
    return pieces


def _content(reply: Reply, mark: bytes) -> bytes:
    if reply.text is not None:
        return reply.text.encode()
    if reply.base64 is not None:
        return base64.b64decode(reply.base64)
    if reply.size is not None:
        begin = mark if len(mark) <= reply.size else b""
        return (begin + b"0123456789abcdef" * (reply.size // 16 + 1))[: reply.size]
    content = reply.json_ if "json_" in reply.model_fields_set else _completion(reply.filler, mark)
    return _json(content)


def _json(value: object) -> bytes:
    """As model servers write it: characters outside ASCII are not escaped, so that a chunk may end inside one."""
    return json.dumps(value, ensure_ascii=False).encode()


def _id(mark: bytes) -> str:
    return f"cmpl-{mark.decode() or 1}"


def _completion(filler: int, mark: bytes) -> dict[str, object]:
    return {
        "id": _id(mark),
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "llama-3",
        "choices": [{"index": 0, "text": "well" + "." * filler, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
    }


def _events(reply: Reply, mark: bytes) -> tuple[bytes, ...]:
    """The events of a streamed completion, the usage in the last, and the end mark.

    The text of the first has the reply's `filler` more.
    """
    count = reply.events
    events: list[bytes] = []
    for number in range(count):
        last = number == count - 1
        text = f" t\u00f6ken \u4e16{number}" + "." * (reply.filler if number == 0 else 0)
        event = {
            "id": _id(mark),
            "object": "text_completion",
            "created": 1_700_000_000,
            "model": "llama-3",
            "choices": [{"index": 0, "text": text, "finish_reason": "stop" if last else None}],
            **({"usage": {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}} if last else {}),
        }
        events.append(b"data: " + _json(event) + b"\n\n")
    return (*events, b"data: [DONE]\n\n")
